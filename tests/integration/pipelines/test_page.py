"""The examples of docs/pipelines.md do what the page says."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.docs import run_page
from tests.support.spark.topic_rows import put, values

from headrace.pipelines import Pipeline
from headrace.testing import EmbeddedBroker

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """The names that the code blocks of the page define."""
    found: dict[str, Any] = {}
    for program in run_page.blocks(PAGE):
        exec(compile(program, PAGE, "exec"), found)
    return found


@pytest.fixture(scope="module")
def servers(broker: EmbeddedBroker) -> str:
    broker.create_topic("orders", 1)
    orders = [{"id": f"o{number}", "city": "Graz", "amount": number * 10, "ts": 1772600767089} for number in range(20)]
    put(broker.bootstrap_servers, "orders", [(order["id"], order) for order in orders])
    put(broker.bootstrap_servers, "orders", [("o20", b'{"id": "o20", "amount": "a lot"}'), ("o0", orders[0])])
    return broker.bootstrap_servers


def test_large_orders(spark: Any, names: dict[str, Any], servers: str, tmp_path: Path) -> None:
    summary = names["run_once"](names["large_orders"], servers, str(tmp_path))
    assert summary.outputs == {"large_orders": 10, "orders": 21, "large_orders_dead_letters": 1}
    assert spark.read.parquet(f"{tmp_path}/tables/orders").where("day = '2026-03-04' and hour = 5").count() == 21
    (letter,) = values(servers, "large_orders_dead_letters")
    shown = json.loads(PAGE.read_text().partition("```json\n")[2].partition("```")[0])
    assert letter == {**shown, "timestamp": letter["timestamp"]}


def test_orders_per_hour(spark: Any, names: dict[str, Any], servers: str, tmp_path: Path) -> None:
    names["run_once"](names["orders_per_hour"], servers, str(tmp_path))
    (graz,) = [value for value in values(servers, "orders_per_hour") if value.get("city") == "Graz"]
    assert graz["orders"] == 21


def test_orders_by_city(spark: Any, names: dict[str, Any], servers: str, tmp_path: Path) -> None:
    assert isinstance(names["cities"], Pipeline)
    summary = names["run_once"](names["cities"], servers, str(tmp_path))
    assert summary.outputs == {"other topics": 20, "orders_by_city_dead_letters": 1}
    assert len(values(servers, "orders_graz")) == 20, "the duplicate order is written once"


def test_clean_orders(spark: Any, names: dict[str, Any], servers: str, tmp_path: Path) -> None:
    summary = names["run_once"](names["clean_orders"], servers, str(tmp_path))
    assert summary.outputs == {"clean_orders": 21, "clean": 21, "clean_orders_dead_letters": 1}
    assert spark.read.parquet(f"{tmp_path}/tables/clean").where("day = '2026-03-04' and hour = 5").count() == 21
    (letter,) = values(servers, "clean_orders_dead_letters")
    assert (letter["reason"], letter["offset"]) == ("JSON that does not fit the schema: amount is not double", 20)


def test_seen_is_a_state(names: dict[str, Any]) -> None:
    seen, copy = names["Seen"](), names["Seen"]()
    assert [seen.is_new(key) for key in (b"a", b"b", b"a")] == [True, True, False]
    copy.apply_delta(seen.take_delta())
    assert (copy.keys, seen.take_delta()) == (seen.keys, b"")
    restored = names["Seen"]()
    restored.restore(seen.snapshot())
    restored.merge(copy)
    assert restored.keys == {b"a", b"b"}
