"""Records as parsed rows and dead letters. tests/integration/pipelines compares them with `parse_json`."""

import pyarrow as pa
import pytest

from headrace.pipelines import PipelineError, parse_records

SCHEMA = "id STRING, amount DOUBLE, at TIMESTAMP, common STRUCT<mid: STRING>"


def records(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch(
        {"value": pa.array(values, pa.binary()), "offset": pa.array(range(100, 100 + len(values)), pa.int64())}
    )


def test_every_record_is_a_row_or_bad() -> None:
    source = records(
        b'{"id":"a","amount":1.5}', None, b"oops", b'{"id":"b","amount":"x"}', b'{"amount":2}', b'{"id":"c"}', b"\xff"
    )
    parsed = parse_records(source, SCHEMA, required=["id"])
    assert parsed.rows.schema.names == ["id", "amount", "at", "common"]
    assert parsed.rows["id"].to_pylist() == ["a", "c"]
    assert parsed.rows["amount"].to_pylist() == [1.5, None]
    assert parsed.records.schema == source.schema
    assert parsed.records["offset"].to_pylist() == [100, 105]
    assert parsed.bad.schema.names == ["value", "offset", "reason"]
    assert dict(zip(parsed.bad["offset"].to_pylist(), parsed.bad["reason"].to_pylist(), strict=True)) == {
        101: "no value",
        102: "not JSON",
        103: "JSON that does not fit the schema: amount is not double",
        104: "no id",
        106: "not UTF-8 text",
    }


def test_slices_and_records_without_bad_ones() -> None:
    source = records(b"oops", b'{"id":"a"}', b'{"id":"b"}', b"oops")
    parsed = parse_records(source.slice(1, 2), SCHEMA, required=["id"])
    assert (parsed.rows["id"].to_pylist(), parsed.bad.num_rows) == (["a", "b"], 0)
    assert parsed.bad.schema.names == ["value", "offset", "reason"]
    assert parse_records(source.slice(2), SCHEMA).bad["offset"].to_pylist() == [103]
    empty = parse_records(source.slice(0, 0), SCHEMA)
    assert (empty.rows.num_rows, empty.records.num_rows, empty.bad.num_rows) == (0, 0, 0)


def test_nested_fields_may_be_required() -> None:
    source = records(b'{"common":{"mid":"m"}}', b'{"common":{}}', b"{}", b'{"common":null}')
    parsed = parse_records(source, SCHEMA, required=["common.mid"])
    assert parsed.rows["common"].to_pylist() == [{"mid": "m"}]
    assert parsed.bad["reason"].to_pylist() == ["no common.mid"] * 3


def test_an_arrow_schema() -> None:
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string()))])
    parsed = parse_records(records(b'{"id":"a","tags":["x"]}', b'{"tags":[1]}', b'{"tags":1}'), schema)
    assert parsed.rows.to_pylist() == [{"id": "a", "tags": ["x"]}, {"id": None, "tags": ["1"]}]
    assert parsed.bad["reason"].to_pylist() == ["JSON that does not fit the schema: tags is not array<string>"]


def test_errors_name_the_schema() -> None:
    for schema, required, message in (
        ("id", [], "parse_records: schema 'id': expected a type"),
        ("id BINARY", [], "type BINARY is not supported"),
        (pa.schema([("id", pa.uint8())]), [], "type uint8 is not supported"),
        ("id STRING", ["ID"], "the required field 'ID' is not in the schema"),
        ("id STRING", ["id.x"], "the required field 'id.x' is not in the schema"),
    ):
        with pytest.raises(PipelineError, match=message):
            parse_records(records(b"{}"), schema, required=required)  # type: ignore[arg-type]
