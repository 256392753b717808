"""`df.write.format("headrace")`: columns and topics, wrong ones, and each row once whatever happens to a task."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, expr
from tests.support.broker.process import eventually
from tests.support.spark.session import settings
from tests.support.spark.sink import FaultySource, numbers, read_records, save

import headrace
from headrace.errors import ProducerFencedError
from headrace.spark.markers import task_name
from headrace.testing import EmbeddedBroker

two_partitions = pytest.mark.headrace_topic(partitions=2)


@pytest.fixture
def bootstrap(headrace_broker: EmbeddedBroker) -> str:
    return headrace_broker.bootstrap_servers


@pytest.fixture
def faulty(spark: Any) -> str:
    spark.dataSource.register(FaultySource)
    return FaultySource.name()


def rows(spark: Any, count: int = 20, tasks: int = 2, first: int = 0) -> Any:
    return spark.range(first, first + count, 1, tasks).select(expr("cast(id as string)").alias("value"))


@two_partitions
def test_writes_rows_as_records(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    frame = spark.range(0, 40, 1, 2).select(
        expr("concat('k', id % 5)").alias("key"),
        expr("if(id % 4 = 0, null, cast(id as string))").alias("value"),
        expr(
            "if(id % 2 = 0, null, array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))))"
        ).alias("headers"),
        expr("timestamp '2001-01-01'").alias("timestamp"),
    )
    save(frame, bootstrap, topic=headrace_topic)
    records = read_records(bootstrap, headrace_topic)
    assert len(records) == 40
    assert sorted(each.value for each in records if each.value is not None) == sorted(
        b"%d" % n for n in range(40) if n % 4
    )
    assert len({(each.key, each.partition) for each in records}) == 5
    for each in records:
        if each.value is not None:
            number = int(each.value)
            assert each.headers == ([("h", each.value)] if number % 2 else [])
            assert each.key == b"k%d" % (number % 5)
    assert all(each.timestamp > 1_700_000_000_000 for each in records)


@two_partitions
def test_routes_rows_by_topic_column(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    other = f"{headrace_topic}-other"
    frame = rows(spark).select(
        "value",
        expr(f"if(value < 5, '{headrace_topic}', '{other}')").alias("topic"),
        expr("if(value < 5, cast(value % 2 as int), null)").alias("partition"),
    )
    save(frame, bootstrap)
    found = read_records(bootstrap, headrace_topic, other)
    assert sorted((each.topic == other, int(each.value)) for each in found) == sorted((n >= 5, n) for n in range(20))
    assert all(each.partition == int(each.value) % 2 for each in found if each.topic == headrace_topic)
    save(frame.where("value < 5"), bootstrap, topic=headrace_topic)
    assert len(read_records(bootstrap, headrace_topic)) == 10


def test_reports_errors_when_the_write_is_planned(spark: Any, bootstrap: str) -> None:
    frame = rows(spark)
    for data, options, words in [
        (frame, {}, "no topic to write to"),
        (frame.select(col("value").alias("v")), {"topic": "t"}, "no column 'value'"),
        (frame.select(expr("1").alias("value")), {"topic": "t"}, "'value' has type int"),
        (frame, {"topic": "t", "kafka.value.serializer": "x"}, "kafka.value.serializer"),
        (frame, {"topic": "t", "kafka.acks": "0"}, "acks"),
    ]:
        with pytest.raises(PySparkException, match=words):
            save(data, bootstrap, **options)
    with pytest.raises(PySparkException, match=r"mode\('append'\)"):
        frame.write.format("headrace").mode("overwrite").option("kafka.bootstrap.servers", bootstrap).save()


def test_failed_write_leaves_no_records(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    frame = rows(spark, tasks=1)
    for column, words in [
        (expr(f"if(value = 19, null, '{headrace_topic}')").alias("topic"), "'topic' is null"),
        (expr("if(value = 19, -1, 0)").alias("partition"), "'partition' contains -1"),
        (expr("if(value = 19, 7, 0)").alias("partition"), "'partition' contains 7"),
    ]:
        options = {} if "topic" in words else {"topic": headrace_topic}
        with pytest.raises(PySparkException, match=words):
            save(frame.select("value", column), bootstrap, **options)
    assert read_records(bootstrap, headrace_topic) == []


@two_partitions
def test_writes_batch_with_id_once(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    for batch_id in (0, 1, 1, 2):
        save(rows(spark), bootstrap, topic=headrace_topic, queryId=headrace_topic, batchId=batch_id)
    with pytest.raises(PySparkException, match=r"batch 1 is older than batch 2.*'queryId'"):
        save(rows(spark), bootstrap, topic=headrace_topic, queryId=headrace_topic, batchId=1)
    assert numbers(bootstrap, headrace_topic) == sorted([*range(20)] * 3)


@two_partitions
def test_rejects_replay_with_other_rows(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    options = {"topic": headrace_topic, "queryId": headrace_topic, "batchId": 3}
    save(rows(spark, tasks=1), bootstrap, **options)
    for changed in (rows(spark, first=1, tasks=1), rows(spark, tasks=1).where("value < 0")):
        with pytest.raises(PySparkException, match=r"batch 3 was written before with 20 rows.*at-least-once"):
            save(changed, bootstrap, **options)
    assert numbers(bootstrap, headrace_topic) == [*range(20)]
    # A sink with another name is another sink.
    save(rows(spark, 3), bootstrap, **options, sinkName="again")
    assert len(numbers(bootstrap, headrace_topic)) == 23


def test_rejects_replay_with_fewer_tasks(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    options = {"topic": headrace_topic, "queryId": headrace_topic, "batchId": 3}
    # Only the last of three tasks has rows and a marker, as if the run had ended before the others finished.
    save(rows(spark, 3, tasks=3).where("value = 2"), bootstrap, **options)
    with pytest.raises(PySparkException, match="batch 3 now has 2 tasks"):
        save(rows(spark, 3, tasks=2), bootstrap, **options)


@two_partitions
@pytest.mark.parametrize("fault", ["raise-after", "kill-after", "kill-before"])
def test_retried_task_writes_rows_once(
    spark: Any, bootstrap: str, headrace_topic: str, faulty: str, fault: str
) -> None:
    save(rows(spark), bootstrap, faulty, topic=headrace_topic, fault=fault)
    assert numbers(bootstrap, headrace_topic) == [*range(20)]
    written = numbers(bootstrap, headrace_topic, isolation="read_uncommitted")
    assert (len(written) > 20) == (fault == "kill-before")


def test_incomplete_input_is_not_committed(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    frame = spark.range(0, 3000, 1, 1).select(
        expr("cast(if(id < 2500, id, raise_error('no')) as string)").alias("value")
    )
    with settings(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": 100}):
        with pytest.raises(PySparkException, match="no"):
            save(frame, bootstrap, topic=headrace_topic, queryId=headrace_topic, batchId=0)
        assert read_records(bootstrap, headrace_topic) == []
        save(rows(spark, 3000, tasks=1), bootstrap, topic=headrace_topic, queryId=headrace_topic, batchId=0)
    assert numbers(bootstrap, headrace_topic) == [*range(3000)]


def test_fences_zombie_task(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    name = task_name(headrace_topic, headrace_topic, 0)
    with headrace.Producer(bootstrap_servers=bootstrap, transactional_id=name) as zombie:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(headrace_topic, b"-1").get(timeout_ms=30_000)
        zombie.send_offsets_to_transaction({headrace.TopicPartition(headrace_topic, 0): 0}, name)
        save(rows(spark, tasks=1), bootstrap, topic=headrace_topic, queryId=headrace_topic, batchId=0)
        with pytest.raises(ProducerFencedError):
            zombie.commit_transaction()
    assert numbers(bootstrap, headrace_topic) == [*range(20)]


def test_cancelled_job_leaves_no_open_transaction(
    spark: Any, bootstrap: str, headrace_topic: str, faulty: str, tmp_path: Path
) -> None:
    context = spark.sparkContext
    waits = tmp_path / "waits"

    def cancel() -> None:
        eventually(waits.exists, "the task writes", 300)
        context.cancelJobGroup(headrace_topic)

    thread = Thread(target=cancel)
    thread.start()
    context.setJobGroup(headrace_topic, "to be cancelled", interruptOnCancel=True)
    try:
        with pytest.raises((PySparkException, Py4JJavaError)):
            save(rows(spark, tasks=1), bootstrap, faulty, topic=headrace_topic, fault="stand-still", **{"while": waits})
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
        thread.join()
    with headrace.Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(headrace_topic, b"100")
    eventually(lambda: numbers(bootstrap, headrace_topic) == [100], "readers get past what was aborted")
    assert len(numbers(bootstrap, headrace_topic, isolation="read_uncommitted")) == 21


def test_transaction_survives_broker_crash(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, faulty: str, tmp_path: Path
) -> None:
    bootstrap = headrace_broker.bootstrap_servers
    waits = tmp_path / "waits"

    def crash() -> None:
        eventually(waits.exists, "the task writes", 300)
        headrace_broker.restart(clean=False)
        waits.unlink()

    thread = Thread(target=crash)
    thread.start()
    try:
        save(rows(spark, tasks=1), bootstrap, faulty, topic=headrace_topic, fault="stand-still", **{"while": waits})
    finally:
        thread.join()
    assert numbers(bootstrap, headrace_topic) == [*range(20)]
    assert len(numbers(bootstrap, headrace_topic, isolation="read_uncommitted")) == 20


@two_partitions
def test_at_least_once(spark: Any, bootstrap: str, headrace_topic: str) -> None:
    save(rows(spark), bootstrap, topic=headrace_topic, deliveryGuarantee="at-least-once")
    assert numbers(bootstrap, headrace_topic) == [*range(20)]
    with headrace.Admin(bootstrap_servers=bootstrap) as admin:
        assert not [each for each in admin.list_transactions() if headrace_topic in str(each)]
