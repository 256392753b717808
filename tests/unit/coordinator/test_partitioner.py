"""The mapping of group ids and transactional ids to partitions."""

import pytest

from headrace.coordinator.partitioner import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("grüße 😀", 0)],
)
def test_java_string_hash(text: str, expected: int) -> None:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (value * 31 + unit) % 2**32
    assert java_string_hash(text) == (value - 2**32 if value >= 2**31 else value)
    if text.isascii():
        assert java_string_hash(text) == expected


def test_partition_for_smallest_hash_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
