"""Partitions move between brokers while clients write, and while brokers and controllers fail."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import headrace
from headrace.admin import ConfigResource, ElectionType
from headrace.common.errors import (
    ElectionNotNeededError,
    HeadraceError,
    InvalidReplicationAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.testing import EmbeddedCluster

MANY = int(os.environ.get("HEADRACE_REASSIGNED_PARTITIONS", "200"))
"""How many partitions move while the controller fails; `make soak` moves 1,000."""
WAIT_MS = 60_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(4, replication_factor=2) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[headrace.Admin]:
    with headrace.Admin(bootstrap_servers=cluster.bootstrap_servers, default_api_timeout_ms=WAIT_MS) as admin:
        yield admin


@contextmanager
def writing(cluster: EmbeddedCluster, topic: str, partitions: int) -> Iterator[list[list[int]]]:
    """Sends numbers to all partitions in turn. At the end, reads everything and compares."""
    acknowledged: list[list[int]] = [[] for _ in range(partitions)]
    enough = threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        try:
            with headrace.Producer(
                bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=WAIT_MS, retries=10**6
            ) as producer:
                number = 0
                while not enough.is_set():
                    futures = [
                        (partition, producer.send(topic, b"%d" % number, partition=partition))
                        for partition in range(partitions)
                    ]
                    for partition, future in futures:
                        future.get(timeout_ms=WAIT_MS)
                        acknowledged[partition].append(number)
                    number += 1
        except (HeadraceError, TimeoutError) as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        enough.set()
        thread.join()
    assert not failures, failures
    for partition, numbers in enumerate(acknowledged):
        assert read(cluster, topic, partition) == numbers, f"partition {partition}"


def read(cluster: EmbeddedCluster, topic: str, partition: int) -> list[int]:
    tp = TopicPartition(topic, partition)
    with headrace.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        numbers: list[int] = []
        while consumer.position(tp) < end:
            for records in consumer.poll(timeout_ms=1000).values():
                numbers += [int(record.value or b"") for record in records]
        return numbers


def wait_until_done(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    cluster.wait_until(lambda: not admin.list_partition_reassignments(), WAIT_MS)


def replicas(admin: headrace.Admin, topic: str) -> dict[int, tuple[int, ...]]:
    description = admin.describe_topics([topic])[topic]
    return {one.partition: one.replicas for one in description.partitions}


def hosts(cluster: EmbeddedCluster, topic: str, partition: int) -> set[int]:
    tp = TopicPartition(topic, partition)
    return {
        broker_id
        for broker_id, broker in cluster.brokers.items()
        if broker.is_running and broker.call(lambda inside: inside.log_manager.get(tp)) is not None
    }


def test_moves_under_load(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    targets = {TopicPartition("t", 0): [3, 4], TopicPartition("t", 1): [4], TopicPartition("t", 2): [3, 1, 4]}
    with writing(cluster, "t", 3) as acknowledged:
        cluster.wait_until(lambda: acknowledged[2], WAIT_MS)
        admin.alter_partition_reassignments(targets)
        wait_until_done(cluster, admin)
        before = len(acknowledged[0])
        cluster.wait_until(lambda: len(acknowledged[0]) > before + 3, WAIT_MS)
    cluster.wait_until(lambda: replicas(admin, "t") == {0: (3, 4), 1: (4,), 2: (3, 1, 4)}, WAIT_MS)
    for partition, expected in {0: {3, 4}, 1: {4}, 2: {1, 3, 4}}.items():
        assert cluster.in_sync_replicas("t", partition) == expected
        cluster.wait_until(lambda partition=partition, expected=expected: hosts(cluster, "t", partition) == expected)


def test_throttled_move_is_cancelled(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    throttled = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
    cluster.create_topic("t", assignment={0: [1, 2]}, configs=throttled)
    for broker_id in cluster.brokers:
        rates = {"leader.replication.throttled.rate": 1, "follower.replication.throttled.rate": 1}
        admin.alter_configs([ConfigResource("broker", str(broker_id), rates)])
    tp = TopicPartition("t", 0)
    with writing(cluster, "t", 1) as acknowledged:
        cluster.wait_until(lambda: len(acknowledged[0]) > 3, WAIT_MS)
        admin.alter_partition_reassignments({tp: [3, 4]})
        ongoing = admin.list_partition_reassignments([tp])[tp]
        assert ongoing.replicas == (3, 4, 1, 2)
        assert (ongoing.adding_replicas, ongoing.removing_replicas) == ((3, 4), (1, 2))
        cluster.wait_until(lambda: hosts(cluster, "t", 0) == {1, 2, 3, 4}, WAIT_MS)
        admin.alter_partition_reassignments({tp: None})
        wait_until_done(cluster, admin)
    cluster.wait_until(lambda: hosts(cluster, "t", 0) == {1, 2}, WAIT_MS)
    assert replicas(admin, "t") == {0: (1, 2)}


def test_controller_fails_while_many_partitions_move(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    """The next controller completes the reassignments that its predecessor has started."""
    first = cluster.controller()
    others = [broker_id for broker_id in cluster.brokers if broker_id != first]
    old, kept, new = others
    cluster.create_topic("loaded", assignment={0: [old, kept], 1: [kept, old]})
    cluster.create_topic("many", assignment={number: [old, kept] for number in range(MANY)})
    # No replica of the target can catch up before the controller has failed.
    cluster.partition(new, old)
    cluster.partition(new, kept)
    targets = {TopicPartition("many", number): [kept, new] for number in range(MANY)}
    targets |= {TopicPartition("loaded", number): [new, kept] for number in range(2)}
    with writing(cluster, "loaded", 2):
        admin.alter_partition_reassignments(targets)
        assert len(admin.list_partition_reassignments()) == len(targets)
        cluster.kill(first)
        cluster.controller(other_than=first)
        cluster.heal()
        wait_until_done(cluster, admin)
    cluster.wait_until(lambda: set(replicas(admin, "many").values()) == {(kept, new)}, WAIT_MS)
    assert set(replicas(admin, "loaded").values()) == {(new, kept)}
    cluster.wait_until(lambda: not any(old in hosts(cluster, "many", number) for number in range(MANY)), WAIT_MS)


def test_broker_that_was_down_forgets_its_replicas(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    cluster.create_topic("t", assignment={0: [1, 2]})
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.in_sync_replicas("t") == {1}, WAIT_MS)
    admin.alter_partition_reassignments({TopicPartition("t", 0): [1, 3]})
    wait_until_done(cluster, admin)
    cluster.restart(2)
    assert hosts(cluster, "t", 0) == {1, 3}


def test_errors(cluster: EmbeddedCluster, admin: headrace.Admin) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 1]})
    here, missing = TopicPartition("t", 0), TopicPartition("t", 9)
    results = admin.alter_partition_reassignments(
        {here: None, missing: [1], TopicPartition("t", 1): [7]}, raise_errors=False
    )
    assert isinstance(results[here].error, NoReassignmentInProgressError)
    assert isinstance(results[missing].error, UnknownTopicOrPartitionError)
    assert isinstance(results[TopicPartition("t", 1)].error, InvalidReplicationAssignmentError)
    with pytest.raises(NoReassignmentInProgressError):
        admin.alter_partition_reassignments({here: None})
    assert admin.list_partition_reassignments([here, missing]) == {}


def test_elects_preferred_and_unclean_leaders(admin: headrace.Admin, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 1]})
    first, second, missing = (TopicPartition("t", number) for number in (0, 1, 9))
    results = admin.elect_leaders("preferred", [first, missing], raise_errors=False)
    assert isinstance(results[first].error, ElectionNotNeededError)
    assert isinstance(results[missing].error, UnknownTopicOrPartitionError)
    cluster.restart(1)
    cluster.wait_until_in_sync("t")
    assert cluster.leader("t", 0) == 2
    assert list(admin.elect_leaders("preferred")) == [first]
    assert cluster.leader("t", 0) == 1
    results = admin.elect_leaders(ElectionType.PREFERRED, ["t"], raise_errors=False)
    assert all(isinstance(result.error, ElectionNotNeededError) for result in results.values())
    cluster.kill(1)
    cluster.wait_until(lambda: cluster.in_sync_replicas("t", 1) == {2}, WAIT_MS)
    cluster.kill(2)
    cluster.restart(1)
    cluster.wait_until(lambda: admin.describe_topics(["t"])["t"].partitions[1].leader == -1, WAIT_MS)
    assert admin.elect_leaders(ElectionType.UNCLEAN, [second])[second].error is None
    assert cluster.leader("t", 1) == 1
