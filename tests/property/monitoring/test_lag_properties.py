from hypothesis import given
from hypothesis import strategies as st

from headrace.monitoring.lag import OffsetHistory


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 100))), st.integers(0, 20_000))
def test_lag_grows_with_distance_and_is_never_negative(growth: list[tuple[int, float]], committed: int) -> None:
    found, offset, now = OffsetHistory(), 0, 0.0
    for more, seconds in growth:
        offset, now = offset + more, now + seconds
        found.add(offset, now)
    lag = found.lag_seconds(committed, now)
    if not growth:
        assert lag is None
        return
    assert lag is not None
    assert lag >= 0
    before = found.lag_seconds(max(0, committed - 1), now)
    assert before is not None
    assert before >= lag - 1e-6
