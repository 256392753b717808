from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.broker.admin_broker import AdminBroker
from tests.support.storage.logs import append, batches_of

from headrace.cluster.commands import LeaderAndIsr, ReplicaToStop, StopReplica
from headrace.common.errors import (
    KafkaStorageError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.storage.directory import LogDirectory

TP = TopicPartition("t", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    with AdminBroker(tmp_path / "one", log_dirs=f"{tmp_path / 'one'},{tmp_path / 'two'}") as broker:
        yield broker


def alter(
    broker: AdminBroker, path: object, *tps: TopicPartition, version: int | None = None
) -> dict[TopicPartition, int]:
    topics = [AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition]) for tp in tps or (TP,)]
    reply = broker.call(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)]), version)
    return {
        TopicPartition(topic.topic_name, partition.partition_index): partition.error_code
        for topic in reply.results
        for partition in topic.partitions
    }


def other_directory(broker: AdminBroker) -> LogDirectory:
    home = broker.log_manager.directory_of(TP)
    return next(directory for directory in broker.log_manager.directories if directory is not home)


def replicas(broker: AdminBroker) -> dict[str, tuple[int, bool]]:
    """Returns lag and kind of the replicas, by directory."""
    asked = [DescribableLogDirTopic(topic=TP.topic, partitions=[TP.partition])]
    reply = broker.call(DescribeLogDirsRequest(topics=asked))
    return {
        directory.log_dir: (partition.offset_lag, partition.is_future_key)
        for directory in reply.results
        for topic in directory.topics
        for partition in topic.partitions
    }


def stop(broker: AdminBroker, tp: TopicPartition) -> None:
    broker.replicas.stop(StopReplica(1, 1, -1, [ReplicaToStop(tp, 0, False)]))


def start(broker: AdminBroker, records: int = 5) -> LogDirectory:
    """Creates the topic. Returns the directory in which it is not."""
    broker.create("t")
    for _ in range(records):
        append(broker.log("t"))
    return other_directory(broker)


@pytest.mark.parametrize("version", [1, 2])
def test_moves_a_replica(broker: AdminBroker, version: int) -> None:
    target = start(broker)
    before = broker.log("t")
    expected = [bytes(batch.raw) for batch in batches_of(before)]
    assert alter(broker, target.path, version=version) == {TP: 0}
    broker.wait_until(lambda: broker.log_manager.directory_of(TP) is target)
    assert [bytes(batch.raw) for batch in batches_of(broker.log("t"))] == expected
    assert broker.log("t") is not before
    assert append(broker.log("t")).base_offset == 5
    assert replicas(broker) == {str(target.path): (0, False)}
    assert len(broker.log_dir_moves) == 0


def test_shows_the_lag_of_a_throttled_move_and_cancels_it(broker: AdminBroker) -> None:
    target = start(broker)
    home = str(broker.log_manager.directory_of(TP))
    broker.log_dir_rate = 0
    broker.log_dir_moves.quota.record(1)
    assert alter(broker, target.path) == alter(broker, target.path) == {TP: 0}
    assert replicas(broker) == {home: (0, False), str(target.path): (5, True)}
    assert len(broker.log_dir_moves) == 1
    assert alter(broker, home) == {TP: 0}
    assert replicas(broker) == {home: (0, False)}
    assert len(broker.log_dir_moves) == 0
    broker.log_dir_rate = 10**9
    assert alter(broker, target.path) == {TP: 0}
    broker.wait_until(lambda: broker.log_manager.directory_of(TP) is target)


def test_a_stopped_replica_continues_its_move_later(broker: AdminBroker) -> None:
    target = start(broker)
    home = str(broker.log_manager.directory_of(TP))
    broker.log_dir_rate = 0
    broker.log_dir_moves.quota.record(1)
    alter(broker, target.path)
    stop(broker, TP)
    assert len(broker.log_dir_moves) == 0
    assert replicas(broker) == {home: (-1, False), str(target.path): (-1, True)}
    broker.log_dir_rate = 10**9
    state = broker.image.partition("t", 0)
    assert state is not None
    command = LeaderAndIsr(1, 1, -1, [replace(state, leader_epoch=1)])
    assert broker.in_loop(lambda: broker.replicas.lead_or_follow(command)) == {TP: 0}
    broker.wait_until(lambda: broker.log_manager.directory_of(TP) is target)


def test_deleting_the_topic_ends_its_move(broker: AdminBroker) -> None:
    target = start(broker)
    broker.log_dir_rate = 0
    broker.log_dir_moves.quota.record(1)
    alter(broker, target.path)
    broker.forget("t")
    assert len(broker.log_dir_moves) == len(broker.log_manager.futures) == 0
    assert replicas(broker) == {}


def test_errors(broker: AdminBroker, tmp_path: Path) -> None:
    target = start(broker)
    assert alter(broker, tmp_path / "three") == {TP: LogDirNotFoundError.code}
    missing = TopicPartition("nope", 0)
    assert alter(broker, target.path, missing) == {missing: UnknownTopicOrPartitionError.code}
    broker.log_manager.fail_directory(target, "broken")
    assert alter(broker, target.path) == {TP: KafkaStorageError.code}
    home = broker.log_manager.directory_of(TP)
    assert home is not None
    assert alter(broker, home.path) == {TP: 0}


def test_a_replica_that_does_not_exist_yet_is_created_in_the_directory(broker: AdminBroker) -> None:
    two = broker.log_manager.directories[1]
    tps = [TopicPartition("new", index) for index in range(3)]
    for tp in tps:
        assert alter(broker, two.path, tp) == {tp: UnknownTopicOrPartitionError.code}
    broker.create("new", 3)
    assert {broker.log_manager.directory_of(tp) for tp in tps} == {two}
    stop(broker, tps[0])
    assert alter(broker, two.path, tps[0]) == {tps[0]: ReplicaNotAvailableError.code}
