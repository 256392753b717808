"""The routes of tables to topics, and the user's routes file."""

import json
from pathlib import Path

import pytest

from headrace.pipelines import PipelineError
from headrace.pipelines.loading import load_pipeline
from headrace.pipelines.pipeline import Topic
from headrace.shop.ods_dwd import make_ods_dwd
from headrace.shop.routes import ROUTES, Route, check_columns, extend_routes, load_routes


def test_the_shop_has_four_routes() -> None:
    assert {table: route.topic for table, route in ROUTES.items()} == {
        "order_info": "dwd_order",
        "payment_info": "dwd_payment",
        "refund_info": "dwd_refund",
        "cart_info": "dwd_cart",
    }


def test_file_adds_changes_and_removes_routes(tmp_path: Path) -> None:
    file = tmp_path / "routes.json"
    given = {"coupon_use": {"topic": "dwd_coupon", "columns": "id BIGINT"}, "log": {"topic": "raw"}, "cart_info": None}
    file.write_text(json.dumps(given))
    routes = load_routes(str(file))
    assert routes["coupon_use"] == Route("dwd_coupon", "id BIGINT")
    assert routes["log"] == Route("raw", None)
    assert "cart_info" not in routes
    assert routes["order_info"] == ROUTES["order_info"]
    assert "cart_info" in ROUTES


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "expected an object of routes by table, not list"),
        ({"": {"topic": "a"}}, "'' is not a valid table name"),
        ({"t": "dwd_t"}, 'table t: expected {"topic": ..., "columns": ...} or null, not "dwd_t"'),
        ({"t": {"topic": "a", "keys": 1}}, "table t: expected"),
        ({"t": {}}, "topic None is not a valid topic name"),
        ({"t": {"topic": "a b"}}, "topic 'a b' is not a valid topic name"),
        ({"t": {"topic": "dwd_page"}}, "topic dwd_page already has other rows"),
        ({"t": {"topic": "ods_db"}}, "topic ods_db already has other rows"),
        ({"t": {"topic": "a", "columns": " "}}, "expected a SQL schema"),
        ({"t": {"topic": "a", "columns": ["id"]}}, "expected a SQL schema"),
    ],
)
def test_rejects_invalid_routes(given: object, message: str) -> None:
    with pytest.raises(PipelineError) as raised:
        extend_routes(ROUTES, given, where="routes mine.json")
    assert message in str(raised.value)
    assert "routes mine.json" in str(raised.value)


def test_rejects_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"none\.json: No such file"):
        load_routes(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(PipelineError, match=r"bad\.json: not JSON"):
        load_routes(str(tmp_path / "bad.json"))


def test_rejects_reserved_column_names() -> None:
    check_columns("t", ["id", "name"])
    with pytest.raises(PipelineError, match="table t: a column cannot be named 'TS'"):
        check_columns("t", ["id", "TS"])


def test_pipeline_lists_the_topics_of_its_routes() -> None:
    mine = make_ods_dwd({**ROUTES, "coupon_use": Route("dwd_coupon")}, name="my-shop")
    names = {topic.name for topic in mine.topics}
    assert {"dwd_coupon", "dwd_page", "dwd_cart", "my_shop_dead_letters"} <= names
    assert "ods_dwd_dead_letters" in {topic.name for topic in load_pipeline("ods-dwd").topics}
    assert Topic("dws_traffic", key="minute") in load_pipeline("dws-traffic").topics
