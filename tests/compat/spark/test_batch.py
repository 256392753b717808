"""Batches: reads and writes with both formats and the same options."""

import datetime
import itertools
import json
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.spark.formats import BASE_MS, BOTH, COLUMNS, HEADRACE, Formats, Sent, in_order

from headrace import TopicPartition

each_format = pytest.mark.parametrize("name", BOTH)


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000)


@each_format
def test_columns_are_named_and_typed(formats: Formats, name: str) -> None:
    topic = formats.new_topic()
    plain = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    plain += "timestampType int"
    headers = "array<struct<key: string, value: binary>>"
    frame = formats.load(name, subscribe=topic)
    assert frame.schema.simpleString() == formats.spark.createDataFrame([], plain).schema.simpleString()
    assert tuple(frame.columns) == COLUMNS
    with_headers = formats.load(name, subscribe=topic, includeHeaders=True)
    assert with_headers.schema.simpleString() == (
        formats.spark.createDataFrame([], f"{plain}, headers {headers}").schema.simpleString()
    )
    assert with_headers.collect() == []


@each_format
def test_reads_all_parts_of_a_record(formats: Formats, name: str) -> None:
    topic = formats.new_topic(2)
    headers = (("a", b"1"), ("a", b"2"), ("ü", None), ("empty", b""))
    formats.send(
        topic,
        [
            Sent(b"value", b"key", 0, BASE_MS + 1, headers),
            Sent(None, b"gone", 0, BASE_MS + 2),
            Sent(b"", b"", 1, BASE_MS + 3),
            Sent(bytes(range(256)), None, 1, BASE_MS + 4, (("b", bytes(range(256))),)),
        ],
    )
    rows = formats.load(name, subscribe=topic, includeHeaders=True).collect()
    shown = [
        (*row[:-1], row.headers and [(header.key, header.value and bytes(header.value)) for header in row.headers])
        for row in in_order_rows(rows)
    ]
    assert shown == [
        (b"key", b"value", topic, 0, 0, at(BASE_MS + 1), 0, [("a", b"1"), ("a", b"2"), ("ü", None), ("empty", b"")]),
        (b"gone", None, topic, 0, 1, at(BASE_MS + 2), 0, None),
        (b"", b"", topic, 1, 0, at(BASE_MS + 3), 0, None),
        (None, bytes(range(256)), topic, 1, 1, at(BASE_MS + 4), 0, [("b", bytes(range(256)))]),
    ]


