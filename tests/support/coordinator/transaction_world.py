"""A broker's transactions in memory, with partitions and coordinators. The broker can crash after any append.

Both coordinators, the marker sender and the producer state of partitions are real; disks, sockets and time are
simulated. Only the logs survive a crash.
"""

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from tests.support.coordinator.runtime import MemoryLog, Steps

from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.transactions import Transactions
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import ConcurrentTransactionsError
from headrace.common.ids import make_random
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.shard import CommitRequest, GroupCoordinatorShard
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.records import BatchBuilder, BatchHeader, ControlType, RecordBatch, decode_rows, read_marker
from headrace.storage.producer_state import AppendOrigin, ProducerStateManager
from headrace.testing.clock import ManualClock

ID, GROUP = "copy", "readers"
SOURCE = TopicPartition("source", 0)
TARGETS = (TopicPartition("target", 0), TopicPartition("target", 1))
OFFSETS = TopicPartition(GROUP_TOPIC, 0)
TIMEOUT_MS = 60_000
ADDS_ITSELF = 12
"""The Produce version that adds partitions to the transaction."""


class Died(BaseException):
    """The broker crashed before it sent the response."""


class _Log(MemoryLog):
    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    def append(self, batch: bytearray) -> int:
        offset = super().append(batch)
        self._world.count_append()
        return offset


class _Partition:
    """A partition as producers and markers see it."""

    def __init__(self, tp: TopicPartition, log: _Log) -> None:
        self.tp = tp
        self.is_leader = True
        self.leader_epoch = 1
        self.producers = ProducerStateManager()
        self._log = log
        for batch in log.batches:
            self.producers.apply(batch)

    @property
    def log(self) -> "_Partition":
        return self

    def check_leader(self) -> "_Partition":
        return self

    def append(self, data: bytearray, acks: int, origin: AppendOrigin = AppendOrigin.CLIENT) -> Any:
        batch = RecordBatch(data)
        duplicate = self.producers.find_duplicate(batch) if not batch.is_control else None
        if duplicate is not None:
            return SimpleNamespace(last_offset=duplicate.last_offset)
        marker = read_marker(batch.records()) if batch.is_control else None
        self.producers.check(batch, origin, marker)
        batch.patch_base_offset(self._log.end_offset())
        self.producers.apply(batch, marker)
        return SimpleNamespace(last_offset=self._log.append(data))

    def is_replicated(self, offset: int) -> bool:
        return True


