"""The verdicts without Spark: certain for generated events and clear faults, unclear for everything that readers of
JSON treat differently."""

import json
from typing import Any

import pytest

from headrace.common.ids import make_random
from headrace.shop.audit.verdicts import judge_db, judge_log
from headrace.shop.datagen.faults import BREAKS
from headrace.shop.datagen.stream import EventStream, StreamSettings
from headrace.shop.datagen.visits import DB, LOG
from headrace.shop.routes import ROUTES, Route

TS = 1_790_000_000_000
JUDGES = {LOG: judge_log, DB: judge_db(ROUTES)}


def test_generated_events_are_never_unclear() -> None:
    stream = EventStream(StreamSettings(events=4000, span_ms=60_000, devices=50, broken=0.1), TS)
    block = stream.take(4000)
    broken = 0
    for topic, judge in JUDGES.items():
        for key, value in zip(block.keys[topic], block.values[topic], strict=True):
            verdict = judge(key.encode(), value.encode() if isinstance(value, str) else value)
            assert verdict is not None, value
            broken += verdict.problem is not None
            if verdict.problem is None:
                assert verdict.key == key
    assert broken == sum(stream.generated.broken.values())


@pytest.mark.parametrize(("topic", "kind"), [(topic, kind) for topic in BREAKS for kind in BREAKS[topic]])
def test_every_kind_of_broken_event_is_broken(topic: int, kind: str) -> None:
    stream = EventStream(StreamSettings(events=300, span_ms=60_000, devices=50, broken=0.0), TS)
    random = make_random(3)
    for value in stream.take(300).values[topic]:
        assert isinstance(value, str)
        spoilt = BREAKS[topic][kind](value, random)
        verdict = JUDGES[topic](b"k", spoilt.encode() if isinstance(spoilt, str) else spoilt)
        assert verdict is not None
        assert verdict.problem is not None


def app_event(**changes: Any) -> bytes:
    event = {"event_id": "e", "ts": TS, "common": {"mid": " m "}, "page": {"page_id": "home"}, **changes}
    return json.dumps(event).encode()


def test_rows_of_an_app_event() -> None:
    verdict = judge_log(None, app_event(start={}, displays=[{}, None, {"order": 3}], actions=[], err={"error_code": 1}))
    assert verdict is not None
    assert verdict.key == "m"
    assert dict(verdict.rows) == {"dwd_start": 1, "dwd_page": 1, "dwd_display": 3, "dwd_error": 1}


@pytest.mark.parametrize(
    "value",
    [
        app_event().replace(b'"home"', b"'home'"),
        app_event() + b" x",
        app_event().replace(b'"home"', b"NaN"),
        app_event(ts=1.5),
        app_event(event_id=7),
        app_event(common={"mid": 7}),
        app_event(page={"during_time": "5"}),
        app_event(page={"during_time": 10**19}),
        app_event(displays={"item": 1}),
        app_event(displays=[7]),
        app_event(common="m"),
        app_event(other="\ud800"),
        app_event(_corrupt=1),
        app_event(other=[[]] * 500),
        app_event(other="x" * 20_000),
        app_event().replace(b'"ts"', b'"ts": 1, "ts"'),
    ],
)
def test_unclear_app_events(value: bytes) -> None:
    assert judge_log(None, value) is None


def change(**changes: Any) -> bytes:
    event = {"event_id": "e", "ts": TS, "table": "cart_info", "type": "insert", "xid": 1, "data": {"id": 1}, **changes}
    return json.dumps(event).encode()


@pytest.mark.parametrize(
    "value",
    [
        change(data="{}"),
        change(data={"id": "1"}),
        change(data={"sku_num": 2**31}),
        change(data={"cart_price": "1.50"}),
        change(data={"cart_price": 1e14}),
        change(table="order_info", data={"create_time": "2026-02-29 00:00:00"}),
        change(table="order_info", data={"create_time": 5}),
        change(old="{}"),
        change(xid="1"),
        change(type=1),
    ],
)
def test_unclear_changes(value: bytes) -> None:
    assert JUDGES[DB](b"k", value) is None


def test_changes_of_other_tables() -> None:
    unrouted = JUDGES[DB](b"k", change(table="sku_info"))
    assert unrouted is not None
    assert (unrouted.problem, unrouted.rows) == (None, ())
    routes = {"any": Route("dwd_any"), "odd": Route("dwd_odd", "id BIGINT, days ARRAY<INT>")}
    judge = judge_db(routes)
    routed = judge(b"k", change(table="any", data={"x": [1]}, old={"x": None}))
    assert routed is not None
    assert routed.rows == (("dwd_any", 1),)
    assert judge(b"k", change(table="odd")) is None, "only Spark knows all types"
