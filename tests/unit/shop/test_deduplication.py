"""What flows keep in the process, and when they make it anew."""

from types import SimpleNamespace
from typing import Any

from headrace.shop.deduplication import KeptByFlow


def batch(**changes: Any) -> Any:
    """As much of a batch as matters here."""
    application = changes.pop("application", "app-1")
    spark = SimpleNamespace(sparkContext=SimpleNamespace(applicationId=application))
    return SimpleNamespace(
        **{"spark": spark, "state_dir": "/s", "query_id": "q", "settings": {"minutes": 1}, **changes}
    )


def test_kept_for_the_same_query_spark_and_settings_only() -> None:
    kept: KeptByFlow[object] = KeptByFlow()
    first = kept.of(batch(), lambda _: object())
    assert kept.of(batch(settings={"minutes": 1}), lambda _: object()) is first
    assert kept.of(batch(state_dir="/other"), lambda _: object()) is not first
    assert kept.of(batch(), lambda _: object()) is first
    for other in ({"query_id": "r"}, {"application": "app-2"}, {"settings": {"minutes": 2}}):
        before = kept.of(batch(), lambda _: object())
        assert kept.of(batch(**other), lambda _: object()) is not before
