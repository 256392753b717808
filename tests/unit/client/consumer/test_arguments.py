"""Arguments of the consumer's methods."""

from typing import Any

import pytest

from headrace.client.consumer.arguments import check_timestamp


@pytest.mark.parametrize(("timestamp", "expected"), [(0, 0), (1500, 1500), (1500.9, 1500), (2**63 - 1, 2**63 - 1)])
def test_timestamp_is_milliseconds(timestamp: Any, expected: int) -> None:
    assert check_timestamp(timestamp) == expected


@pytest.mark.parametrize("timestamp", ["1500", None, True, [1]])
def test_timestamp_must_be_a_number(timestamp: Any) -> None:
    with pytest.raises(TypeError, match="a timestamp must be milliseconds since 1970, not"):
        check_timestamp(timestamp)


@pytest.mark.parametrize("timestamp", [-1, 2**63])
def test_timestamp_must_be_in_range(timestamp: int) -> None:
    with pytest.raises(ValueError, match="a timestamp must be milliseconds since 1970, not"):
        check_timestamp(timestamp)