def in_order_rows(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


@each_format
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(formats: Formats, name: str, codec: str) -> None:
    topic = formats.new_topic()
    formats.send(topic, [Sent(b"%d" % number * 20) for number in range(50)], compression_type=codec, linger_ms=50)
    assert [row[1] for row in formats.rows(name, subscribe=topic)] == [b"%d" % number * 20 for number in range(50)]


@each_format
def test_log_append_time(formats: Formats, name: str) -> None:
    topic = formats.new_topic(message_timestamp_type="LogAppendTime")
    formats.send_numbers(topic, range(3))
    rows = formats.rows(name, subscribe=topic)
    assert [row[-1] for row in rows] == [1, 1, 1]
    assert all(row[-2] > at(BASE_MS + 1_000_000) for row in rows)


@each_format
def test_subscribe_pattern_and_assign(formats: Formats, name: str) -> None:
    prefix = f"match-{name}"
    one, two = formats.new_topic(2, prefix=f"{prefix}-x"), formats.new_topic(1, prefix=f"{prefix}-x")
    other = formats.new_topic(1, prefix=f"{prefix}-y")
    formats.send_numbers(one, range(6), 2)
    formats.send_numbers(two, range(10, 13))
    formats.send_numbers(other, range(20, 22))
    listed = formats.rows(name, subscribe=f"{one}, {other}")
    assert {row[2] for row in listed} == {one, other}
    assert len(listed) == 8
    assert formats.numbers(name, subscribePattern=f"{prefix}-x.*") == [0, 1, 2, 3, 4, 5, 10, 11, 12]
    assert formats.numbers(name, assign=json.dumps({one: [1], two: [0]})) == [1, 3, 5, 10, 11, 12]
    assert formats.numbers(name, subscribePattern=f"{prefix}-z.*") == []


@each_format
def test_starting_and_ending_offsets(formats: Formats, name: str) -> None:
    """Numbers 0 to 19, one second apart; even numbers in partition 0, odd numbers in partition 1."""
    topic = formats.new_topic(2)
    formats.send_numbers(topic, range(20), 2)

    def offsets(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    def found(**options: object) -> list[int]:
        return formats.numbers(name, subscribe=topic, **options)

    assert found(startingOffsets="earliest", endingOffsets="latest") == list(range(20))
    assert found(startingOffsets=offsets(2, -2), endingOffsets=offsets(4, 1)) == [1, 4, 6]
    assert found(startingOffsets=offsets(8, 9), endingOffsets=offsets(-1, -1)) == [16, 18, 19]
    assert found(startingOffsets=offsets(4, 4), endingOffsets=offsets(4, 4)) == []
    assert found(startingTimestamp=BASE_MS + 17_000) == [17, 18, 19]
    assert found(endingTimestamp=BASE_MS + 2_500) == [0, 1, 2]
    by_time = offsets(BASE_MS + 16_500, BASE_MS + 18_500)
    assert found(startingOffsetsByTimestamp=by_time) == [18, 19]
    assert found(endingOffsetsByTimestamp=offsets(BASE_MS + 1_000, BASE_MS + 4_000)) == [0, 1, 3]
    # Precedence: one timestamp for all, timestamps per partition, offsets.
    assert found(startingTimestamp=BASE_MS + 17_000, startingOffsetsByTimestamp=by_time) == [17, 18, 19]
    assert found(startingOffsetsByTimestamp=by_time, startingOffsets="earliest") == [18, 19]
    # After the last record: as an end it means everything; as a start it is an error by default.
    assert found(endingTimestamp=BASE_MS + 99_000) == list(range(20))
    late = {"startingTimestamp": BASE_MS + 99_000}
    assert found(**late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(Exception, match=topic):
        found(**late)
    with pytest.raises(Exception, match=topic):
        found(**late, startingOffsetsByTimestampStrategy="error")


@each_format
def test_min_partitions_splits_ranges(formats: Formats, name: str) -> None:
    topic = formats.new_topic(2)
    formats.send(topic, [Sent(b"%d" % number, partition=int(number >= 30)) for number in range(40)])

    def tasks(**options: object) -> list[list[int]]:
        frame = formats.load(name, subscribe=topic, **options)
        parts = frame.selectExpr("spark_partition_id() as task", "int(string(value)) as number").collect()
        found: dict[int, list[int]] = {}
        for row in parts:
            found.setdefault(row.task, []).append(row.number)
        assert sorted(row.number for row in parts) == list(range(40))
        return sorted(found.values(), key=len, reverse=True)

    assert [len(each) for each in tasks()] == [30, 10]
    assert [len(each) for each in tasks(minPartitions=4)] == [10, 10, 10, 10]
    assert len(tasks(minPartitions=1)) == 2
    if name == HEADRACE:  # Spark's connector applies it to batches only together with minPartitions
        assert [len(each) for each in tasks(maxRecordsPerPartition=7)] == [6, 6, 6, 6, 6, 5, 5]
    assert all(len(each) <= 7 for each in tasks(maxRecordsPerPartition=7, minPartitions=3))


@each_format
def test_deleted_records(formats: Formats, name: str) -> None:
    topic = formats.new_topic()
    formats.send_numbers(topic, range(10))
    formats.admin.delete_records({TopicPartition(topic, 0): 6})
    assert formats.numbers(name, subscribe=topic) == [6, 7, 8, 9]
    gone = json.dumps({topic: {"0": 2}})
    assert formats.numbers(name, subscribe=topic, startingOffsets=gone, failOnDataLoss=False) == [6, 7, 8, 9]
    with pytest.raises(Exception, match="failOnDataLoss"):
        formats.numbers(name, subscribe=topic, startingOffsets=gone)


@each_format
def test_compacted_topic_has_gaps(formats: Formats, name: str) -> None:
    topic = formats.new_topic(
        cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=100
    )
    formats.send(topic, [Sent(b"%d" % number, b"k%d" % (number % 3)) for number in range(30)])
    pushed = itertools.count(1)

    def cleaned() -> bool:
        # A later record rolls the segment, so that it can be compacted.
        formats.send(topic, [Sent(b"", b"push", 0, BASE_MS + 1000 * next(pushed))])
        return len(formats.values(topic)) < 20

    eventually(cleaned, "the log is compacted", 60)
    kept = [row[1] for row in formats.rows(name, subscribe=topic) if row[0] != b"push"]
    assert kept == [b"27", b"28", b"29"]


@each_format
def test_transactions(formats: Formats, name: str) -> None:
    topic = formats.new_topic(2)
    in_transactions(formats, topic)
    assert formats.numbers(name, subscribe=topic) == [1, 2, 3, 4, 5, 6]
    committed = formats.numbers(name, subscribe=topic, kafka__isolation__level="read_committed")
    assert committed == [1, 2, 5, 6]
    assert (
        formats.numbers(name, subscribe=topic, kafka__isolation__level="read_committed", minPartitions=6) == committed
    )
    start = json.dumps({topic: {"0": 1, "1": 1}})  # at the marker of the first transaction
    assert formats.numbers(name, subscribe=topic, kafka__isolation__level="read_committed", startingOffsets=start) == [
        5,
        6,
    ]


def in_transactions(formats: Formats, topic: str) -> None:
    """1 and 2 are committed, 3 and 4 are aborted, 5 and 6 are committed; odd in partition 0, even in 1."""
    from headrace import Producer

    with Producer(bootstrap_servers=formats.bootstrap, transactional_id=f"{topic}-writer") as producer:
        producer.init_transactions()
        for first, commit in ((1, True), (3, False), (5, True)):
            producer.begin_transaction()
            futures = [producer.send(topic, b"%d" % (first + partition), partition=partition) for partition in (0, 1)]
            for future in futures:
                future.get(timeout_ms=30_000)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


def test_both_read_the_same_rows(formats: Formats) -> None:
    topic = formats.new_topic(3)
    formats.send(
        topic,
        [
            Sent(b"v%d" % number, None if number % 7 == 0 else b"k%d" % (number % 5), number % 3, BASE_MS + number)
            for number in range(500)
        ],
        linger_ms=20,
        batch_size=2000,
    )
    theirs, ours = (in_order(formats.load(name, subscribe=topic).collect()) for name in BOTH)
    assert ours == theirs
    assert len(ours) == 500


# ---- writing

ROWS = [("k1", "v1"), (None, "v2"), ("k3", None), ("", "")]


@each_format
def test_writes_rows(formats: Formats, name: str) -> None:
    topic = formats.new_topic(3)
    formats.write(name, formats.frame(ROWS, "key string, value string"), topic=topic)
    stored = [record for records in formats.stored(topic).values() for record in records]
    assert sorted((record.key or b"", record.value or b"") for record in stored) == [
        (b"", b""), (b"", b"v2"), (b"k1", b"v1"), (b"k3", b""),
    ]  # fmt: skip
    assert {record.key: record.value for record in stored if record.key} == {b"k1": b"v1", b"k3": None}
    assert {record.key for record in stored} == {b"", b"k1", b"k3", None}


@each_format
def test_partitions_by_key_like_every_client(formats: Formats, name: str) -> None:
    topic = formats.new_topic(5)
    formats.write(name, formats.spark.range(50).selectExpr("string(id) key", "string(id) value"), topic=topic)
    placed = {record.value: partition for partition, records in formats.stored(topic).items() for record in records}
    from headrace import Producer

    with Producer(bootstrap_servers=formats.bootstrap) as producer:
        futures = [producer.send(topic, b"again", key=b"%d" % number) for number in range(50)]
        assert [future.get(timeout_ms=30_000).partition for future in futures] == [
            placed[b"%d" % number] for number in range(50)
        ]


@each_format
def test_sink_columns(formats: Formats, name: str) -> None:
    one, two = formats.new_topic(3), formats.new_topic(3)
    rows = [
        (b"k", b"v1", one, 2, [("h", b"1"), ("h", None)]),
        (b"k", b"v2", two, 0, []),
        (b"k", b"v3", one, 1, None),
    ]
    schema = "key binary, value binary, topic string, partition int, headers array<struct<key: string, value: binary>>"
    frame = formats.frame(rows, schema)
    formats.write(name, frame)
    assert {
        (topic, partition, record.value, record.headers)
        for topic in (one, two)
        for partition, records in formats.stored(topic).items()
        for record in records
    } == {
        (one, 2, b"v1", (("h", b"1"), ("h", None))),
        (two, 0, b"v2", ()),
        (one, 1, b"v3", ()),
    }
    third = formats.new_topic(3)
    formats.write(name, frame, topic=third)  # the option overrides the column
    assert sorted(formats.values(third)) == [b"v1", b"v2", b"v3"]
    assert len(formats.values(one)) == 2


@each_format
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_writes_compressed_batches(formats: Formats, name: str, codec: str) -> None:
    topic = formats.new_topic()
    formats.write(
        name, formats.spark.range(200).selectExpr("string(id) value"), topic=topic, kafka__compression__type=codec
    )
    assert sorted(map(int, formats.values(topic))) == list(range(200))


@each_format
@pytest.mark.parametrize("other", BOTH)
def test_formats_read_each_others_records(formats: Formats, name: str, other: str) -> None:
    topic = formats.new_topic(2)
    frame = formats.spark.range(300).selectExpr(
        "string(id % 10) key",
        "string(id) value",
        "array(struct('id' as key, binary(string(id)) as value)) headers",
    )
    formats.write(name, frame, topic=topic, includeHeaders=True)
    read = formats.load(other, subscribe=topic, includeHeaders=True).collect()
    assert sorted(int(row.value) for row in read) == list(range(300))
    assert all(bytes(row.headers[0].value) == bytes(row.value) for row in read)
    assert all(int(row.key) == int(row.value) % 10 for row in read)
