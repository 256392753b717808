"""Three brokers with transactions in memory: coordinators and partitions whose leaders fail over at any append.

The coordinators, the marker sender, the verification and the handlers between brokers are real. Disks, sockets and time
are simulated. Logs are replicated at once: an append is in the log of the next leader, or lost with its leader.

A leader is replaced in one of three ways at a chosen append:

    KEPT     it crashes after the append was replicated, before anyone learns of it
    LOST     it crashes before the append was replicated
    DEPOSED  it is replaced and does not know it: its appends are never replicated, but it goes on, until it learns
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar

from headrace.broker import handlers
from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC
from headrace.broker.handlers import add_partitions_to_txn, write_txn_markers
from headrace.broker.purgatory import Purgatory
from headrace.broker.transaction_verification import Operation
from headrace.broker.transactions import Transactions
from headrace.cluster.commands import BrokerInfo, PartitionState, UpdateMetadata
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid, make_random
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.shard import CommitRequest, GroupCoordinatorShard
from headrace.coordinator.result import CommitCallback, ProducerInfo
from headrace.coordinator.runtime import CoordinatorRuntime
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.net.errors import KafkaConnectionError
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.records import BatchBuilder, BatchHeader, ControlType, RecordBatch, decode_rows, read_marker
from headrace.storage.producer_state import AppendOrigin, ProducerStateManager
from headrace.testing.clock import ManualClock

T = TypeVar("T")

ID, GROUP = "copy", "readers"
SOURCE = TopicPartition("source", 0)
TARGETS = (TopicPartition("target", 0), TopicPartition("target", 1))
STATE, OFFSETS = TopicPartition(TRANSACTION_TOPIC, 0), TopicPartition(GROUP_TOPIC, 0)
TIMEOUT_MS = 60_000
COMMIT_TIMEOUT_MS = 5_000
ADDS_ITSELF = 12
_TOPIC_ID = Uuid(int=5)


class Failure(Enum):
    KEPT = "kept"
    LOST = "lost"
    DEPOSED = "deposed"


class Died(BaseException):
    """The broker crashed in the middle of its work."""


class _Replica:
    """A partition on the broker that leads it, or thinks so."""

    def __init__(self, node: "Node", tp: TopicPartition, leader_epoch: int) -> None:
        self.tp = tp
        self.leader_epoch = leader_epoch
        self.is_leader = True
        self.is_deposed = False
        self.batches = list(node.cluster.logs[tp])
        self.producers = ProducerStateManager()
        for batch in self.batches:
            self.producers.apply(batch)
        self._node = node
        self.high_watermark = self.end_offset()

    @property
    def log(self) -> "_Replica":
        return self

    def check_leader(self) -> "_Replica":
        if not self.is_leader:
            raise NotLeaderForPartitionError(f"{self.tp} has another leader")
        return self

    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    # ---- for producers and markers

    def append(self, data: bytearray, acks: int, origin: AppendOrigin = AppendOrigin.CLIENT) -> Any:
        self.check_leader()
        batch = RecordBatch(data)
        duplicate = self.producers.find_duplicate(batch) if origin is AppendOrigin.CLIENT else None
        if duplicate is not None:
            return SimpleNamespace(last_offset=duplicate.last_offset)
        marker = read_marker(batch.records()) if batch.is_control else None
        self.producers.check(batch, origin, marker)
        batch.patch_base_offset(self.end_offset())
        self._write(batch)
        self.producers.apply(batch, marker)
        return SimpleNamespace(last_offset=batch.last_offset)

    def _write(self, batch: RecordBatch) -> None:
        cluster, node = self._node.cluster, self._node
        if not node.is_alive:
            raise Died
        failure = None if self.is_deposed else cluster.count_append()
        if failure is Failure.DEPOSED:
            cluster.depose(node)
        if not self.is_deposed and failure is not Failure.LOST:
            cluster.logs[self.tp].append(batch)
            self.high_watermark = batch.next_offset
        self.batches.append(batch)
        if failure in (Failure.KEPT, Failure.LOST):
            cluster.kill(node)
            raise Died

    def is_replicated(self, offset: int) -> bool:
        return offset < self.high_watermark


class _CoordinatorLog:
    """The log of a coordinator, for the runtime."""

    def __init__(self, node: "Node", replica: _Replica) -> None:
        self._node = node
        self._replica = replica

    def start_offset(self) -> int:
        return 0

    def end_offset(self) -> int:
        return self._replica.end_offset()

    def read(self, offset: int, max_bytes: int) -> list[RecordBatch]:
        return [batch for batch in self._replica.batches if batch.next_offset > offset]

    def append(self, data: bytearray) -> int:
        try:
            return int(self._replica.append(data, -1, AppendOrigin.COORDINATOR).last_offset)
        except NotLeaderForPartitionError as error:
            raise NotCoordinatorError(str(error)) from error

    def is_committed(self, offset: int) -> bool:
        return self._replica.is_replicated(offset)

    def when_committed(self, offset: int, done: CommitCallback) -> None:
        """Only the appends of a deposed leader wait: until it is unloaded, or for the timeout."""
        late = CoordinatorNotAvailableError("not replicated in time")
        self._node.timer.add(COMMIT_TIMEOUT_MS, lambda: done(late))


class Node:
    """One broker while it is alive."""

    def __init__(self, cluster: "Cluster", broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.is_alive = True
        self.died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.timer = Timer(cluster.clock)
        self.replicas: dict[TopicPartition, _Replica] = {}
        self.image = MetadataImage()
        produces = Purgatory("produce", self.timer)
        replicas: Any = SimpleNamespace(
            node_id=broker_id,
            find=self._find,
            get=lambda topic, index: self.replicas.get(TopicPartition(topic, index)),
            appended=produces.check_and_complete,
            produces=produces,
        )
        random = make_random(0)
        self.groups: CoordinatorRuntime[GroupCoordinatorShard] = self._make_runtime(
            GROUP_TOPIC, lambda context: GroupCoordinatorShard(context, GroupConfig, random)
        )
        coordinators: Any = SimpleNamespace(
            groups=self.groups, create_runtime=self._make_runtime, partition_of=lambda topic, key: 0
        )
        config: Any = SimpleNamespace(
            transactions=TransactionConfig(), coordinators=SimpleNamespace(commit_timeout_ms=COMMIT_TIMEOUT_MS)
        )
        dynamic_config: Any = SimpleNamespace(broker=lambda key: True)
        unused: Any = None
        store: Any = SimpleNamespace(exists=self._exists)
        self.transactions = Transactions(
            config,
            dynamic_config,
            coordinators,
            replicas,
            unused,
            store,
            self.image,
            self,
            cluster.clock,
            self.timer,
        )

    async def _exists(self, _: str) -> int:
        return 1

    def _find(self, topic: str, index: int) -> _Replica:
        replica = self.replicas.get(TopicPartition(topic, index))
        if replica is None:
            raise UnknownTopicOrPartitionError(f"{topic}-{index} is not here")
        return replica

    def _make_runtime(self, topic: str, make_shard: Any) -> CoordinatorRuntime[Any]:
        loop = asyncio.get_running_loop()
        return CoordinatorRuntime(topic, make_shard, self.cluster.clock, self.timer, loop.call_soon)

    def runtime(self, topic: str) -> CoordinatorRuntime[Any] | None:
        if topic == TRANSACTION_TOPIC:
            return self.transactions.runtime
        return self.groups if topic == GROUP_TOPIC else None

    # ---- roles

    def apply(self, leaders: dict[TopicPartition, tuple[int, int]], alive: list[int]) -> None:
        """Learns the leaders and their epochs."""
        states = [
            PartitionState(tp, _TOPIC_ID, leader, epoch, (1,), 0, (1,)) for tp, (leader, epoch) in leaders.items()
        ]
        self.image.apply(UpdateMetadata(1, 1, 1, [BrokerInfo(broker) for broker in alive], states))
        for tp, (leader, epoch) in leaders.items():
            replica = self.replicas.get(tp)
            runtime = self.runtime(tp.topic)
            if replica is not None and replica.leader_epoch < epoch:
                replica.is_leader = False
                del self.replicas[tp]
                if runtime is not None:
                    runtime.unload(tp.partition)
            if leader == self.id and tp not in self.replicas:
                replica = self.replicas[tp] = _Replica(self, tp, epoch)
                if runtime is not None:
                    runtime.load(tp.partition, epoch, _CoordinatorLog(self, replica))

    # ---- requests between brokers

    async def send(self, broker_id: int, request: Any, **_: object) -> Any:
        if not self.is_alive:
            raise Died
        return await self.cluster.call(broker_id, lambda node: node.serve(request))

    async def serve(self, request: Any) -> Any:
        async def give_way() -> None:
            await asyncio.sleep(0)

        context: Any = SimpleNamespace(give_way=give_way, api_version=5, authorizer=None)
        if isinstance(request, AddPartitionsToTxnRequest):
            return await add_partitions_to_txn.handle(
                request, context, image=self.image, transactions=self.transactions
            )
        return await write_txn_markers.handle(request, context, transactions=self.transactions)

    # ---- requests of clients

    async def write(
        self, producer: ProducerInfo, tp: TopicPartition, sequence: int, value: bytes, version: int
    ) -> None:
        builder = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        builder.append(b"", value, self.cluster.clock.time_ms())
        data = builder.build()
        partition: Any = self._find(*tp)
        unverified = self.transactions.check_append(partition, BatchHeader(data), ID, version)
        if unverified is not None:
            try:
                await unverified.wait()
                unverified.check()
                await self._replicate(partition, data)
            finally:
                unverified.finish()
        else:
            await self._replicate(partition, data)

    async def _replicate(self, partition: _Replica, data: bytearray) -> None:
        """Appends with acks=all. Never returns if the broker is deposed."""
        last_offset = partition.append(data, -1).last_offset
        if not partition.is_replicated(last_offset):
            await self.died

    async def commit_offset(self, producer: ProducerInfo, offset: int, operation: Operation) -> None:
        request = CommitRequest(GROUP, -1, "", None, [(SOURCE, offset, -1, "")])
        partition: Any = self._find(*OFFSETS)
        guard = await self.transactions.verifier.verify(partition, producer, ID, operation)

        def write(shard: GroupCoordinatorShard) -> Any:
            if guard is not None:
                guard.check()
            return shard.commit_in_transaction(request, producer)

        try:
            await self.groups.call(0, write)
        finally:
            if guard is not None:
                self.transactions.verifier.release(guard)


class Cluster:
    """`failures` are numbers of appends, each counted from the previous one, at which their leader fails."""

    def __init__(self, *failures: tuple[int, Failure]) -> None:
        handlers.load()
        self.clock = ManualClock()
        self.appends = 0
        self.failures = list(failures)
        self.logs: dict[TopicPartition, list[RecordBatch]] = {tp: [] for tp in (STATE, OFFSETS, *TARGETS)}
        self.leaders = {STATE: (1, 1), OFFSETS: (2, 1), TARGETS[0]: (3, 1), TARGETS[1]: (1, 1)}
        self.nodes = {broker_id: Node(self, broker_id) for broker_id in (1, 2, 3)}
        self.zombies: list[Node] = []
        self._ids = count(1000)
        self._tell()

    # ---- failures

    def count_append(self) -> Failure | None:
        self.appends += 1
        if self.failures:
            number, failure = self.failures[0]
            if number == 1:
                del self.failures[0]
                return failure
            self.failures[0] = number - 1, failure
        return None

    def kill(self, node: Node) -> None:
        node.is_alive = False
        if not node.died.done():
            node.died.set_result(None)
        self._replace(node)

    def depose(self, node: Node) -> None:
        for replica in node.replicas.values():
            replica.is_deposed = True
        self.zombies.append(node)
        self._replace(node)

    def _replace(self, node: Node) -> None:
        """Elects new leaders soon. A new instance of the broker starts, without any leadership."""
        if self.nodes[node.id] is not node:
            return
        self.nodes[node.id] = Node(self, node.id)
        for tp, (leader, epoch) in self.leaders.items():
            if leader == node.id:
                self.leaders[tp] = leader % 3 + 1, epoch + 1
        asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        for node in self.nodes.values():
            node.apply(self.leaders, [1, 2, 3])

    def wake_zombies(self) -> None:
        """Deposed brokers learn of the new leaders."""
        for node in self.zombies:
            node.apply(self.leaders, [1, 2, 3])

    # ---- running

    async def settle(self) -> None:
        for _ in range(25):
            await asyncio.sleep(0)

    async def pass_time(self, ms: int) -> None:
        end = self.clock.now_ms + ms
        while self.clock.now_ms < end:
            await self.settle()
            timers = [node.timer for node in (*self.nodes.values(), *self.zombies) if node.is_alive]
            due = [due for timer in timers if (due := timer.next_due_ms()) is not None]
            self.clock.advance(max(1, min([end - self.clock.now_ms, *due])))
            for timer in timers:
                try:
                    timer.advance()
                except Died:
                    continue
        await self.settle()

    async def call(self, broker_id: int, work: Callable[[Node], Awaitable[T]]) -> T:
        """Runs a request on a broker. Raises KafkaConnectionError if the broker dies meanwhile."""
        node = self.nodes[broker_id]
        task = asyncio.ensure_future(work(node))
        await asyncio.wait({task, node.died}, return_when=asyncio.FIRST_COMPLETED)
        if not node.is_alive or not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise KafkaConnectionError(f"broker {broker_id} has crashed")
        return await task

    async def on_leader(self, tp: TopicPartition, work: Callable[[Node], Awaitable[T]]) -> T:
        """As `call`, on the leader of a partition. A client of a deposed leader gives up after a while."""
        node = self.nodes[self.leaders[tp][0]]
        task = asyncio.ensure_future(self.call(node.id, work))
        for _ in range(200):
            if task.done():
                return await task
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise KafkaConnectionError(f"broker {node.id} does not respond")

    # ---- clients

    async def init(self) -> ProducerInfo:
        given: Any = await self.on_leader(
            STATE,
            lambda node: node.transactions.runtime.call(
                0, lambda shard: shard.init_producer_id(ID, TIMEOUT_MS, None, lambda: next(self._ids))
            ),
        )
        if given is None:
            raise ConcurrentTransactionsError("a transaction was aborted first")
        return ProducerInfo(*given)

    async def add(self, producer: ProducerInfo, *tps: TopicPartition) -> None:
        await self.on_leader(
            STATE,
            lambda node: node.transactions.runtime.call(0, lambda shard: shard.add_partitions(ID, producer, tps)),
        )

    async def write(
        self, producer: ProducerInfo, tp: TopicPartition, sequence: int, value: bytes, version: int
    ) -> None:
        await self.on_leader(tp, lambda node: node.write(producer, tp, sequence, value, version))

    async def commit_offset(self, producer: ProducerInfo, offset: int, operation: Operation) -> None:
        await self.on_leader(OFFSETS, lambda node: node.commit_offset(producer, offset, operation))

    async def end(self, producer: ProducerInfo, commit: bool, version: int) -> ProducerInfo:
        ended = await self.on_leader(
            STATE,
            lambda node: node.transactions.runtime.call(
                0, lambda shard: shard.end(ID, producer, commit, version, lambda: next(self._ids))
            ),
        )
        return ProducerInfo(*ended)

    # ---- visible state

    @property
    def state(self) -> str | None:
        node = self.nodes[self.leaders[STATE][0]]
        known = node.transactions.runtime.shard(0).transactions.get(ID)
        return known.state.label if known is not None else None

    def committed_offset(self) -> int:
        """Returns the stable committed offset; -2 if it is unstable."""
        offsets = self.nodes[self.leaders[OFFSETS][0]].groups.shard(0).offsets_of(GROUP)
        if offsets.has_pending(SOURCE.topic, SOURCE.partition):
            return -2
        found = offsets.get(SOURCE.topic, SOURCE.partition)
        return found.offset if found is not None else -1

    def committed_values(self, tp: TopicPartition) -> list[bytes | None]:
        """Returns the records visible to `read_committed`; raises if a transaction is still open."""
        found: list[bytes | None] = []
        waiting: dict[int, list[bytes | None]] = {}
        for batch in self.logs[tp]:
            records = batch.records()
            if not batch.is_control:
                waiting.setdefault(batch.producer_id, []).extend(row.value for row in decode_rows(records, 0))
            else:
                marker = read_marker(records)
                values = waiting.pop(batch.producer_id, [])
                if marker is not None and marker.control_type is ControlType.COMMIT:
                    found += values
        assert not waiting, f"{tp} has an open transaction"
        return found
