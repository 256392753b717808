"""Where a follower truncates its log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, Replicas
from tests.support.storage.logs import make_batch

from headrace.broker.replication.truncation import UNDEFINED, EpochEnd, start_of_first_batch, truncation_to
from headrace.storage.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A follower's log: epoch 3 has 0 to 9, epoch 4 has 10 to 14, epoch 7 has 15 to 19. The high watermark is 8."""
    with Replicas(tmp_path) as replicas:
        partition = replicas.lead(isr=(NODE, FOLLOWER), leader_epoch=3)
        partition.append(make_batch(10), 1)
        partition.follower_fetched(FOLLOWER, 8)
        for epoch in 4, 7:
            replicas.lead(isr=(NODE, FOLLOWER), leader_epoch=epoch)
            partition.append(make_batch(5), 1)
        replicas.lead(isr=(NODE, FOLLOWER), leader=FOLLOWER, leader_epoch=9)
        assert partition.log is not None
        yield partition.log


@pytest.mark.parametrize(
    ("leader_epoch", "end_offset", "expected"),
    [
        (7, 20, (20, True)),
        (7, 25, (20, True)),
        (7, 17, (17, True)),
        (4, 15, (15, True)),
        (4, 12, (12, True)),
        (4, 18, (15, True)),
        (5, 16, (15, False)),
        (3, 9, (9, True)),
        (1, 5, (0, True)),
    ],
)
def test_end_of_the_common_prefix(log: Log, leader_epoch: int, end_offset: int, expected: tuple[int, bool]) -> None:
    assert truncation_to(log, EpochEnd(leader_epoch, end_offset)) == expected


def test_leader_without_epochs(log: Log) -> None:
    assert truncation_to(log, EpochEnd(UNDEFINED, UNDEFINED)) == (8, True)
    assert truncation_to(log, EpochEnd(UNDEFINED, 13)) == (13, True)


def test_leader_epoch_after_all_of_the_follower(log: Log) -> None:
    assert truncation_to(log, EpochEnd(8, 13)) == (13, True)


def test_start_of_a_batch_across_the_end_of_an_empty_log(log: Log) -> None:
    batches = bytes(make_batch(10)) + bytes(make_batch(2, base_offset=10))
    assert start_of_first_batch(log, batches) is None, "the log is not empty"
    for offset, expected in ((0, None), (1, 0), (9, 0), (10, None), (11, None)):
        log.truncate_fully_and_start_at(offset)
        assert start_of_first_batch(log, batches) == expected
    log.truncate_fully_and_start_at(5)
    assert start_of_first_batch(log, batches[:100]) is None, "an incomplete batch"
    for damaged in (b"", b"x" * 100):
        assert start_of_first_batch(log, damaged) is None
