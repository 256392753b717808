"""DeleteRecords requests: they wait for the live followers, for a new leader, or for their timeout."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, SLOW_FOLLOWER, TP_1, Replicas
from tests.support.storage.logs import make_batch

from headrace.broker.delayed_delete_records import DelayedDeleteRecords, PendingDeletion
from headrace.broker.partition import Partition
from headrace.common.errors import KafkaStorageError, NotLeaderForPartitionError, RequestTimedOutError
from headrace.protocol.messages.delete_records import DeleteRecordsPartitionResult

ALL = (NODE, FOLLOWER, SLOW_FOLLOWER)
TIMEOUT_MS = 1000


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as replicas:
        yield replicas


def lead(replicas: Replicas, records: int = 10, **changes: object) -> Partition:
    """Returns a partition whose records are replicated to two followers."""
    partition = replicas.lead(isr=ALL, **changes)
    partition.append(make_batch(records), 1)
    for follower in ALL[1:]:
        fetch(replicas, partition, follower, records)
    return partition


def fetch(replicas: Replicas, partition: Partition, follower: int, offset: int, log_start: int = 0) -> None:
    replicas.follower_fetched(partition, follower, offset, log_start, -1)


class Deletion:
    """A request that deletes the records below an offset of these partitions."""

    def __init__(self, replicas: Replicas, offset: int, *partitions: Partition):
        self.responses = 0
        self.results = [DeleteRecordsPartitionResult(partition_index=each.tp.partition) for each in partitions]
        for partition in partitions:
            partition.delete_records(offset)
        pending = [PendingDeletion(*each) for each in zip(partitions, [offset] * 9, self.results, strict=False)]
        operation = DelayedDeleteRecords(pending, TIMEOUT_MS, self._respond)
        replicas.deletes.try_complete_else_watch(operation, partitions)

    def _respond(self) -> None:
        self.responses += 1

    def result(self) -> list[tuple[int, int]]:
        """Returns error code and low watermark of each partition. The request was answered once."""
        assert self.responses == 1
        return [(result.error_code, result.low_watermark) for result in self.results]


def test_waits_for_all_followers(replicas: Replicas) -> None:
    partition = lead(replicas)
    deletion = Deletion(replicas, 6, partition)
    fetch(replicas, partition, FOLLOWER, 10, log_start=6)
    fetch(replicas, partition, SLOW_FOLLOWER, 10, log_start=5)
    assert not deletion.responses
    fetch(replicas, partition, SLOW_FOLLOWER, 10, log_start=7)
    assert deletion.result() == [(0, 6)]


def test_waits_for_all_partitions(replicas: Replicas) -> None:
    first, second = lead(replicas), lead(replicas, tp=TP_1)
    deletion = Deletion(replicas, 6, first, second)
    for follower in ALL[1:]:
        fetch(replicas, first, follower, 10, log_start=6)
    assert not deletion.responses
    for follower in ALL[1:]:
        fetch(replicas, second, follower, 10, log_start=6)
    assert deletion.result() == [(0, 6), (0, 6)]


def test_does_not_wait_for_dead_followers(replicas: Replicas) -> None:
    partition = lead(replicas)
    replicas.context.is_alive = lambda broker_id: broker_id != SLOW_FOLLOWER
    deletion = Deletion(replicas, 6, partition)
    fetch(replicas, partition, FOLLOWER, 10, log_start=6)
    assert deletion.result() == [(0, 6)]


def test_timeout(replicas: Replicas) -> None:
    partition = lead(replicas)
    deletion = Deletion(replicas, 6, partition)
    fetch(replicas, partition, FOLLOWER, 10, log_start=6)
    replicas.pass_time(TIMEOUT_MS)
    assert deletion.result() == [(RequestTimedOutError.code, 0)]
    assert partition.check_leader().log_start_offset == 6


def test_lost_leadership(replicas: Replicas) -> None:
    partition = lead(replicas)
    deletion = Deletion(replicas, 6, partition)
    replicas.lead(isr=ALL, leader=FOLLOWER, leader_epoch=1)
    assert deletion.result() == [(NotLeaderForPartitionError.code, -1)]


def test_failed_directory(replicas: Replicas) -> None:
    partition = lead(replicas)
    deletion = Deletion(replicas, 6, partition)
    replicas.directory_failed([partition.tp])
    assert deletion.result() == [(KafkaStorageError.code, -1)]
