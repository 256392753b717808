from headrace.common.backoff import Backoff
from headrace.common.ids import make_random


def test_doubles_up_to_limit() -> None:
    backoff = Backoff(100, 1000, make_random(1), jitter=0)
    assert [backoff.wait_ms(attempt) for attempt in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.wait_ms(10_000) == 1000
    assert backoff.wait_seconds(1) == 0.2


def test_jitter_is_20_percent() -> None:
    backoff = Backoff(100, 1000, make_random(1))
    waits = [backoff.wait_ms(0) for _ in range(1000)]
    assert 80 <= min(waits) < 85
    assert 115 < max(waits) <= 120


def test_limit_is_at_least_first_backoff() -> None:
    assert Backoff(100, 10, make_random(1), jitter=0).wait_ms(5) == 100


def test_zero_backoff() -> None:
    assert Backoff(0, 0, make_random(1)).wait_ms(3) == 0
