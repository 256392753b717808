"""A coordinator's way to its log: what is committed when, and which errors clients see."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.config import BROKER_KEYS
from headrace.broker.coordinator_keys import GROUP_TOPIC, TRANSACTION_TOPIC, coordinator_config
from headrace.broker.coordinators import CoordinatorLog
from headrace.broker.purgatory import Purgatory
from headrace.common.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
)
from headrace.common.timing_wheel import Timer
from headrace.common.types import TopicPartition
from headrace.storage.producers import AppendOrigin
from headrace.testing.clock import ManualClock


class FakePartition:
    def __init__(self) -> None:
        self.tp = TopicPartition(GROUP_TOPIC, 3)
        self.is_leader = True
        self.leader_epoch = 5
        self.replicated = 0
        self.failure: KafkaError | None = None
        self.log = SimpleNamespace(log_start_offset=2, log_end_offset=9)

    def append(self, batch: bytearray, acks: int, origin: AppendOrigin) -> Any:
        assert (acks, origin) == (-1, AppendOrigin.COORDINATOR)
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(last_offset=len(batch))

    def is_replicated(self, offset: int) -> bool:
        return offset < self.replicated


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.partition = FakePartition()
        self.produces = Purgatory("produce", self.timer)
        self.appended: list[object] = []
        replicas: Any = SimpleNamespace(produces=self.produces, appended=self.appended.append)
        partition: Any = self.partition
        self.log = CoordinatorLog(partition, replicas, timeout_ms=5_000)
        self.told: list[KafkaError | None] = []

    def wake(self) -> None:
        self.produces.check_and_complete(self.partition)


@pytest.fixture
def world() -> World:
    return World()


def test_an_append_wakes_readers(world: World) -> None:
    assert world.log.append(bytearray(b"1234")) == 4
    assert world.appended == [world.partition]
    assert (world.log.start_offset(), world.log.end_offset()) == (2, 9)


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (NotEnoughReplicasError, CoordinatorNotAvailableError),
        (NotLeaderForPartitionError, NotCoordinatorError),
        (KafkaStorageError, NotCoordinatorError),
        (MessageSizeTooLargeError, MessageSizeTooLargeError),
    ],
)
def test_errors_of_the_log_as_clients_of_a_coordinator_see_them(
    world: World, raised: type[KafkaError], seen: type[KafkaError]
) -> None:
    world.partition.failure = raised("no")
    with pytest.raises(seen):
        world.log.append(bytearray(b"1"))


def test_committed_when_the_replicas_have_it(world: World) -> None:
    assert not world.log.is_committed(7)
    world.log.when_committed(7, world.told.append)
    world.partition.replicated = 7
    world.wake()
    assert world.told == []
    world.partition.replicated = 8
    world.wake()
    assert world.told == [None]
    assert world.log.is_committed(7)


def test_a_commit_has_its_time(world: World) -> None:
    world.log.when_committed(7, world.told.append)
    world.clock.advance(5_000)
    world.timer.advance()
    assert [type(error) for error in world.told] == [CoordinatorNotAvailableError]


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 6}])
def test_a_commit_ends_with_the_leadership(world: World, change: dict[str, object]) -> None:
    world.log.when_committed(7, world.told.append)
    vars(world.partition).update(change, replicated=100)
    world.wake()
    assert [type(error) for error in world.told] == [NotCoordinatorError]


def test_a_partition_whose_disk_is_gone_is_empty(world: World) -> None:
    vars(world.partition)["log"] = None
    assert (world.log.start_offset(), world.log.end_offset()) == (0, 0)


@pytest.mark.parametrize(("brokers", "factor"), [(0, 1), (1, 1), (2, 2), (5, 3)])
def test_internal_topics_have_as_many_replicas_as_there_can_be(brokers: int, factor: int) -> None:
    config = coordinator_config(BROKER_KEYS.parse({}))
    for name in (GROUP_TOPIC, TRANSACTION_TOPIC):
        topic = config.topics[name].new_topic(brokers)
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (name, 50, factor)
        assert topic.configs["cleanup.policy"] == "compact"
    assert config.topics[TRANSACTION_TOPIC].new_topic(brokers).configs["min.insync.replicas"] == str(min(factor, 2))
