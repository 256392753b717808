"""`spark.read.format("headrace")` with a real Spark and a real broker."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F  # noqa: N812
from tests.support.spark.session import settings

import headrace
from headrace.common.types import TopicPartition
from headrace.testing import EmbeddedBroker

T0 = int(time.time() - 3600) * 1000
"""An hour ago: retention would delete records that are older than a week."""


def reader(spark: Any, broker: EmbeddedBroker, **options: object) -> Any:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    return spark.read.format("headrace").options(**{name: str(value) for name, value in given.items()})


def send(broker: EmbeddedBroker, topic: str, counts: dict[int, int], **extra: Any) -> None:
    """Writes this many records to each partition, one second apart."""
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition, count in counts.items():
            for number in range(count):
                value = b"%d-%d" % (partition, number)
                producer.send(topic, value, key=b"k", partition=partition, timestamp_ms=T0 + 1000 * number, **extra)


def values(frame: Any) -> list[str]:
    return sorted(row[0] for row in frame.select(F.col("value").cast("string")).collect())


def expected(*parts: tuple[int, int, int]) -> list[str]:
    return sorted(f"{partition}-{number}" for partition, start, end in parts for number in range(start, end))


@pytest.mark.headrace_topic(partitions=2)
def test_all_columns(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    with headrace.Producer(bootstrap_servers=headrace_broker.bootstrap_servers) as producer:
        producer.send(
            headrace_topic, b"one", key=b"k", partition=1, timestamp_ms=T0 + 7, headers=[("h", b"1"), ("h", None)]
        )
        producer.send(headrace_topic, None, partition=1, timestamp_ms=T0 + 8)
    plain = reader(spark, headrace_broker, subscribe=headrace_topic).load()
    assert plain.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    frame = reader(spark, headrace_broker, subscribe=headrace_topic, includeHeaders=True).load()
    assert frame.dtypes == [*plain.dtypes, ("headers", "array<struct<key:string,value:binary>>")]
    rows = frame.withColumn("timestamp", F.unix_millis("timestamp")).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (bytearray(b"k"), bytearray(b"one"), headrace_topic, 1, 0, T0 + 7, 0, [("h", bytearray(b"1")), ("h", None)]),
        (None, None, headrace_topic, 1, 1, T0 + 8, 0, None),
    ]


@pytest.mark.headrace_topic(partitions=2)
def test_selected_columns(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    send(headrace_broker, headrace_topic, {0: 3, 1: 2}, headers=[("h", b"1")])
    pruned = reader(spark, headrace_broker, subscribe=headrace_topic).schema("offset long, VALUE binary").load()
    assert pruned.columns == ["offset", "VALUE"]
    assert sorted(row.offset for row in pruned.collect()) == [0, 0, 1, 1, 2]
    with_headers = reader(spark, headrace_broker, subscribe=headrace_topic).schema(
        "headers array<struct<key:string,value:binary>>"
    )
    assert {row.headers[0].key for row in with_headers.load().collect()} == {"h"}
    with pytest.raises(Exception, match="unknown column 'colour'"):
        reader(spark, headrace_broker, subscribe=headrace_topic).schema("colour string").load().collect()
    with pytest.raises(Exception, match="column 'value' of the schema has type string: expected binary"):
        reader(spark, headrace_broker, subscribe=headrace_topic).schema("value string").load().collect()


@pytest.mark.headrace_topic(partitions=3)
def test_starting_and_ending_offsets(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    send(headrace_broker, headrace_topic, {0: 10, 1: 5})

    def read(**options: object) -> list[str]:
        return values(reader(spark, headrace_broker, subscribe=headrace_topic, **options).load())

    def named(*numbers: int) -> str:
        return f'{{"{headrace_topic}": {{"0": {numbers[0]}, "1": {numbers[1]}, "2": {numbers[2]}}}}}'

    assert read() == expected((0, 0, 10), (1, 0, 5))
    assert read(startingOffsets=named(3, -2, 0), endingOffsets=named(7, -1, -1)) == expected((0, 3, 7), (1, 0, 5))
    assert read(startingOffsets=named(8, 5, 0), endingOffsets=named(4, 5, 0)) == []
    late = {"startingTimestamp": T0 + 4000, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(**late) == expected((0, 4, 10), (1, 4, 5))
    assert read(**late, endingTimestamp=T0 + 6000) == expected((0, 4, 6), (1, 4, 5))
    times = {"endingOffsetsByTimestamp": named(T0 + 2000, T0 + 1000, T0)}
    assert read(**times) == expected((0, 0, 2), (1, 0, 1))
    assert read(startingOffsets="earliest", endingOffsets="latest") == read()
    with pytest.raises(AnalysisException, match=r".*-1, .*-2 has no record at or after the starting timestamp"):
        read(startingTimestamp=T0 + 7000)
    with pytest.raises(AnalysisException, match="must name exactly the partitions"):
        read(startingOffsets=f'{{"{headrace_topic}": {{"0": 1}}}}')


@pytest.mark.headrace_topic(partitions=2)
def test_subscriptions(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    other = headrace_topic + "-other"
    headrace_broker.create_topic(other, 1)
    send(headrace_broker, headrace_topic, {0: 2, 1: 3})
    send(headrace_broker, other, {0: 4})
    both = reader(spark, headrace_broker, subscribe=f"{headrace_topic}, {other}").load()
    assert {row.topic: row["count"] for row in both.groupBy("topic").count().collect()} == {headrace_topic: 5, other: 4}
    matching = reader(spark, headrace_broker, subscribePattern=f"{headrace_topic}(-.*)?").load()
    assert values(matching) == values(both)
    assert values(reader(spark, headrace_broker, subscribePattern="nothing-.*").load()) == []
    assigned = reader(spark, headrace_broker, assign=f'{{"{headrace_topic}": [1], "{other}": [0]}}').load()
    assert values(assigned) == sorted(expected((1, 0, 3)) + expected((0, 0, 4)))
    headrace_broker.delete_topic(other)


@pytest.mark.headrace_topic(partitions=2)
def test_number_of_tasks(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    send(headrace_broker, headrace_topic, {0: 90, 1: 10})

    def tasks(**options: object) -> int:
        frame = reader(spark, headrace_broker, subscribe=headrace_topic, **options).load()
        assert frame.select("partition", "offset").distinct().count() == 100
        return int(frame.rdd.getNumPartitions())

    assert tasks() == 2
    assert tasks(minPartitions=5) == 5
    assert tasks(minPartitions=1) == 2
    assert tasks(maxRecordsPerPartition=20) == 6
    assert tasks(maxRecordsPerPartition=1000, minPartitions=3) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka.bootstrap.servers": "", "subscribe": "x"}, "'kafka.bootstrap.servers' is missing"),
        ({}, "no topic to read"),
        ({"subscribe": "x", "kafka.auto.offset.reset": "latest"}, "set the option 'startingOffsets'"),
        ({"subscribe": "x", "minPartitions": "0"}, "'minPartitions' is '0'"),
        ({"subscribe": "x", "failOnDataLoss": "perhaps"}, "expected 'true' or 'false'"),
    ],
)
def test_invalid_options_fail_in_load(
    spark: Any, headrace_broker: EmbeddedBroker, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        reader(spark, headrace_broker, **options).load()


def test_rejects_options_that_are_invalid_in_a_batch(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str
) -> None:
    frame = reader(spark, headrace_broker, subscribe=headrace_topic, startingOffsets="latest").load()
    with pytest.raises(AnalysisException, match="'startingOffsets' cannot be 'latest' in a batch read"):
        frame.collect()
    with pytest.raises(AnalysisException, match="topic nowhere does not exist"):
        reader(spark, headrace_broker, subscribe="nowhere").load().collect()


def test_filters_reduce_the_offsets_read(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    send(headrace_broker, headrace_topic, {0: 12})
    after = datetime.fromtimestamp((T0 + 8000) / 1000, UTC)
    offsets = "offset >= 3 and offset < 7 and partition = 0 and topic is not null"
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": "true"}):
        for condition, rows in ((offsets, (0, 3, 7)), (F.col("timestamp") >= F.lit(after), (0, 8, 12))):
            options = {"subscribe": headrace_topic, "maxRecordsPerPartition": 2, "pushFilters": True}
            frame = reader(spark, headrace_broker, **options).load().where(condition)
            assert values(frame) == expected(rows)
            assert frame.rdd.getNumPartitions() == 2


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_frame_may_be_used_with_different_filters(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, enabled: str
) -> None:
    send(headrace_broker, headrace_topic, {0: 12})
    with settings(spark, {"spark.sql.python.filterPushdown.enabled": enabled}):
        frame = reader(spark, headrace_broker, subscribe=headrace_topic).load()
        assert values(frame.where("offset < 3").union(frame.where("offset >= 10"))) == expected((0, 0, 3), (0, 10, 12))
        assert values(frame.where("partition = 7")) == []
        assert values(frame) == expected((0, 0, 12))


def test_reads_only_committed_records(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    with headrace.Producer(
        bootstrap_servers=headrace_broker.bootstrap_servers, transactional_id=headrace_topic
    ) as producer:
        producer.init_transactions()
        for name, is_good in ((b"good", True), (b"bad", False)):
            producer.begin_transaction()
            producer.send(headrace_topic, name).get(timeout_ms=30_000)
            if is_good:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    options = {"subscribe": headrace_topic}
    assert values(reader(spark, headrace_broker, **options).load()) == ["bad", "good"]
    committed = {**options, "kafka.isolation.level": "read_committed"}
    assert values(reader(spark, headrace_broker, **committed).load()) == ["good"]


def test_lost_records(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    send(headrace_broker, headrace_topic, {0: 10})
    with headrace.Admin(bootstrap_servers=headrace_broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(headrace_topic, 0): 4})
    start = {"subscribe": headrace_topic, "startingOffsets": f'{{"{headrace_topic}": {{"0": 1}}}}'}
    with pytest.raises(PythonException, match="now begins at offset 4; expected offsets from 1 on"):
        reader(spark, headrace_broker, **start).load().collect()
    lenient = reader(spark, headrace_broker, **start, failOnDataLoss=False).load()
    assert values(lenient) == expected((0, 4, 10))
    beyond = {"subscribe": headrace_topic, "endingOffsets": f'{{"{headrace_topic}": {{"0": 99}}}}'}
    with pytest.raises(AnalysisException, match="ends at offset 10, but 'endingOffsets' is 99"):
        reader(spark, headrace_broker, **beyond).load().collect()
    assert values(reader(spark, headrace_broker, **beyond, failOnDataLoss=False).load()) == expected((0, 4, 10))


@pytest.mark.headrace_topic(configs={"cleanup.policy": "compact"})
def test_works_in_sql_and_joins(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str) -> None:
    send(headrace_broker, headrace_topic, {0: 20})
    frame = reader(spark, headrace_broker, subscribe=headrace_topic).load()
    frame.createOrReplaceTempView("records")
    (row,) = spark.sql("select count(*) as n, max(offset) as last from records").collect()
    assert (row.n, row.last) == (20, 19)
    assert frame.alias("a").join(frame.alias("b"), "offset").count() == 20
    assert frame.limit(3).count() == 3
