"""`ods-dwd` on plain record batches. tests/integration/shop compares it with its SQL reference."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.shop.arrow_run import ArrowRun, record_batch
from tests.support.shop.frames import DAY_MS, TS, Event, change, common, page, reasons

from headrace.pipelines import PipelineError
from headrace.shop.ods_dwd import make_ods_dwd, ods_dwd
from headrace.shop.routes import ROUTES, Route
from headrace.shop.schemas import COMMON_FIELDS, LOG_TOPICS


@pytest.fixture
def log() -> ArrowRun:
    return ArrowRun(ods_dwd, "log")


@pytest.fixture
def db() -> ArrowRun:
    return ArrowRun(ods_dwd, "db")


def batch(run: ArrowRun, *events: Any) -> dict[str, list[dict[str, Any]]]:
    return run.batch(events)


# ---- the app's events


def test_writes_one_row_per_item(log: ArrowRun) -> None:
    start = {"entry": " icon ", "loading_time": 3, "open_ad_id": 4, "open_ad_ms": -1, "open_ad_skip_ms": 0}
    displays = [
        {"display_type": "query", "item": str(number), "item_type": 'a "quoted", ü', "order": number, "pos_id": 2}
        for number in range(2)
    ]
    actions = [{"action_id": "cart_add", "item": "3", "item_type": "sku_id", "ts": TS + 9}]
    error = {"error_code": 500, "msg": 'line\n"two"\\'}
    first = page("e1", displays=displays, actions=actions, err=error)
    second = ("m2", {"event_id": "e2", "ts": TS + 1, "common": common(" m2 ", "1", uid=" "), "start": start})
    rows = batch(log, first, second)
    head = {
        "_key": "m1",
        "event_id": "e1",
        "ts": TS,
        **{name: value for name, value in common().items() if name in COMMON_FIELDS},
        "is_new": False,
    }
    src = {"src": {"p": 3, "o": 0}}
    assert rows["dwd_page"] == [{**head, "page_id": "home", "during_time": 5, **src}]
    assert rows["dwd_display"] == [
        {**head, "page_id": "home", **display, "seq": seq, **src} for seq, display in enumerate(displays)
    ]
    action = {"action_id": "cart_add", "item": "3", "item_type": "sku_id", "action_ts": TS + 9}
    assert rows["dwd_action"] == [{**head, "page_id": "home", **action, "seq": 0, **src}]
    assert rows["dwd_error"] == [{**head, "page_id": "home", **error, **src}]
    (started,) = rows["dwd_start"]
    assert (started["_key"], started["mid"], started["is_new"], started["entry"]) == ("m2", "m2", True, "icon")
    assert "uid" not in started, "blank text is dropped"
    assert "open_ad_ms" not in started, "a duration cannot be negative"
    assert started["src"] == {"p": 3, "o": 1}
    assert set(rows) == set(LOG_TOPICS)


def test_items_without_fields(log: ArrowRun) -> None:
    bare = ("m1", {"event_id": "e1", "ts": TS, "common": {"mid": "m1"}, "page": {}, "displays": [{}, None], "err": {}})
    rows = batch(log, bare)
    head = {"_key": "m1", "event_id": "e1", "ts": TS, "mid": "m1", "is_new": False}
    src = {"src": {"p": 3, "o": 0}}
    assert rows == {
        "dwd_page": [{**head, **src}],
        "dwd_display": [{**head, "seq": 0, **src}, {**head, "seq": 1, **src}],
        "dwd_error": [{**head, **src}],
    }


def spoilt(event: Event, **changes: Any) -> Event:
    return event[0], {**event[1], **changes}


def without(event: Event, name: str) -> Event:
    return event[0], {field: value for field, value in event[1].items() if field != name}


def test_reasons_for_invalid_app_events(log: ArrowRun) -> None:
    sound = page("e")
    cases: dict[str, Any] = {
        "no value": None,
        "empty value": b" ",
        "not UTF-8 text": b'{"event_id":"\xff\xfe"}',
        "not JSON": json.dumps(sound[1]).encode()[:-9],
        "not a JSON object": [sound[1]],
        "no event_id": without(sound, "event_id")[1],
        "no ts": without(sound, "ts")[1],
        "ts 17 is out of range: expected milliseconds since 1970": spoilt(sound, ts=17)[1],
        "ts is not a whole number": spoilt(sound, ts="yesterday")[1],
        "no common": without(sound, "common")[1],
        "common is not an object": spoilt(sound, common="m1")[1],
        "no mid": spoilt(sound, common={"uid": "1"})[1],
        "neither start nor page": without(sound, "page")[1],
        "page is not an object": spoilt(sound, page=3)[1],
        "page.during_time is not a whole number": spoilt(sound, page={"page_id": "home", "during_time": "long"})[1],
        "displays is not a list of displays": spoilt(sound, displays={"item": 1})[1],
        "a field has a wrong type": spoilt(sound, displays=[{"order": "first"}])[1],
    }
    rows = batch(log, *(("k", value) for value in cases.values()), spoilt(sound, event_id=" "), sound)
    assert reasons(rows) == dict(enumerate([*cases, "no event_id"]))
    assert [row["event_id"] for row in rows["dwd_page"]] == ["e"]
    (letter,) = (row for row in rows["dead_letters"] if row["reason"] == "not JSON")
    assert (letter["key"], letter["value"]) == (b"k", cases["not JSON"])


def test_removes_duplicates_within_and_across_batches(log: ArrowRun) -> None:
    assert [row["src"]["o"] for row in batch(log, page("a"), page("a"), page("b"))["dwd_page"]] == [0, 2]
    second = (page("b"), page("c"), page("a"), page("d"))
    assert [row["event_id"] for row in batch(log, *second)["dwd_page"]] == ["c", "d"]
    assert log.figures["duplicates"] == 2
    assert batch(log, *second) == {}, "all events are duplicates"
    assert batch(log) == {}


def test_a_replay_with_the_earlier_state_gives_the_same_rows(log: ArrowRun) -> None:
    batch(log, page("a"), page("b", is_new="1"))
    log.task.state.take_delta()
    before = log.task.state.snapshot()
    events = (page("b"), page("c", is_new="1"), page("c"), page("d"))
    first_time = batch(log, *events)
    delta = log.task.state.take_delta()
    other = ArrowRun(ods_dwd, "log")
    other.task.state.restore(before)
    assert batch(other, *events) == first_time
    assert other.task.state.take_delta() == delta


def test_deduplication_window_uses_log_time(log: ArrowRun) -> None:
    def written(event_id: str, sent_ms: int | None) -> bool:
        return "dwd_page" in log.batch([page(event_id)], sent_ms)

    hour_ms = 3_600_000
    assert written("a", TS)
    assert not written("a", TS + hour_ms), "the next record of the log"
    assert not written("a", None), "a record without a timestamp does not change the log time"
    for number in range(12):
        assert written(f"b{number}", TS + hour_ms * number)
    assert written("a", TS + hour_ms * 12), "expired many records later"
    assert not written("b11", TS + hour_ms * 13)


def test_invalid_events_are_never_duplicates(log: ArrowRun) -> None:
    broken = without(page("a"), "page")
    assert reasons(batch(log, broken, broken)) == {0: "neither start nor page", 1: "neither start nor page"}
    assert len(batch(log, page("a"))["dwd_page"]) == 1


def test_corrects_the_flag_of_new_visitors(log: ArrowRun) -> None:
    rows = batch(log, page("a", "new", is_new="1"), page("b", "old", is_new="0"), page("c", "old", is_new="1"))
    assert [row["is_new"] for row in rows["dwd_page"]] == [True, False, False]
    assert log.figures["repaired"] == 1
    tomorrow = TS + DAY_MS
    rows = batch(
        log,
        page("d", "new", is_new="1", ts=TS + 1000),
        page("e", "new", is_new="1", ts=tomorrow),
        page("f", "newer", is_new="1", ts=tomorrow),
        page("g", "newer", is_new="true", ts=tomorrow),
        page("h", "newer", is_new="maybe", ts=tomorrow),
    )
    assert [row["is_new"] for row in rows["dwd_page"]] == [True, False, True, True, False]
    assert log.figures["new_devices"] == 1


# ---- changes of rows


def test_changes_are_typed_and_routed(db: ArrowRun) -> None:
    late = change("e2", kind="update", old={"order_status": "new"})
    late[1]["data"]["total_amount"] = "7"
    late[1]["data"]["note"] = "not in the schema"
    payment = change("e3", "payment_info", 9)
    payment[1]["data"] = {"id": 9, "order_id": 1, "payment_amount": 12.5, "callback_time": "2026-01-01 10:00:00.25"}
    rows = batch(db, change("e1"), late, payment, change("e4", "sku_info"), change("e5", "user_info"))
    order = {
        "_key": "order_info:1",
        "event_id": "e1",
        "ts": TS,
        "op": "insert",
        "xid": 5,
        "id": 1,
        "user_id": 7,
        "mid": "m1",
        "total_amount": 12.50,
        "sku_count": 2,
        "area": "DE-BE",
        "order_status": "created",
        "create_time": "2026-01-01T00:00:01.000Z",
        "operate_time": "2026-01-01T00:00:01.000Z",
        "src": {"p": 3, "o": 0},
    }
    old = {"old": {"order_status": "new"}}
    update = {"event_id": "e2", "op": "update", "total_amount": 7.0, "src": {"p": 3, "o": 1}}
    assert rows["dwd_order"] == [order, {**order, **update, **old}]
    (paid,) = rows["dwd_payment"]
    assert (paid["_key"], paid["payment_amount"]) == ("payment_info:9", 12.5)
    assert paid["callback_time"].startswith("2026-01-01T10:00:00")
    assert set(rows) == {"dwd_order", "dwd_payment"}
    assert db.figures == {"duplicates": 0, "unrouted": 2}


def test_reasons_for_invalid_changes(db: ArrowRun) -> None:
    sound = change("e")
    data = sound[1]["data"]
    cases: dict[str, Any] = {
        "not JSON": b"{",
        "no ts": without(sound, "ts")[1],
        "no table": without(sound, "table")[1],
        "no type": without(sound, "type")[1],
        "type upsert is none of insert, update, delete": spoilt(sound, type="upsert")[1],
        "no data": without(sound, "data")[1],
        "data is not an object": spoilt(sound, data="row")[1],
        "data.total_amount is not decimal(16,2)": spoilt(sound, data={**data, "total_amount": "much"})[1],
        "data.create_time is not timestamp": spoilt(sound, data={**data, "create_time": "now"})[1],
        "xid is not a whole number": spoilt(sound, xid="five")[1],
    }
    rows = batch(db, *(("k", value) for value in cases.values()), sound)
    assert reasons(rows) == dict(enumerate(cases))
    assert len(rows["dwd_order"]) == 1


def test_rejects_text_that_only_looks_like_json() -> None:
    routes = {**ROUTES, "sku_info": Route("dwd_sku")}
    run = ArrowRun(make_ods_dwd(routes, name="mine"), "db")
    sound = ['{"a": [1.50, {"b": null}], "c": "}"}', "{}", '{"c": "ü"} ']
    broken = ["{oops", "{", "{} x", "{}]", "{}] }", '{"a": 1}{"b": 2}', "{},1", "{},1] x", "{},2] x", "{'a': 1}"]
    texts = [*sound, *broken]
    events = [change(f"old-{number}", kind="update", old=text) for number, text in enumerate(texts)]
    events += [change(f"data-{number}", "sku_info", data=text) for number, text in enumerate(texts)]
    single_quotes = json.dumps(change("quotes", old="X")[1]).replace('"X"', "{'a': 1}").encode()
    rows = run.batch([*events, ("k", single_quotes), change("e", old=7), change("f", old=None)])
    wrong = {3 + number: "old is not a JSON object" for number in range(len(broken))}
    wrong |= {len(texts) + 3 + number: "data is not a JSON object" for number in range(len(broken))}
    assert reasons(rows) == wrong
    assert [row.get("old") for row in rows["dwd_order"]] == [*map(json.loads, sound), {"a": 1}, None, None]
    assert [row["data"] for row in rows["dwd_sku"]] == [*map(json.loads, sound)]


def test_routes_of_a_user(tmp_path: Path) -> None:
    mine = make_ods_dwd({**ROUTES, "coupon_use": Route("dwd_coupon", "id BIGINT, `price.net` DOUBLE")}, name="mine")
    file = tmp_path / "routes.json"
    file.write_text(json.dumps({"sku_info": {"topic": "dwd_sku"}, "order_info": None}))
    run = ArrowRun(mine, "db", routes=str(file))
    file.unlink()
    coupon = change("e1", "coupon_use", 3)
    coupon[1]["data"] = {"id": 3, "price.net": 1.5}
    sku = change("e2", "sku_info", 4)
    sku[1]["data"] = {"id": 4, "ts": "its own", "deep": {"er": [1, None]}}
    rows = batch(run, coupon, sku, change("e3"))
    head = {"ts": TS, "op": "insert", "xid": 5}
    assert rows == {
        "dwd_coupon": [
            {"_key": "coupon_use:3", "event_id": "e1", **head, "id": 3, "price.net": 1.5, "src": {"p": 3, "o": 0}}
        ],
        "dwd_sku": [{"_key": "sku_info:4", "event_id": "e2", **head, "data": sku[1]["data"], "src": {"p": 3, "o": 1}}],
    }
    for columns, message in (("id BIGINT, ts BIGINT", "cannot be named 'ts'"), ("id of what", "not a SQL schema")):
        file.write_text(json.dumps({"t": {"topic": "dwd_t", "columns": columns}}))
        with pytest.raises(PipelineError, match=message):
            ArrowRun(mine, "db", routes=str(file))


def test_rejects_invalid_settings() -> None:
    with pytest.raises(PipelineError, match="dedup_minutes=0: expected more than 0"):
        ArrowRun(ods_dwd, "log", dedup_minutes=0.0)


def test_tables_that_share_a_topic_keep_the_order_of_their_changes(tmp_path: Path) -> None:
    file = tmp_path / "routes.json"
    file.write_text(
        json.dumps({"cart_info": {"topic": "dwd_mixed", "columns": "id BIGINT"}, "x": {"topic": "dwd_mixed"}})
    )
    run = ArrowRun(ods_dwd, "db", routes=str(file))
    tables = ("x", "cart_info", "order_info", "x", "cart_info")
    rows = batch(run, *(change(f"e{number}", table, number) for number, table in enumerate(tables)))
    assert [row["event_id"] for row in rows["dwd_mixed"]] == ["e0", "e1", "e3", "e4"]
    assert len(rows["dwd_order"]) == 1


def test_the_result_does_not_depend_on_chunks() -> None:
    events = [
        page(f"e{number % 7}", f"m{number % 3}", is_new="1", ts=TS + DAY_MS * (number % 2)) for number in range(20)
    ]
    records = [(key.encode(), json.dumps(value).encode()) for key, value in events]
    whole, cut = ArrowRun(ods_dwd, "log"), ArrowRun(ods_dwd, "log")
    expected = whole.run(record_batch("log", records))
    chunks = [record_batch("log", records[at : at + 3], at) for at in range(0, 20, 3)]
    assert cut.run(*chunks) == expected
    assert cut.task.state.snapshot() == whole.task.state.snapshot()


def test_slices_of_record_batches() -> None:
    events = [page(f"e{number}", f"m{number}") if number % 4 else ("k", {"bad": number}) for number in range(20)]
    records = [(key.encode(), json.dumps(value).encode()) for key, value in events]
    whole, cut = ArrowRun(ods_dwd, "log"), ArrowRun(ods_dwd, "log")
    batch = record_batch("log", records)
    assert cut.run(batch.slice(0, 7), batch.slice(7, 6), batch.slice(13)) == whole.run(batch)
