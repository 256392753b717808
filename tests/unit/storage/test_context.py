import pytest

from headrace.storage.config import LogConfig
from headrace.storage.context import LogContext

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("ratio", "max_message_bytes", "expected"),
    [(128, MIB, 128 * MIB), (128, 1000, 16 * MIB), (1, 100 * MIB, 100 * MIB), (128, 100 * MIB, 2**31 - 1)],
)
def test_limit_of_the_uncompressed_size(ratio: int, max_message_bytes: int, expected: int) -> None:
    config = LogConfig.from_properties({"max.message.bytes": max_message_bytes})
    assert LogContext(max_inflation_ratio=ratio).max_inflated_bytes(config) == expected
