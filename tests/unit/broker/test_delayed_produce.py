"""Produce requests with acks=all: they wait for all in-sync replicas, for a new leader, or for their timeout."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.producing import ProducePath
from tests.support.broker.replicas import FOLLOWER, NODE, SLOW_FOLLOWER, TP, TP_1, Replicas
from tests.support.storage.logs import make_batch

from headrace.broker.delayed_produce import DelayedProduce, UnreplicatedAppend
from headrace.broker.partition import ALL_IN_SYNC, Partition
from headrace.common.errors import NotEnoughReplicasAfterAppendError, NotLeaderForPartitionError, RequestTimedOutError
from headrace.protocol.messages.produce import PartitionProduceResponse

ALL = (NODE, FOLLOWER, SLOW_FOLLOWER)
TIMEOUT_MS = 1000
NOT_LEADER, TIMED_OUT = NotLeaderForPartitionError.code, RequestTimedOutError.code


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as replicas:
        yield replicas


class Produce:
    """A request with three records for each of these partitions, which waits if it must."""

    def __init__(self, replicas: Replicas, *partitions: Partition, timeout_ms: int = TIMEOUT_MS):
        self.responses = 0
        self.appends = []
        for partition in partitions:
            result = partition.append(make_batch(3), ALL_IN_SYNC)
            response = PartitionProduceResponse(index=partition.tp.partition, base_offset=result.base_offset)
            self.appends.append(UnreplicatedAppend(partition, result.last_offset, response))
        operation = DelayedProduce(self.appends, timeout_ms, self._respond)
        self.completed_at_once = replicas.produces.try_complete_else_watch(operation, partitions)

    def _respond(self) -> None:
        self.responses += 1

    def result(self) -> list[tuple[int, int]]:
        """Returns error code and base offset of each partition. The request was answered once."""
        assert self.responses == 1
        return [(append.response.error_code, append.response.base_offset) for append in self.appends]


def fetched(replicas: Replicas, partition: Partition, follower: int, offset: int) -> None:
    if partition.follower_fetched(follower, offset):
        replicas.appended(partition)


def is_empty(replicas: Replicas) -> bool:
    return replicas.produces.delayed == replicas.produces.watched == len(replicas.timer) == 0


def test_completes_at_once_without_followers(replicas: Replicas) -> None:
    produce = Produce(replicas, replicas.lead())
    assert produce.completed_at_once
    assert produce.result() == [(0, 0)]
    assert is_empty(replicas)


def test_waits_for_all_in_sync_replicas(replicas: Replicas) -> None:
    partition = replicas.lead(isr=ALL)
    produce = Produce(replicas, partition)
    assert not produce.completed_at_once
    fetched(replicas, partition, FOLLOWER, 3)
    fetched(replicas, partition, SLOW_FOLLOWER, 2)
    assert produce.responses == 0, "one record is missing on a follower"
    fetched(replicas, partition, SLOW_FOLLOWER, 3)
    assert produce.result() == [(0, 0)]
    assert is_empty(replicas)
    replicas.pass_time(2 * TIMEOUT_MS)
    assert produce.responses == 1


def test_completes_in_order_of_offsets(replicas: Replicas) -> None:
    partition = replicas.lead(isr=(NODE, FOLLOWER))
    first, second = Produce(replicas, partition), Produce(replicas, partition)
    fetched(replicas, partition, FOLLOWER, 3)
    assert (first.responses, second.responses) == (1, 0)
    fetched(replicas, partition, FOLLOWER, 6)
    assert (first.result(), second.result()) == ([(0, 0)], [(0, 3)])


def test_waits_for_every_partition(replicas: Replicas) -> None:
    one, other = (replicas.lead(tp, isr=(NODE, FOLLOWER)) for tp in (TP, TP_1))
    produce = Produce(replicas, one, other)
    fetched(replicas, other, FOLLOWER, 3)
    assert produce.responses == 0
    fetched(replicas, one, FOLLOWER, 3)
    assert produce.result() == [(0, 0), (0, 0)]


def test_shrunk_isr_completes(replicas: Replicas) -> None:
    partition = replicas.lead(isr=ALL)
    produce = Produce(replicas, partition)
    fetched(replicas, partition, FOLLOWER, 3)
    assert produce.responses == 0
    replicas.context.is_alive = lambda broker_id: broker_id != SLOW_FOLLOWER
    replicas.lead(isr=(NODE, FOLLOWER), replicas=ALL, partition_epoch=1)
    assert produce.result() == [(0, 0)]


def test_too_few_replicas_when_all_have_the_records(tmp_path: Path) -> None:
    """Two partitions: while the second one waits, the ISR of the first one shrinks below the minimum."""
    with Replicas(tmp_path, min_insync_replicas=2) as replicas:
        first, second = replicas.lead(TP, isr=ALL), replicas.lead(TP_1, isr=ALL)
        produce = Produce(replicas, first, second)
        for follower in ALL[1:]:
            fetched(replicas, first, follower, 3)
        replicas.lead(TP, isr=(NODE,), replicas=ALL, partition_epoch=1)
        for follower in ALL[1:]:
            fetched(replicas, second, follower, 3)
        assert produce.result() == [(NotEnoughReplicasAfterAppendError.code, -1), (0, 0)]


def test_timeout(replicas: Replicas) -> None:
    partition = replicas.lead(isr=ALL)
    produce = Produce(replicas, partition)
    replicas.pass_time(TIMEOUT_MS - 1)
    assert produce.responses == 0
    replicas.pass_time(1)
    assert produce.result() == [(TIMED_OUT, -1)]
    assert is_empty(replicas)
    assert partition.check_leader().log_end_offset == 3, "the records stay in the log"


def test_timeout_fails_only_partitions_that_wait(replicas: Replicas) -> None:
    one, other = (replicas.lead(tp, isr=(NODE, FOLLOWER)) for tp in (TP, TP_1))
    produce = Produce(replicas, one, other)
    fetched(replicas, other, FOLLOWER, 3)
    replicas.pass_time(TIMEOUT_MS)
    assert produce.result() == [(TIMED_OUT, -1), (0, 0)]


def test_timeout_0_does_not_wait(replicas: Replicas) -> None:
    produce = Produce(replicas, replicas.lead(isr=ALL), timeout_ms=0)
    assert produce.completed_at_once
    assert produce.result() == [(TIMED_OUT, -1)]


@pytest.mark.parametrize("how", ["another leader", "stopped", "deleted", "disk failed"])
def test_lost_leadership(replicas: Replicas, how: str) -> None:
    partition = replicas.lead(isr=ALL)
    produce = Produce(replicas, partition)
    if how == "another leader":
        replicas.lead(isr=ALL, leader=FOLLOWER, leader_epoch=1)
    elif how == "disk failed":
        replicas.directory_failed([TP])
    else:
        assert replicas.stop_replica(delete=how == "deleted") == 0
    assert produce.result() == [(NOT_LEADER, -1)]
    assert is_empty(replicas)


def test_new_epoch_of_the_same_leader_continues_the_wait(replicas: Replicas) -> None:
    """A failed request would be sent again by a producer without idempotence, and written twice."""
    partition = replicas.lead(isr=(NODE, FOLLOWER))
    produce = Produce(replicas, partition)
    replicas.lead(isr=(NODE, FOLLOWER), leader_epoch=1, partition_epoch=1)
    assert produce.responses == 0
    fetched(replicas, partition, FOLLOWER, 3)
    assert produce.result() == [(0, 0)]


def test_leader_that_lost_and_regained_leadership(replicas: Replicas) -> None:
    """Another leader may have replaced the records at these offsets meanwhile."""
    partition = replicas.lead(isr=(NODE, FOLLOWER))
    produce = Produce(replicas, partition)
    replicas.lead(isr=(NODE, FOLLOWER), leader=FOLLOWER, leader_epoch=1, partition_epoch=1)
    replicas.lead(isr=(NODE,), replicas=ALL, leader_epoch=2, partition_epoch=2)
    assert partition.is_replicated(2)
    assert produce.result() == [(NOT_LEADER, -1)]


def test_lost_leadership_of_one_partition_waits_for_the_others(replicas: Replicas) -> None:
    one, other = (replicas.lead(tp, isr=(NODE, FOLLOWER)) for tp in (TP, TP_1))
    produce = Produce(replicas, one, other)
    replicas.lead(TP, isr=(NODE, FOLLOWER), leader=FOLLOWER, leader_epoch=1)
    assert produce.responses == 0
    fetched(replicas, other, FOLLOWER, 3)
    assert produce.result() == [(NOT_LEADER, -1), (0, 0)]


def test_appends_do_not_check_the_produces_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many producers wait for the same followers: each of them is checked when the high watermark advances."""
    checks = 0
    check = DelayedProduce.try_complete

    def count(operation: DelayedProduce) -> bool:
        nonlocal checks
        checks += 1
        return check(operation)

    monkeypatch.setattr(DelayedProduce, "try_complete", count)
    with ProducePath(tmp_path) as path:
        partition = path.lead(isr=(NODE, FOLLOWER))
        for _ in range(10):
            assert path.produce((0, make_batch(1)), acks=ALL_IN_SYNC) == b""
        assert checks == 10, "each produce is checked when it begins to wait"
        assert path.replicas.produces.delayed == 10
        fetched(path.replicas, partition, FOLLOWER, 10)
        assert len(path.connection.sent) == 10
        assert checks == 20
        path.lead(isr=(NODE,), leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch + 1)
        assert path.produce((0, make_batch(1)), acks=ALL_IN_SYNC), "without followers nothing waits"
