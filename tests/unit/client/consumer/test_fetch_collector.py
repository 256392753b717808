"""The size estimates of the fetch collector."""

import pytest

from headrace.client.consumer.fetch_collector import _estimate

LIMITLESS = 2**31 - 1


@pytest.mark.parametrize(
    ("offsets", "size", "wanted", "expected"),
    [
        (1000, 100_000, LIMITLESS, (100_000, 1000)),
        (1000, 100_000, 10, (1000, 10)),
        (10**12, 7_000, LIMITLESS, (7_000, 1000)),  # compacted: most offsets have no record
        (0, 0, LIMITLESS, (0, 1)),
    ],
)
def test_estimates_bytes_and_rows(offsets: int, size: int, wanted: int, expected: tuple[int, int]) -> None:
    assert _estimate(offsets, size, wanted) == expected
