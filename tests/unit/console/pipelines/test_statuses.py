"""The statuses of pipelines, also ones that are not what a runner writes."""

import json

import pytest
from tests.support.console.pipeline_records import status

from headrace.console.pipelines.statuses import Statuses


def _apply(statuses: Statuses, key: str, value: object) -> None:
    statuses.apply(key.encode(), None if value is None else json.dumps(value).encode())


def test_the_last_status_counts() -> None:
    statuses = Statuses()
    _apply(statuses, "shop/events", status())
    _apply(
        statuses, "shop/events", status(last_batch={"id": 5, "started_ms": 60_000, "duration_ms": 250, "rows_in": 10})
    )
    _apply(statuses, "shop/other", status(flow="other", state="stopped"))
    flows = statuses.pipelines()["shop"]
    assert [flow.flow for flow in flows] == ["events", "other"]
    events, other = flows
    assert [batch["batch_id"] for batch in events.batches] == [4, 5]
    assert events.batches[-1]["seconds"] == 0.25
    assert events.topics == {"raw", "pages", "carts", "dead"}
    assert events.state(90_000) == "running"
    assert events.state(90_001) == "stale"
    assert other.state(10**12) == "stopped"
    assert statuses.generation == 3
    _apply(statuses, "shop/events", status(run_id="run-2"))
    assert [batch["batch_id"] for batch in events.batches] == [4]


def test_a_tombstone_forgets_a_flow() -> None:
    statuses = Statuses()
    _apply(statuses, "shop/events", status())
    _apply(statuses, "shop/events", None)
    _apply(statuses, "shop/events", None)
    assert statuses.pipelines() == {}
    assert statuses.generation == 2


@pytest.mark.parametrize("key", [None, b"", b"noslash", b"/x", b"x/", b"\xff/x"])
def test_other_keys_are_ignored(key: bytes | None) -> None:
    statuses = Statuses()
    statuses.apply(key, json.dumps(status()).encode())
    assert statuses.generation == 0


@pytest.mark.parametrize("value", [b"", b"[]", b"5", b"\xff", b"[" * 100_000])
def test_other_values_are_ignored(value: bytes) -> None:
    statuses = Statuses()
    statuses.apply(b"a/b", value)
    assert statuses.pipelines() == {}


def test_wrong_types_count_as_missing() -> None:
    statuses = Statuses()
    wrong: dict[str, object] = {name: [{}] for name in status()}
    wrong |= {"last_batch": {"id": "x", "phases_ms": 5}, "lag": True}
    _apply(statuses, "a/b", wrong)
    statuses.apply(b"a/c", b'{"updated_ms": NaN, "lag": 1e999, "rows_out": {"t": "many"}}')
    broken, other = statuses.pipelines()["a"]
    assert (broken.sources, broken.topics, broken.rows_out, broken.reasons) == ([], set(), {}, {})
    assert (broken.whole("lag"), broken.number("lag"), broken.text("error")) == (0, None, None)
    assert broken.state(0) == "stale"
    assert other.rows_out == {"t": 0}
    assert other.number("lag") is None
