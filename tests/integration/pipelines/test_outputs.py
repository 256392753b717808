"""Output frames as records: keys, values, topics, and their order."""

import json
from typing import Any

import pytest

from headrace.pipelines import Flow, Pipeline, PipelineError, Topic
from headrace.pipelines.outputs import check_outputs, merge_records, records, topic_frames


def written_record(spark: Any, topic: Topic, row: tuple[Any, ...], schema: str) -> Any:
    (record,) = records("out", topic, spark.createDataFrame([row], schema)).collect()
    return record


def test_writes_value_column_unchanged(spark: Any) -> None:
    record = written_record(spark, Topic("t"), (b"k", b"v"), "key binary, value binary")
    assert (record.topic, bytes(record.key), bytes(record.value)) == ("t", b"k", b"v")


def test_frame_without_value_is_written_as_json(spark: Any) -> None:
    record = written_record(
        spark, Topic("t", key="city"), ("Graz", 3, None, 99, 0), "city string, n int, note string, _at long, _seq int"
    )
    assert bytes(record.key) == b"Graz"
    assert json.loads(record.value) == {"city": "Graz", "n": 3}
    assert (record._at, record._seq) == (99, 0)


def test_key_column_is_not_in_the_json(spark: Any) -> None:
    record = written_record(spark, Topic("t"), (7, "x"), "key int, a string")
    assert (bytes(record.key), json.loads(record.value)) == (b"7", {"a": "x"})


def test_converts_values_of_other_types_to_text(spark: Any) -> None:
    assert bytes(written_record(spark, Topic("t"), ((1, 2),), "value struct<a: int, b: int>").value) == b'{"a":1,"b":2}'
    assert bytes(written_record(spark, Topic("t"), (1.5,), "value double").value) == b"1.5"
    assert written_record(spark, Topic("t"), (None,), "value string").value is None


def test_routes_rows_by_topic_column(spark: Any) -> None:
    record = written_record(spark, Topic(None), ("there", "v"), "topic string, value string")
    assert (record.topic, record.key) == ("there", None)
    record = written_record(spark, Topic("here"), ("there", "v"), "topic string, value string")
    assert record.topic == "here", "a frame may still have the column of its source"
    with pytest.raises(PipelineError, match="routes by the column 'topic'"):
        written_record(spark, Topic(None), ("v",), "value string")


def test_keeps_headers(spark: Any) -> None:
    schema = "value string, headers array<struct<key: string, value: binary>>"
    record = written_record(spark, Topic("t"), ("v", [("h", b"1")]), schema)
    assert [(header.key, bytes(header.value)) for header in record.headers] == [("h", b"1")]


def test_rejects_missing_key_column(spark: Any) -> None:
    with pytest.raises(PipelineError, match="the key column 'mid' is not in the frame"):
        written_record(spark, Topic("t", key="mid"), ("v",), "value string")


def shop(outputs: dict[str, Any]) -> Pipeline:
    return Pipeline.of("shop", [Flow("f", {"s": Topic("s")}, split=lambda *_: {})], outputs)


def test_rejects_unknown_outputs_and_non_frames(spark: Any) -> None:
    frame = spark.range(1)
    with pytest.raises(PipelineError, match="returned an unknown output 'other'; expected one of: paid, dead_letters"):
        check_outputs(shop({"paid": "paid"}), {"other": frame})
    with pytest.raises(PipelineError, match="'paid': expected a data frame, not str"):
        check_outputs(shop({"paid": "paid"}), {"paid": "frame"})  # type: ignore[dict-item]
    with pytest.raises(PipelineError, match="missing: reason, key, value"):
        check_outputs(shop({"paid": "paid"}), {"dead_letters": frame})


def test_keeps_order_per_key(spark: Any) -> None:
    many = [(f"k{number % 7}", number, number // 7 * 10, number % 3) for number in range(700)]
    frame = spark.createDataFrame(many, "key string, value int, _at long, _seq int").orderBy("value", ascending=False)
    pipeline = shop({"one": "one", "two": "two"})
    frames = topic_frames(pipeline, {"one": frame, "two": frame.where("value < 350")})
    rows = merge_records(frames, 3, ordered=True)
    assert rows.columns == ["topic", "key", "value"]
    assert rows.rdd.getNumPartitions() == 3
    place = {str(row[1]): (row[2], row[3]) for row in many}
    by_key: dict[Any, list[Any]] = {}
    where: dict[bytes, set[int]] = {}
    for task, part in enumerate(rows.rdd.glom().collect()):
        for row in part:
            by_key.setdefault((row.topic, bytes(row.key)), []).append(place[row.value.decode()])
            where.setdefault(bytes(row.key), set()).add(task)
    assert sum(map(len, by_key.values())) == 1050
    assert all(places == sorted(places) for places in by_key.values())
    assert all(len(tasks) == 1 for tasks in where.values())


def test_spreads_rows_without_key(spark: Any) -> None:
    frame = spark.range(200).selectExpr("cast(null as string) key", "cast(id as string) value", "id _at")
    rows = merge_records(topic_frames(shop({"one": "one"}), {"one": frame}), 2, ordered=True)
    sizes = [len(part) for part in rows.rdd.glom().collect()]
    assert sum(sizes) == 200
    assert min(sizes) > 20
