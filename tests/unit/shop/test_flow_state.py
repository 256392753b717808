"""State that flows keep in the driver's memory, and when it is created again."""

from types import SimpleNamespace
from typing import Any

from headrace.shop.flow_state import FlowStateCache


def batch(**changes: Any) -> Any:
    """A stand-in for a batch, with the fields that the cache reads."""
    application = changes.pop("application", "app-1")
    spark = SimpleNamespace(sparkContext=SimpleNamespace(applicationId=application))
    return SimpleNamespace(
        **{"spark": spark, "state_dir": "/s", "query_id": "q", "settings": {"minutes": 1}, **changes}
    )


def test_state_is_kept_for_the_same_query_application_and_settings() -> None:
    cache: FlowStateCache[object] = FlowStateCache()
    first = cache.get(batch(), lambda _: object())
    assert cache.get(batch(settings={"minutes": 1}), lambda _: object()) is first
    assert cache.get(batch(state_dir="/other"), lambda _: object()) is not first
    assert cache.get(batch(), lambda _: object()) is first
    for other in ({"query_id": "r"}, {"application": "app-2"}, {"settings": {"minutes": 2}}):
        before = cache.get(batch(), lambda _: object())
        assert cache.get(batch(**other), lambda _: object()) is not before
