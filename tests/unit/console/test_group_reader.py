import pytest

from headrace.console.group_reader import drain_seconds


@pytest.mark.parametrize(
    ("lag", "consumed", "produced", "expected"),
    [
        (0, None, None, 0.0),
        (None, 5.0, 1.0, None),
        (100, 30.0, 10.0, 5.0),
        (100, 10.0, 10.0, None),
        (100, 5.0, 10.0, None),
        (100, None, 10.0, None),
        (100, 10.0, None, None),
    ],
)
def test_the_lag_is_gone_when_consumers_are_faster(
    lag: int | None, consumed: float | None, produced: float | None, expected: float | None
) -> None:
    assert drain_seconds(lag, consumed, produced) == expected
