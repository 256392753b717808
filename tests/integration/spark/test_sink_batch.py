"""`df.write.format("headrace")`: columns, topics, and each row once."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.functions import col, expr, lit

import headrace
from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def read(broker: EmbeddedBroker, *topics: str, isolation: str = "read_committed") -> list[Any]:
    """Every record of the topics."""
    with headrace.Consumer(
        bootstrap_servers=broker.bootstrap_servers, isolation_level=isolation, enable_auto_commit=False
    ) as consumer:
        tps = [headrace.TopicPartition(topic, part) for topic in topics for part in consumer.partitions_for_topic(topic)]
        ends = consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning()
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(records)
    return found


def save(frame: Any, broker: EmbeddedBroker, **options: object) -> None:
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).options(**options).save()


def test_rows_become_records(spark: Any, broker: EmbeddedBroker) -> None:
    broker.create_topic("batch-rows", 2)
    frame = spark.range(0, 100, 1, 2).select(
        expr("concat('k', id)").alias("key"), expr("cast(id as string)").alias("value")
    )
    save(frame, broker, topic="batch-rows")
    records = read(broker, "batch-rows")
    assert sorted((int(each.value), each.key) for each in records) == [(n, b"k%d" % n) for n in range(100)]


def test_a_batch_with_an_id_is_written_once(spark: Any, broker: EmbeddedBroker) -> None:
    broker.create_topic("batch-once", 2)
    frame = spark.range(0, 20, 1, 2).select(expr("cast(id as string)").alias("value"))
    for batch_id in (0, 1, 1, 0, 2):
        save(frame, broker, topic="batch-once", queryId="q1", batchId=batch_id)
    assert sorted(int(each.value) for each in read(broker, "batch-once")) == sorted([*range(20)] * 3)
