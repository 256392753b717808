"""`ods-dwd` against its SQL version, row for row and byte for byte: generated, strange and randomly damaged events."""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.seeds import choose_seed
from tests.support.shop.arrow_run import ArrowRun, Record, record_batch
from tests.support.shop.hostile_events import (
    STRANGE_RECORDS,
    STRANGE_VALUES,
    mutated,
    random_object,
    with_strange_values,
)
from tests.support.shop.sql_run import SqlRun

from headrace.pipelines.sql_schema import parse_sql_schema
from headrace.shop.datagen.stream import EventStream, StreamSettings
from headrace.shop.datagen.visits import DB, LOG
from headrace.shop.log import event_schema
from headrace.shop.ods_dwd import make_ods_dwd
from headrace.shop.routes import ROUTES, Route

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TS = 1_767_225_600_000
LOG_EVENT = json.dumps(
    {
        "event_id": "e1",
        "ts": TS,
        "common": {name: name for name in ("mid", "uid", "sid", "vc", "ch", "os", "ar", "md", "ba")} | {"is_new": "1"},
        "start": {"entry": " icon ", "loading_time": 3, "open_ad_id": 4, "open_ad_ms": -1, "open_ad_skip_ms": 0},
        "page": {"page_id": "home", "last_page_id": None, "during_time": 5, "item": "1", "item_type": "t"},
        "displays": [{"display_type": "q", "item": "1", "item_type": "t", "order": 1, "pos_id": 2}, {"order": 7}],
        "actions": [{"action_id": "cart_add", "item": "3", "item_type": "sku", "ts": TS + 9}],
        "err": {"error_code": 500, "msg": "bad"},
        "other": {"x": [1, 2.5]},
    }
).encode()
ORDER = {
    "id": 1,
    "user_id": 7,
    "mid": "m1",
    "total_amount": 12.5,
    "sku_count": 2,
    "area": "DE",
    "order_status": "created",
    "create_time": "2026-01-01 00:00:01",
    "operate_time": "2026-01-01 00:00:01.25",
    "more": {"a": [1]},
}
OLD = {"order_status": "new", "total_amount": 7.25}
TYPES = (
    "id BIGINT, i INT COMMENT 'x', s SMALLINT, t TINYINT NOT NULL, d DOUBLE, b BOOLEAN, day DATE, at TIMESTAMP, "
    "n DECIMAL(20,8), w DECIMAL(5), arr ARRAY<BIGINT>, m MAP<STRING,INT>, st STRUCT<a: INT, `b c`: STRING>, "
    "l ARRAY<STRUCT<x: INT>>, `price.net` DOUBLE, str STRING"
)
TYPED: dict[str, Any] = {
    "id": 1,
    "i": 2,
    "s": 3,
    "t": 4,
    "d": 1.5,
    "b": True,
    "day": "2026-01-01",
    "at": "2026-01-01 10:00:00.123456",
    "n": 1.5,
    "w": 7,
    "arr": [1, 2],
    "m": {"a": 1},
    "st": {"a": 1, "b c": "x"},
    "l": [{"x": 1}, {"x": 2}],
    "price.net": 2.5,
    "str": "z",
}
TYPED_VALUES = (
    *('"2026-1-1"', '"2026"', '"2026-13-01"', '" 2026-01-02 "', '"2026-01-02T5"', '"20260102"', '"+12026-01-01"'),
    *('"-0044-03-15"', '"NaN"', '"Infinity"', '"-INF"', '"INF"', '"inf"', "200", "-129", "128", "255", "256", "32768"),
    *("123456.7891234567", "0.00000001", "-0.00000001", "12345678901.12345678", "99999", "99999.5", "99999.4", "1e-7"),
    *('{"a":{"b":2}}', '{"a":"x"}', '[1,"x",{"id":9}]', "[1,null]", '{"a":null}', '{"b c":5}', '{"net":1}'),
    *('[{"x":"q"},{"x":3}]', '[{"x":1},4,{"x":2}]', '{"a":"q","b c":"z"}'),
)


def change(data: Mapping[str, Any], table: str = "order_info") -> bytes:
    event = {"event_id": "e1", "database": "shop", "table": table, "type": "update", "ts": TS, "xid": 5}
    return json.dumps({**event, "data": data, "old": OLD}).encode()


