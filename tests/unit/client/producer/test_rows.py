"""Partitions of Arrow rows, compared with those of single records."""

import pyarrow as pa
import pytest

from headrace.client.producer._rows import choose_partitions, group_rows
from headrace.common.ids import make_random
from headrace.records import partition_for_key


def source(column: pa.Array) -> tuple[object, object, object, int]:
    validity, offsets, data = column.buffers()
    return validity, offsets, data, column.offset


def ints(data: bytearray, width: int) -> list[int]:
    return memoryview(data).cast("i" if width == 4 else "q").tolist()


@pytest.mark.parametrize("start", [0, 3])
def test_rows_go_to_same_partitions_as_records(start: int) -> None:
    random = make_random(1)
    keys = [None if random.random() < 0.2 else random.randbytes(random.randrange(20)) for _ in range(500)]
    given = [random.randrange(7) if random.random() < 0.3 else -1 for _ in keys]
    column = pa.array(keys, pa.binary()).slice(start)
    said = pa.array(given, pa.int32()).slice(start)
    view = memoryview(said.buffers()[1])[4 * said.offset :]
    chosen = choose_partitions(len(column), 7, 6, view, source(column))
    expected = [
        partition if partition >= 0 else 6 if key is None else partition_for_key(key, 7)
        for key, partition in zip(keys[start:], given[start:], strict=True)
    ]
    assert ints(chosen, 4) == expected
    order, groups = group_rows(chosen, 7)
    rows = ints(order, 8)
    for partition, first, end in groups:
        assert rows[first:end] == [row for row, each in enumerate(expected) if each == partition]
    assert sorted(rows) == list(range(len(column)))


def test_rows_without_keys_go_to_fallback() -> None:
    assert ints(choose_partitions(3, 4, 2, None, None), 4) == [2, 2, 2]
    order, groups = group_rows(choose_partitions(3, 4, 2, None, None), 4)
    assert groups == [(2, 0, 3)]
    assert ints(order, 8) == [0, 1, 2]
    assert group_rows(bytearray(), 4) == (bytearray(), [])


def test_rejects_invalid_buffers_and_partitions() -> None:
    with pytest.raises(ValueError, match="row 1"):
        choose_partitions(2, 2, 0, memoryview(pa.array([1, 2], pa.int32()).buffers()[1]), None)
    with pytest.raises(ValueError, match="needs"):
        choose_partitions(100, 2, 0, b"\0" * 4, None)
    with pytest.raises(ValueError, match="at least one"):
        choose_partitions(1, 0, 0, None, None)
    column = pa.array([b"abc"], pa.binary())
    with pytest.raises(ValueError, match="row 0"):
        choose_partitions(1, 2, 0, None, (None, column.buffers()[1], b"a", 0))
    with pytest.raises(ValueError, match="row 0"):
        group_rows(bytearray(b"\xff\xff\xff\xff"), 3)
