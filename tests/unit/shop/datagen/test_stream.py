"""The simulated shop: exact numbers, valid events, the requested share of faults, and plausible visits."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.common.errors import HeadraceError
from headrace.common.ids import make_random
from headrace.shop import schemas
from headrace.shop.datagen.faults import BREAKS
from headrace.shop.datagen.stream import Block, EventStream, StreamSettings, Value
from headrace.shop.datagen.visits import DB, LOG, NEXT_PAGE, money

START_MS = 1_790_000_000_000
CLEAN = {"broken": 0.0, "late": 0.0, "duplicates": 0.0}


def make(events: int = 4000, size: int = 1000, **settings: Any) -> tuple[EventStream, list[Block]]:
    settings.setdefault("devices", 300)
    stream = EventStream(StreamSettings(events=events, span_ms=600_000, **settings), START_MS)
    return stream, list(stream.blocks(size))


def of_topic(blocks: list[Block], topic: int) -> Iterator[tuple[str, Value]]:
    for block in blocks:
        yield from zip(block.keys[topic], block.values[topic], strict=True)


def parsed(blocks: list[Block], topic: int) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in of_topic(blocks, topic) if value is not None]


@pytest.fixture(scope="module")
def clean() -> list[Block]:
    return make(8000, **CLEAN)[1]


def test_generates_the_requested_number_of_events() -> None:
    stream, blocks = make(2500, size=1000)
    assert [len(block) for block in blocks] == [1000, 1000, 500]
    assert stream.generated.events == stream.generated.log + stream.generated.db == 2500


def test_same_seed_and_start_give_the_same_events() -> None:
    _, one = make(size=1000)
    _, again = make(size=700)
    for topic in (LOG, DB):
        assert list(of_topic(one, topic)) == list(of_topic(again, topic))
    _, other = make(seed=2)
    assert list(of_topic(one, LOG)) != list(of_topic(other, LOG))


def test_ids_of_different_runs_differ() -> None:
    ids = [{event["event_id"] for event in parsed(make(1000, seed=seed, **CLEAN)[1], LOG)} for seed in (1, 2)]
    assert not ids[0] & ids[1]


def test_event_ids_are_unique(clean: list[Block]) -> None:
    ids = [event["event_id"] for topic in (LOG, DB) for event in parsed(clean, topic)]
    assert len(set(ids)) == len(ids) == 8000


def test_times_ascend_over_the_span(clean: list[Block]) -> None:
    for topic in (LOG, DB):
        times = [event["ts"] for event in parsed(clean, topic)]
        assert times == sorted(times)
        assert times[0] >= START_MS
        assert times[-1] < START_MS + 600_000
        assert times[-1] - times[0] > 550_000


def test_without_a_span_times_follow_the_rate() -> None:
    stream = EventStream(StreamSettings(rate=100, devices=50, **CLEAN), START_MS)
    block = stream.take(1000)
    times = sorted(event["ts"] for topic in (LOG, DB) for event in parsed([block], topic))
    assert times == [START_MS + 10 * number for number in range(1000)]


def test_app_events_have_the_format(clean: list[Block]) -> None:
    kinds = set()
    for (key, _), event in zip(of_topic(clean, LOG), parsed(clean, LOG), strict=True):
        assert key == event["common"]["mid"]
        assert {*schemas.COMMON_FIELDS, "is_new"} <= set(event["common"])
        assert event["common"]["is_new"] in ("0", "1")
        assert ("start" in event) != ("page" in event)
        kinds |= set(event)
        for action in event.get("actions", []):
            assert set(action) == {"action_id", "item", "item_type", "ts"}
        for display in event.get("displays", []):
            assert set(display) == {"display_type", "item", "item_type", "order", "pos_id"}
    assert kinds == {"event_id", "ts", "common", "start", "page", "displays", "actions", "err"}


def test_app_events_have_about_a_kilobyte(clean: list[Block]) -> None:
    sizes = [len(value) for _, value in of_topic(clean, LOG) if value is not None]
    assert 900 < sum(sizes) / len(sizes) < 1200


def test_pages_follow_pages(clean: list[Block]) -> None:
    pages = {event["common"]["sid"]: [] for event in parsed(clean, LOG)}  # type: dict[str, list[dict[str, Any]]]
    for event in parsed(clean, LOG):
        if "page" in event:
            pages[event["common"]["sid"]].append(event["page"])
    steps = 0
    for visit in pages.values():
        for before, after in itertools.pairwise(visit):
            assert after["last_page_id"] == before["page_id"]
            steps += 1
    assert steps > 1000


def test_every_page_can_be_left() -> None:
    for ways in NEXT_PAGE.values():
        assert len(ways) == 100
        assert None in ways


def test_rows_describe_carts_orders_and_payments(clean: list[Block]) -> None:
    orders: dict[int, list[dict[str, Any]]] = defaultdict(list)
    paid: dict[int, float] = {}
    tables = set()
    for (key, _), event in zip(of_topic(clean, DB), parsed(clean, DB), strict=True):
        assert key == f"{event['table']}:{event['data']['id']}"
        assert event["type"] in schemas.OPERATIONS
        assert ("old" in event) == (event["type"] == "update")
        tables.add(event["table"])
        if event["table"] == "order_info":
            orders[event["data"]["id"]].append(event)
        if event["table"] == "payment_info":
            paid[event["data"]["order_id"]] = event["data"]["payment_amount"]
    assert tables >= {"cart_info", "order_info", "payment_info"}
    complete = [history for history in orders.values() if history[0]["type"] == "insert"]
    assert len(complete) > 50
    for history in complete:
        for before, after in itertools.pairwise(history):
            assert after["old"]["order_status"] == before["data"]["order_status"]
        if "paid" in [event["data"]["order_status"] for event in history]:
            assert paid[history[0]["data"]["id"]] == history[0]["data"]["total_amount"]


def test_rows_have_the_columns_of_their_tables(clean: list[Block]) -> None:
    columns = {
        "order_info": schemas.ORDER_INFO,
        "payment_info": schemas.PAYMENT_INFO,
        "refund_info": schemas.REFUND_INFO,
        "cart_info": schemas.CART_INFO,
    }
    for event in parsed(clean, DB):
        if event["table"] in columns:
            expected = {column.split()[0] for column in columns[event["table"]].replace("16,2", "").split(",")}
            assert expected <= set(event["data"])


def test_items_are_skewed(clean: list[Block]) -> None:
    views: dict[str, int] = defaultdict(int)
    for event in parsed(clean, LOG):
        if event.get("page", {}).get("page_id") == "good_detail":
            views[event["page"]["item"]] += 1
    ranked = sorted(views.values(), reverse=True)
    assert sum(ranked[: len(ranked) // 10]) > 0.3 * sum(ranked)


def test_some_known_devices_claim_to_be_new(clean: list[Block]) -> None:
    visits: dict[str, dict[str, str]] = defaultdict(dict)
    for event in parsed(clean, LOG):
        visits[event["common"]["mid"]][event["common"]["sid"]] = event["common"]["is_new"]
    flags = [list(each.values()) for each in visits.values()]
    assert any("1" in each[1:] for each in flags), "some known devices claim to be new"
    assert sum(each.count("1") for each in flags) < sum(each.count("0") for each in flags)


def test_broken_events_match_their_share_and_have_all_kinds() -> None:
    stream, blocks = make(6000, broken=0.1, late=0.0, duplicates=0.0)
    broken = sum(stream.generated.broken.values())
    assert 450 < broken < 750
    assert set(stream.generated.broken) >= set(BREAKS[LOG])
    sound = 0
    for topic in (LOG, DB):
        for _, value in of_topic(blocks, topic):
            sound += is_sound(topic, value)
    assert sound == 6000 - broken


def is_sound(topic: int, value: Value) -> bool:
    """Returns whether an event is valid, with a slow and obvious check."""
    try:
        event = json.loads(value or "")
    except ValueError:
        return False
    if (
        not isinstance(event, dict)
        or not isinstance(event.get("event_id"), str)
        or not isinstance(event.get("ts"), int)
    ):
        return False
    if topic == DB:
        return isinstance(event.get("table"), str) and isinstance(event.get("data"), dict)
    return isinstance(event.get("common"), dict) and isinstance(event["common"].get("mid"), str)


@pytest.mark.parametrize(("topic", "kind"), [(topic, kind) for topic in BREAKS for kind in BREAKS[topic]])
def test_each_kind_of_broken_event_is_broken(topic: int, kind: str, clean: list[Block]) -> None:
    random = make_random(5)
    events = list(of_topic(clean, topic))[:50]
    assert len(events) == 50
    for _, value in events:
        assert isinstance(value, str)
        assert is_sound(topic, value)
        assert not is_sound(topic, BREAKS[topic][kind](value, random))


def test_duplicates_repeat_an_earlier_event() -> None:
    stream, blocks = make(6000, duplicates=0.1, broken=0.0, late=0.0)
    seen: set[str] = set()
    repeated = 0
    for topic in (LOG, DB):
        for _, value in of_topic(blocks, topic):
            assert isinstance(value, str)
            repeated += value in seen
            seen.add(value)
    assert repeated == stream.generated.duplicates
    assert 350 < repeated < 750
    ids = {json.loads(value)["event_id"] for value in seen}
    assert len(ids) == len(seen), "duplicates are the same bytes"


def test_late_events_have_an_earlier_time() -> None:
    stream, blocks = make(6000, late=0.1, late_by_ms=60_000, broken=0.0, duplicates=0.0)
    newest = behind = 0
    for event in parsed(blocks, LOG):
        behind += event["ts"] < newest
        assert newest - event["ts"] <= 61_000
        newest = max(newest, event["ts"])
    assert behind == pytest.approx(stream.generated.late, rel=0.05)
    assert 350 < stream.generated.late < 750
    times = [event["ts"] for event in parsed(blocks, DB)]
    assert times == sorted(times), "a database reports its changes in order"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"broken": 1.5}, "broken=1.5"),
        ({"late": -0.1}, "late=-0.1"),
        ({"broken": 0.6, "duplicates": 0.6}, "broken \\+ duplicates"),
        ({"events": 0}, "events=0"),
        ({"rate": 0}, "rate=0"),
        ({"devices": 0}, "devices=0"),
        ({"span_ms": 3_600_000}, "span"),
    ],
)
def test_rejects_invalid_settings(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(HeadraceError, match=named):
        StreamSettings(**settings)


def test_money_has_two_digits() -> None:
    assert [money(cents) for cents in (5, 199, 120_000)] == ["0.05", "1.99", "1200.00"]
