"""A coordinator's access to its log: commits, errors, and offsets of deleted topics."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.broker.config.coordinators import GROUP_TOPIC, TRANSACTION_TOPIC, CoordinatorConfig
from headrace.broker.coordinators import CoordinatorLog, Coordinators
from headrace.broker.purgatory import Purgatory
from headrace.cluster.metadata_image import ImageChange
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
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
from headrace.coordinator.result import CoordinatorResponse
from headrace.storage.producer_state import AppendOrigin
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


def test_append_completes_delayed_fetches(world: World) -> None:
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
def test_maps_log_errors_to_coordinator_errors(world: World, raised: type[KafkaError], seen: type[KafkaError]) -> None:
    world.partition.failure = raised("no")
    with pytest.raises(seen):
        world.log.append(bytearray(b"1"))


def test_commits_when_replicated(world: World) -> None:
    assert not world.log.is_committed(7)
    world.log.when_committed(7, world.told.append)
    world.partition.replicated = 7
    world.wake()
    assert world.told == []
    world.partition.replicated = 8
    world.wake()
    assert world.told == [None]
    assert world.log.is_committed(7)


def test_commit_times_out(world: World) -> None:
    world.log.when_committed(7, world.told.append)
    world.clock.advance(5_000)
    world.timer.advance()
    assert [type(error) for error in world.told] == [CoordinatorNotAvailableError]


def test_commit_fails_when_leadership_is_lost(world: World) -> None:
    world.log.when_committed(7, world.told.append)
    vars(world.partition).update(is_leader=False, replicated=100)
    world.wake()
    assert [type(error) for error in world.told] == [NotCoordinatorError]


def test_commit_continues_in_a_new_epoch_of_the_same_leader(world: World) -> None:
    world.log.when_committed(7, world.told.append)
    vars(world.partition).update(leader_epoch=6)
    world.wake()
    assert world.told == []
    vars(world.partition).update(replicated=8)
    world.wake()
    assert world.told == [None]


def test_offline_partition_is_empty(world: World) -> None:
    vars(world.partition)["log"] = None
    assert (world.log.start_offset(), world.log.end_offset()) == (0, 0)


@pytest.mark.parametrize(("brokers", "factor"), [(0, 1), (1, 1), (2, 2), (5, 3)])
def test_internal_topics_have_at_most_one_replica_per_broker(brokers: int, factor: int) -> None:
    config = CoordinatorConfig.from_properties()
    for name in (GROUP_TOPIC, TRANSACTION_TOPIC):
        topic = config.topics[name].spec(brokers)
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (name, 50, factor)
        assert topic.configs["cleanup.policy"] == "compact"
    assert config.topics[TRANSACTION_TOPIC].spec(brokers).configs["min.insync.replicas"] == str(min(factor, 2))


@pytest.mark.parametrize("brokers", [1, 2, 5])
def test_a_cluster_waits_for_enough_brokers(brokers: int) -> None:
    """The first broker must not create them with one replica."""
    config = CoordinatorConfig.from_properties(has_other_brokers=True)
    assert [config.topics[name].spec(brokers).replication_factor for name in (GROUP_TOPIC, TRANSACTION_TOPIC)] == [3, 3]
    config = CoordinatorConfig.from_properties({"offsets.topic.replication.factor": 2})
    assert config.topics[GROUP_TOPIC].spec(brokers).replication_factor == 2
    assert config.topics[TRANSACTION_TOPIC].spec(brokers).replication_factor == min(brokers, 3)


# ---- offsets of deleted topics


class Groups:
    """A runtime whose partitions return the given responses one after the other."""

    def __init__(self, **answers: list[bool | KafkaError]) -> None:
        self.answers = {int(name.removeprefix("of_")): list(given) for name, given in answers.items()}
        self.asked: list[tuple[int, set[str]]] = []

    def partitions(self) -> list[int]:
        return list(self.answers)

    def write(self, index: int, operation: Any, done: Any) -> None:
        shard = SimpleNamespace(delete_offsets_of_topics=lambda topics: self.asked.append((index, topics)))
        operation(shard)
        answer = self.answers[index].pop(0)
        done(CoordinatorResponse(error=answer) if isinstance(answer, KafkaError) else CoordinatorResponse(answer))


def make_coordinators(groups: Groups) -> tuple[ManualClock, Timer, Any]:
    """Returns clock, timer and the coordinators' listener for changes of the image."""
    clock = ManualClock()
    timer = Timer(clock)
    listeners: list[Any] = []
    replicas: Any = SimpleNamespace(on_role_changed=[])
    image: Any = SimpleNamespace(add_listener=listeners.append)
    unused: Any = None
    config = CoordinatorConfig.from_properties()
    coordinators: Any = Coordinators(config, replicas, image, unused, clock, timer, unused)
    coordinators.groups = groups
    return clock, timer, listeners[0]


def deleted(*topics: str) -> ImageChange:
    return ImageChange((), (), (), topics, brokers_changed=False)


@async_test
async def test_deletes_offsets_of_deleted_topics_in_every_partition() -> None:
    groups = Groups(of_3=[True], of_7=[True])
    _, timer, changed = make_coordinators(groups)
    changed(deleted())
    assert groups.asked == []
    changed(deleted("one", "two"))
    assert groups.asked == [(3, {"one", "two"}), (7, {"one", "two"})]
    assert len(timer) == 0


@async_test
async def test_deletes_offsets_in_steps() -> None:
    groups = Groups(of_3=[False, False, True], of_7=[True])
    clock, timer, changed = make_coordinators(groups)
    changed(deleted("one"))
    assert [index for index, _ in groups.asked] == [3, 7]
    for _ in range(5):
        clock.advance(1)
        timer.advance()
    assert [index for index, _ in groups.asked] == [3, 7, 3, 3]
    assert len(timer) == 0


@async_test
async def test_deletes_offsets_after_loading() -> None:
    loading = CoordinatorLoadInProgressError("loading")
    groups = Groups(of_3=[loading, loading, False, True])
    clock, timer, changed = make_coordinators(groups)
    changed(deleted("one"))
    timer.advance()
    assert len(groups.asked) == 1
    for asked in (2, 3):
        clock.advance(100)
        timer.advance()
        assert len(groups.asked) == asked
    clock.advance(1)
    timer.advance()
    assert groups.asked == [(3, {"one"})] * 4
    assert len(timer) == 0


@async_test
async def test_logs_a_failed_deletion_of_offsets(caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups(of_3=[NotCoordinatorError("not here")], of_7=[KafkaStorageError("full")])
    _, timer, changed = make_coordinators(groups)
    changed(deleted("one"))
    assert len(timer) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "Partition __consumer_offsets-7: failed to delete the committed offsets of the deleted topics one: full"
    ]
