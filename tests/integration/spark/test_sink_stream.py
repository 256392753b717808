"""`df.writeStream.format("headrace")`: every row once, over restarts, failures, replays and a broker outage."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tests.support.spark.sink import FaultySource, numbers, read_records

from headrace.testing import EmbeddedBroker

pytestmark = pytest.mark.headrace_topic(partitions=2)


class Stream:
    """A stream from files of numbers, two per batch, to a topic."""

    def __init__(self, spark: Any, directory: Path, bootstrap: str, topic: str):
        self.spark = spark
        self.input = directory / "input"
        self.input.mkdir()
        self.checkpoint = directory / "checkpoint"
        self.bootstrap = bootstrap
        self.topic = topic
        self.files = 0

    def feed(self, *files: range) -> None:
        for content in files:
            written = self.input / f".{self.files:04}"
            written.write_text("".join(f"{number}\n" for number in content))
            written.rename(self.input / f"{self.files:04}")
            self.files += 1

    def start(self, source: str = "headrace", change: Any = lambda frame: frame, **options: object) -> Any:
        frame = change(self.spark.readStream.option("maxFilesPerTrigger", 2).text(str(self.input)))
        writer = frame.writeStream.format(source).option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).options(topic=self.topic, **options)
        return writer.trigger(availableNow=True).start()

    def run(self, source: str = "headrace", **options: object) -> None:
        query = self.start(source, **options)
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    def forget_commit(self, batch_id: int) -> None:
        """Removes the last commit, as if the driver had died before it."""
        for file in (self.checkpoint / "commits").glob(f"*{batch_id}*"):
            file.unlink()

    def numbers(self) -> list[int]:
        return numbers(self.bootstrap, self.topic)


@pytest.fixture
def stream(spark: Any, tmp_path: Path, headrace_broker: EmbeddedBroker, headrace_topic: str) -> Stream:
    spark.dataSource.register(FaultySource)
    return Stream(spark, tmp_path, headrace_broker.bootstrap_servers, headrace_topic)


def test_stream_resumes_from_checkpoint(stream: Stream) -> None:
    stream.feed(range(5), range(5, 10), range(10, 15))
    stream.run()
    assert stream.numbers() == [*range(15)]
    stream.feed(range(15, 20))
    stream.run()
    assert stream.numbers() == [*range(20)]


def test_replayed_batch_is_not_written_again(stream: Stream) -> None:
    stream.feed(range(5), range(5, 10), range(10, 15), range(15, 20))
    stream.run()
    stream.forget_commit(1)
    stream.feed(range(20, 22), range(22, 24))
    stream.run()
    assert stream.numbers() == [*range(24)]


def test_completes_half_written_batch(stream: Stream, tmp_path: Path) -> None:
    stream.feed(range(5), range(5, 10))
    broken = tmp_path / "broken"
    broken.touch()
    options = {"fault": "fail-task-1", "while": str(broken)}
    with pytest.raises(PySparkException, match="was to fail"):
        stream.run(FaultySource.name(), **options)
    assert len(stream.numbers()) == 5
    broken.unlink()
    stream.run(FaultySource.name(), **options)
    assert stream.numbers() == [*range(10)]


@pytest.mark.parametrize("fault", ["kill-after", "kill-before"])
def test_killed_worker_neither_duplicates_nor_loses_rows(stream: Stream, fault: str) -> None:
    stream.feed(range(5), range(5, 10))
    stream.run(FaultySource.name(), fault=fault)
    assert stream.numbers() == [*range(10)]


def test_rejects_replay_with_other_rows(stream: Stream) -> None:
    stream.feed(range(5), range(5, 10))
    stream.run()
    stream.forget_commit(0)
    with pytest.raises(PySparkException, match="batch 0 was written before with 5 rows"):
        stream.run(change=lambda frame: frame.where("value % 2 = 0"))
    assert stream.numbers() == [*range(10)]
    stream.run()
    assert stream.numbers() == [*range(10)]


@pytest.mark.parametrize("columns", [(), ("value",)])
def test_replay_distributes_rows_to_the_same_tasks(stream: Stream, columns: tuple[str, ...]) -> None:
    stream.feed(range(15), range(15, 30))
    stream.run(change=lambda frame: frame.repartition(3, *columns))
    stream.forget_commit(0)
    stream.run(change=lambda frame: frame.repartition(3, *columns))
    assert stream.numbers() == [*range(30)]


def test_at_least_once_writes_replayed_batch_again(stream: Stream) -> None:
    stream.feed(range(5), range(5, 10))
    stream.run(deliveryGuarantee="at-least-once")
    stream.forget_commit(0)
    stream.run(deliveryGuarantee="at-least-once")
    assert stream.numbers() == sorted([*range(10)] * 2)


def test_foreach_batch_writes_each_batch_once(stream: Stream) -> None:
    def write(frame: Any, batch_id: int) -> None:
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        for name in ("one", "two"):
            writer = frame.write.format("headrace").mode("append").option("topic", stream.topic)
            writer = writer.option("kafka.bootstrap.servers", stream.bootstrap).option("sinkName", name)
            writer.option("queryId", query_id).option("batchId", batch_id).save()

    for _ in range(2):
        stream.feed(range(5), range(5, 10))
        frame = stream.spark.readStream.option("maxFilesPerTrigger", 2).text(str(stream.input))
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(stream.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        stream.forget_commit(0)
    assert stream.numbers() == sorted([*range(10)] * 4)


def test_waits_for_broker_restart(stream: Stream, headrace_broker: EmbeddedBroker) -> None:
    stream.feed(range(5), range(5, 10))
    stream.run()
    headrace_broker.kill()
    stream.feed(range(10, 15), range(15, 20))
    query = stream.start()
    try:
        headrace_broker.start()
        assert query.awaitTermination(300)
    finally:
        query.stop()
    assert stream.numbers() == [*range(20)]
    assert len(read_records(stream.bootstrap, stream.topic, isolation="read_uncommitted")) == 20
