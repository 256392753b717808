"""`auto.offset.reset`."""

import pytest

from headrace.client.consumer.auto_offset_reset_strategy import AutoOffsetResetStrategy, parse_duration_ms
from headrace.client.consumer.partition_state import EARLIEST_OFFSET, LATEST_OFFSET, OffsetQuery
from headrace.common.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST_OFFSET),
        ("beginning", EARLIEST_OFFSET),
        ("latest", LATEST_OFFSET),
        ("end", LATEST_OFFSET),
        ("none", None),
        ("error", None),
        ("by_duration:PT1H", OffsetQuery("time", 10_000_000 - 3_600_000)),
        ("by_duration:P10D", OffsetQuery("time", 0)),
    ],
)
def test_strategy_selects_query(text, expected):
    policy = AutoOffsetResetStrategy(text)
    assert policy.query(now_ms=10_000_000) == expected
    assert policy.is_none is (expected is None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("PT0.5S", 500), ("P1DT1S", 86_401_000), ("PT90M", 5_400_000)],
)
def test_parses_durations(text, expected):
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1D", "-PT1H", "PT1.S", "P1DT", "PTS"])
def test_rejects_invalid_durations(text):
    with pytest.raises(ConfigError, match="ISO 8601"):
        parse_duration_ms(text)
