import pytest

from headrace.cli.replicas.comparison import compare
from headrace.client.replica_reader import BatchChecksum, ReplicaRead
from headrace.common.errors import KafkaStorageError, OffsetOutOfRangeError
from headrace.common.types import TopicPartition

TP = TopicPartition("t", 0)


def read(*last_offsets: int, high_watermark: int | None = None, checksum: int = 7) -> ReplicaRead:
    batches = [
        BatchChecksum(base, last, checksum)
        for base, last in zip([0, *(offset + 1 for offset in last_offsets)], last_offsets, strict=False)
    ]
    end = last_offsets[-1] + 1 if last_offsets else 0
    return ReplicaRead(end if high_watermark is None else high_watermark, 0, batches)


def test_equal_replicas() -> None:
    result = compare(TP, 0, {1: read(4, 9), 2: read(4, 9), 3: read(4, 9)})
    assert (result.next_offset, result.lag, result.differences) == (10, 0, [])


def test_a_replica_that_lags() -> None:
    result = compare(TP, 0, {1: read(4, 9, 12), 2: read(4, 9)})
    assert (result.next_offset, result.lag, result.differences) == (10, 3, [])
    result = compare(TP, 10, {1: read(4, 9, 12), 2: read(4, 9)})
    assert (result.next_offset, result.lag) == (10, 3)
    assert compare(TP, 5, {1: read(), 2: read()}).next_offset == 5
    assert compare(TP, 5, {}).next_offset == 5


def test_a_fetch_in_the_middle_of_a_batch() -> None:
    result = compare(TP, 3, {1: read(4, 9), 2: read(4, 9)})
    assert (result.next_offset, result.differences) == (10, [])


def test_different_records() -> None:
    result = compare(TP, 0, {1: read(4, 9), 2: read(4, 9, checksum=8), 3: read(4, 9)})
    assert result.next_offset == 10
    assert result.differences == [
        "partition t-0 has unmatched checksum at offset 4; replica 1's checksum 7; replica 2's checksum 8",
        "partition t-0 has unmatched checksum at offset 9; replica 1's checksum 7; replica 2's checksum 8",
    ]


def test_different_offsets() -> None:
    result = compare(TP, 0, {1: read(4, 9), 2: read(5, 9)})
    assert result.differences == ["partition t-0: replica 1's offset 4 doesn't match replica 2's offset 5"]
    assert result.next_offset == 5


@pytest.mark.parametrize("all_of_them", [True, False])
def test_offset_that_retention_has_deleted(all_of_them: bool) -> None:
    deleted = ReplicaRead(20, 10, error=OffsetOutOfRangeError("deleted"))
    result = compare(TP, 0, {1: deleted, 2: deleted if all_of_them else read(4)})
    assert (result.next_offset, result.differences) == (10, [])


def test_errors() -> None:
    shorter = ReplicaRead(5, 0, error=OffsetOutOfRangeError("too high"))
    result = compare(TP, 7, {1: read(9), 2: shorter})
    assert result.differences == ["partition t-0: replica 2 cannot be read at offset 7: too high"]
    assert result.next_offset == 7
    broken = ReplicaRead(error=KafkaStorageError("disk"))
    assert len(compare(TP, 0, {1: broken, 2: shorter}).differences) == 2