def numbered(values: Iterable[bytes | None]) -> list[Record]:
    """Returns records whose events have different ids."""
    return [
        (b"k", value if value is None else value.replace(b'"e1"', b'"e%d"' % number, 1))
        for number, value in enumerate(values)
    ]


@pytest.fixture
def compare(spark: Any, tmp_path: Path) -> Any:
    def compare(source: str, records: list[Record], routes: Mapping[str, Route] = ROUTES, batches: int = 1) -> int:
        """Compares both versions. Returns the number of dead letters."""
        sql = SqlRun(spark, tmp_path / str(random.random()), source, routes)
        arrow = ArrowRun(make_ods_dwd(routes), source)
        letters = 0
        size = -(-len(records) // batches)
        for begin in range(0, len(records), size):
            part = records[begin : begin + size]
            expected = sql.run(record_batch(source, part, begin))
            middle = len(part) // 3
            found = arrow.run(
                record_batch(source, part[:middle], begin), record_batch(source, part[middle:], begin + middle)
            )
            assert found.dead_letters == expected.dead_letters
            assert sorted(found.rows) == sorted(expected.rows)
            for topic, rows in expected.rows.items():
                assert found.rows[topic] == rows
            assert found.figures == expected.figures
            letters += len(found.dead_letters)
        return letters

    return compare


def test_generated_events(compare: Any) -> None:
    stream = EventStream(StreamSettings(events=6000, rate=100.0, broken=0.1, duplicates=0.1, devices=200), TS)
    block = stream.take(6000)
    for source, number in (("log", LOG), ("db", DB)):
        values = [value.encode() if isinstance(value, str) else value for value in block.values[number]]
        keys = [key.encode() for key in block.keys[number]]
        assert compare(source, list(zip(keys, values, strict=True)), batches=3) > 50


def test_strange_values_in_every_field(compare: Any) -> None:
    assert compare("log", numbered([*STRANGE_RECORDS, *with_strange_values(LOG_EVENT)])) > 1000
    assert compare("db", numbered([*STRANGE_RECORDS, *with_strange_values(change(ORDER))])) > 1000


def test_rows_that_are_written_as_received(compare: Any) -> None:
    routes = {**ROUTES, "order_info": Route("dwd_order")}
    assert compare("db", numbered(with_strange_values(change(ORDER))), routes) > 500


def test_all_types_of_columns(compare: Any) -> None:
    flat = "id BIGINT, i INT, s SMALLINT, t TINYINT, b BOOLEAN, at TIMESTAMP, n DECIMAL(18,6), w DECIMAL(5), str STRING"
    routes = {**ROUTES, "typed": Route("dwd_typed", TYPES), "flat": Route("dwd_typed", flat)}
    values = (*STRANGE_VALUES, *TYPED_VALUES)
    assert compare("db", numbered(with_strange_values(change(TYPED, "typed"), values)), routes) > 1000
    flat_rows = (row.replace(b'"typed"', b'"flat"') for row in with_strange_values(change(TYPED, "typed"), values))
    assert compare("db", numbered(flat_rows), routes) > 500


def test_randomly_damaged_events(compare: Any) -> None:
    rng = random.Random(choose_seed())
    for source, event in (("log", LOG_EVENT), ("db", change(ORDER))):
        assert compare(source, numbered(mutated(event, rng) for _ in range(3000))) > 500


def test_random_events_of_the_schemas(compare: Any) -> None:
    rng = random.Random(choose_seed())
    ids = (f'{{"event_id":"e1","ts":{TS},', f'{{"event_id" : "e1","ts":{TS},"type":"insert","table":"typed","xid":1,')
    fields = [field for field in event_schema() if field.name not in ("event_id", "ts")]
    events = [ids[0] + random_object(fields, rng)[1:] for _ in range(3000)]
    assert compare("log", numbered(event.encode() for event in events)) > 100
    routes = {**ROUTES, "typed": Route("dwd_typed", TYPES), "order_info": Route("dwd_order")}
    columns = {"typed": TYPES, "payment_info": str(ROUTES["payment_info"].columns), "order_info": TYPES}
    changes = []
    for _ in range(3000):
        table = rng.choice(tuple(columns))
        data, old = (random_object(parse_sql_schema(columns[table]), rng) for _ in range(2))
        changes.append(f'{ids[1]}"data":{data},"old":{old}}}'.replace('"typed"', json.dumps(table), 1).encode())
    assert compare("db", numbered(changes), routes) > 100
