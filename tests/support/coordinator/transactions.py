"""A transaction coordinator with one partition; the test decides when markers are written."""

from itertools import count

from tests.support.coordinator.runtime import Bench

from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.shard import ShardContext
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.coordinator.transaction.metadata import TransactionMetadata, TransactionState
from headrace.coordinator.transaction.shard import TransactionCoordinatorShard

ID = "orders"
TIMEOUT_MS = 60_000
PARTITIONS = frozenset((TopicPartition("t", 0), TopicPartition("t", 1)))


class Coordinator:
    """The requests of clients. Each call returns the response or raises the error."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig()
        self.to_mark: list[TransactionMetadata] = []
        """Prepared transactions whose markers are not written yet."""
        self.marked: list[tuple[int, int, bool]] = []
        """Producer id, epoch and commit flag of all written markers."""
        self.ids = count(1000)
        self.bench: Bench = Bench(self._make_shard)

    def _make_shard(self, context: ShardContext) -> TransactionCoordinatorShard:
        self.to_mark = []  # pending markers are lost with the old instance
        return TransactionCoordinatorShard(
            context, lambda: self.config, lambda _, prepared: self.to_mark.append(prepared)
        )

    def _call(self, operation):  # type: ignore[no-untyped-def]
        outcomes: list[CoordinatorResponse] = []
        self.bench.runtime.write(0, operation, outcomes.append)
        (outcome,) = outcomes
        return outcome.result()

    def init(
        self, expected: ProducerInfo | None = None, timeout_ms: int = TIMEOUT_MS, name: str = ID
    ) -> ProducerInfo | None:
        return self._call(lambda shard: shard.init_producer_id(name, timeout_ms, expected, lambda: next(self.ids)))

    def add(
        self,
        producer: ProducerInfo,
        partitions: frozenset[TopicPartition] = PARTITIONS,
        version: int = 0,
        name: str = ID,
    ) -> None:
        self._call(lambda shard: shard.add_partitions(name, producer, partitions, version))

    def verify(self, producer: ProducerInfo, tp: TopicPartition, name: str = ID) -> bool:
        return self.bench.shard.verify(name, producer, [tp])[tp]

    def end(self, producer: ProducerInfo, commit: bool = True, version: int = 0, name: str = ID) -> ProducerInfo:
        return self._call(lambda shard: shard.end(name, producer, commit, version, lambda: next(self.ids)))

    def mark(self) -> None:
        """Writes all markers and completes the transactions."""
        while self.to_mark:
            prepared = self.to_mark.pop(0)
            self.marked.append(
                (prepared.producer_id, prepared.producer_epoch, prepared.state is TransactionState.PREPARE_COMMIT)
            )
            self._call(lambda shard, prepared=prepared: shard.complete(prepared))

    def get(self, name: str = ID) -> TransactionMetadata | None:
        return self.bench.shard.transactions.get(name)

    def state(self, name: str = ID) -> str | None:
        found = self.get(name)
        return found.state.label if found is not None else None

    def crash(self) -> None:
        """Simulates a crash: loses everything but the log, and loads it again."""
        self.bench.reload()


def outcome_of(call, *arguments: object, **named: object) -> str:  # type: ignore[no-untyped-def]
    """Returns the name of a call's error, or `OK`."""
    try:
        call(*arguments, **named)
    except KafkaError as error:
        return error.name
    return "OK"