class World:
    """`deaths` are the numbers of appends after which the broker crashes, each counted from the previous crash."""

    def __init__(self, deaths: Sequence[int] = (), groups_load_last: bool = False) -> None:
        self.clock = ManualClock()
        self.appends = 0
        self.deaths = list(deaths)
        self._groups_load_last = groups_load_last
        self._ids = count(1000)
        self._logs = {tp: _Log(self) for tp in (TopicPartition(TRANSACTION_TOPIC, 0), OFFSETS, *TARGETS)}
        self.start()

    def count_append(self) -> None:
        self.appends += 1
        if self.deaths:
            self.deaths[0] -= 1
            if not self.deaths[0]:
                del self.deaths[0]
                raise Died

    # ---- lives

    def start(self) -> None:
        """Restarts the broker. It may crash again during the load, which writes markers."""
        self._steps = Steps()
        self.timer = Timer(self.clock)
        self.partitions = {tp: _Partition(tp, self._logs[tp]) for tp in TARGETS}
        replicas: Any = SimpleNamespace(
            node_id=1,
            find=lambda topic, index: self.partitions[TopicPartition(topic, index)],
            get=lambda topic, index: self.partitions.get(TopicPartition(topic, index)),
            appended=lambda partition: None,
        )
        random = make_random(0)
        self.groups: CoordinatorRuntime[GroupCoordinatorShard] = self._make_runtime(
            GROUP_TOPIC, lambda context: GroupCoordinatorShard(context, GroupConfig, random)
        )
        coordinators: Any = SimpleNamespace(
            groups=self.groups, create_runtime=self._make_runtime, partition_of=lambda topic, key: 0
        )
        config: Any = SimpleNamespace(transactions=TransactionConfig())
        dynamic_config: Any = SimpleNamespace(broker=lambda key: True)
        unused: Any = None
        self.transactions = Transactions(
            config,
            dynamic_config,
            coordinators,
            replicas,
            unused,
            unused,
            MetadataImage(),
            unused,
            self.clock,
            self.timer,
        )
        runtimes: list[Any] = [self.groups, self.transactions.runtime]
        for runtime in reversed(runtimes) if self._groups_load_last else runtimes:
            runtime.load(0, 1, self._logs[TopicPartition(runtime.topic, 0)])
            self._steps.run()

    def _make_runtime(self, topic: str, make_shard: Any) -> CoordinatorRuntime[Any]:
        return CoordinatorRuntime(topic, make_shard, self.clock, self.timer, self._steps)

    def pass_time(self, ms: int) -> None:
        end = self.clock.now_ms + ms
        while (due := self.timer.next_due_ms()) is not None and self.clock.now_ms + due <= end:
            self.clock.advance(due)
            self.timer.advance()
        self.clock.advance(end - self.clock.now_ms)
        self.timer.advance()

    # ---- requests

    def _call(self, runtime: CoordinatorRuntime[Any], operation: Any) -> Any:
        outcomes: list[CoordinatorResponse[Any]] = []
        runtime.write(0, operation, outcomes.append)
        return outcomes[0].result()

    def init(self) -> ProducerInfo:
        given = self._call(
            self.transactions.runtime, lambda it: it.init_producer_id(ID, TIMEOUT_MS, None, lambda: next(self._ids))
        )
        if given is None:
            raise ConcurrentTransactionsError("a transaction was aborted first")
        return ProducerInfo(*given)

    def add(self, producer: ProducerInfo, *partitions: TopicPartition, version: int = 0) -> None:
        self._call(self.transactions.runtime, lambda it: it.add_partitions(ID, producer, partitions, version))

    def write(self, producer: ProducerInfo, tp: TopicPartition, sequence: int, value: bytes, version: int) -> None:
        builder = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        builder.append(b"", value, self.clock.time_ms())
        data = builder.build()
        partition: Any = self.partitions[tp]
        assert self.transactions.check_append(partition, BatchHeader(data), ID, version) is None
        partition.append(data, -1)

    def commit_offset(self, producer: ProducerInfo, offset: int) -> None:
        request = CommitRequest(GROUP, -1, "", None, [(SOURCE, offset, -1, "")])
        self._call(self.groups, lambda it: it.commit_in_transaction(request, producer))

    def end(self, producer: ProducerInfo, commit: bool, version: int) -> ProducerInfo:
        return ProducerInfo(
            *self._call(
                self.transactions.runtime, lambda it: it.end(ID, producer, commit, version, lambda: next(self._ids))
            )
        )

    # ---- visible state

    @property
    def state(self) -> str | None:
        known = self.transactions.runtime.shard(0).transactions.get(ID)
        return known.state.label if known is not None else None

    def committed_offset(self) -> int:
        """Returns the stable committed offset; -2 if it is unstable."""
        offsets = self.groups.shard(0)._offsets.get(GROUP)
        if offsets is None:
            return -1
        if offsets.has_pending(SOURCE.topic, SOURCE.partition):
            return -2
        found = offsets.get(SOURCE.topic, SOURCE.partition)
        return found.offset if found is not None else -1

    def is_stable(self, tp: TopicPartition) -> bool:
        """Returns True if no open transaction holds back the last stable offset."""
        return all(each.transaction_first_offset is None for each in self.partitions[tp].producers.entries.values())

    def committed_values(self, tp: TopicPartition) -> list[bytes | None]:
        """Returns the records visible to `read_committed`, computed from batches and markers only."""
        found: list[bytes | None] = []
        waiting: dict[int, list[bytes | None]] = {}
        for batch in self._logs[tp].batches:
            records = batch.records()
            if not batch.is_control:
                waiting.setdefault(batch.producer_id, []).extend(row.value for row in decode_rows(records, 0))
            else:
                marker = read_marker(records)
                values = waiting.pop(batch.producer_id, [])
                if marker is not None and marker.control_type is ControlType.COMMIT:
                    found += values
        return found
