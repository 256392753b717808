"""`spark.readStream.format("headrace")` with a real Spark and a real broker. One query at a time, into memory."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import headrace
from headrace.admin import NewPartitions
from headrace.common.types import TopicPartition
from headrace.testing import EmbeddedBroker

SECONDS = 120.0


def reader(spark: Any, broker: EmbeddedBroker, **options: object) -> Any:
    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "startingOffsets": "earliest",
        **options,
    }
    return spark.readStream.format("headrace").options(**{name: str(value) for name, value in given.items()}).load()


def send(broker: EmbeddedBroker, topic: str, values: range, partition: int = 0) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in values:
            producer.send(topic, b"%d" % number, partition=partition)


class Batches:
    """Collects the values of each batch by batch id, in `foreachBatch`."""

    def __init__(self) -> None:
        self.found: dict[int, list[int]] = {}
        self.fail_at: int | None = None

    def __call__(self, frame: Any, batch_id: int) -> None:
        rows = frame.selectExpr("cast(cast(value as string) as int) as n").collect()
        self.found[batch_id] = sorted(row.n for row in rows)
        if batch_id == self.fail_at:
            raise RuntimeError("the batch is not committed")

    @property
    def values(self) -> list[int]:
        return sorted(number for batch in self.found.values() for number in batch)


@contextlib.contextmanager
def running(frame: Any, checkpoint: Path, batches: Batches, **trigger: object) -> Iterator[Any]:
    writer = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint))
    query = _start(writer.trigger(**trigger) if trigger else writer)
    try:
        yield query
    finally:
        query.stop()


def _start(writer: Any) -> Any:
    """Starts a query and waits for its Python process. Spark's 10 s for the start may be too short on a busy
    machine."""
    deadline = time.monotonic() + SECONDS
    while True:
        query = writer.start()
        while query.isActive and "Initializing" in query.status["message"]:
            time.sleep(0.05)
        error = query.exception()
        if error is None or "failed to connect back" not in str(error) or time.monotonic() > deadline:
            return query


def wait(condition: Callable[[], object], query: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < deadline, f"not in {SECONDS} s; last progress: {query.lastProgress}"
        time.sleep(0.02)


def run_to_end(frame: Any, checkpoint: Path, batches: Batches) -> Any:
    """Reads all existing records."""
    with running(frame, checkpoint, batches, availableNow=True) as query:
        assert query.awaitTermination(SECONDS)
    return query


def logged_offsets(checkpoint: Path) -> dict[int, Any]:
    files = [file for file in (checkpoint / "offsets").iterdir() if file.name.isdigit()]
    return {int(file.name): json.loads(file.read_text().splitlines()[2]) for file in files}


@pytest.mark.headrace_topic(partitions=2)
def test_reads_new_records_and_new_partitions(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    send(headrace_broker, headrace_topic, range(5))
    batches = Batches()
    with running(reader(spark, headrace_broker, subscribePattern=f"{headrace_topic}.*"), tmp_path, batches) as query:
        wait(lambda: batches.values == list(range(5)), query)
        send(headrace_broker, headrace_topic, range(5, 8), partition=1)
        wait(lambda: batches.values == list(range(8)), query)
        with headrace.Admin(bootstrap_servers=headrace_broker.bootstrap_servers) as admin:
            admin.create_partitions({headrace_topic: NewPartitions(3)})
        headrace_broker.create_topic(headrace_topic + "-new", 1)
        send(headrace_broker, headrace_topic, range(8, 10), partition=2)
        send(headrace_broker, headrace_topic + "-new", range(10, 12))
        wait(lambda: batches.values == list(range(12)), query)
        headrace_broker.restart()
        send(headrace_broker, headrace_topic, range(12, 15))
        wait(lambda: batches.values == list(range(15)), query)
    headrace_broker.delete_topic(headrace_topic + "-new")


def test_available_now_reads_in_batches_and_resumes_from_checkpoint(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    send(headrace_broker, headrace_topic, range(10))
    frame = reader(spark, headrace_broker, subscribe=headrace_topic, maxOffsetsPerTrigger=4)
    first = Batches()
    run_to_end(frame, tmp_path, first)
    assert first.found == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8, 9]}
    send(headrace_broker, headrace_topic, range(10, 13))
    second = Batches()
    run_to_end(frame, tmp_path, second)
    assert second.found == {3: [10, 11, 12]}
    assert logged_offsets(tmp_path)[3] == {headrace_topic: {"0": 13}}


def test_replays_uncommitted_first_batch(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    """Starts at `latest`, which only the first run knows."""
    send(headrace_broker, headrace_topic, range(3))
    frame = reader(spark, headrace_broker, subscribe=headrace_topic, startingOffsets="latest")
    broken = Batches()
    broken.fail_at = 0
    with (
        pytest.raises(StreamingQueryException, match="the batch is not committed"),
        running(frame, tmp_path, broken) as query,
    ):
        wait(lambda: False, query)
    assert broken.found == {0: []}
    send(headrace_broker, headrace_topic, range(3, 8))
    whole = Batches()
    run_to_end(frame, tmp_path, whole)
    assert whole.found == {0: [], 1: [3, 4, 5, 6, 7]}


def test_replays_failed_batch_with_the_same_records(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    send(headrace_broker, headrace_topic, range(6))
    frame = reader(spark, headrace_broker, subscribe=headrace_topic, maxOffsetsPerTrigger=4)
    broken = Batches()
    broken.fail_at = 0
    with pytest.raises(StreamingQueryException):
        run_to_end(frame, tmp_path, broken)
    send(headrace_broker, headrace_topic, range(6, 9))
    whole = Batches()
    run_to_end(frame, tmp_path, whole)
    assert whole.found == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8]}


def test_retention_deletes_unread_records(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    send(headrace_broker, headrace_topic, range(4))
    options = {"subscribe": headrace_topic}
    run_to_end(reader(spark, headrace_broker, **options), tmp_path, Batches())
    send(headrace_broker, headrace_topic, range(4, 10))
    with headrace.Admin(bootstrap_servers=headrace_broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(headrace_topic, 0): 7})
    with pytest.raises(StreamingQueryException, match="now begins at offset 7; expected offsets from 4 on"):
        run_to_end(reader(spark, headrace_broker, **options), tmp_path, Batches())
    lenient = Batches()
    run_to_end(reader(spark, headrace_broker, **options, failOnDataLoss=False), tmp_path, lenient)
    assert lenient.values == [7, 8, 9]


def test_deleted_topic(spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path) -> None:
    other = headrace_topic + "-other"
    headrace_broker.create_topic(other, 1)
    send(headrace_broker, headrace_topic, range(2))
    send(headrace_broker, other, range(2, 4))
    options = {"subscribePattern": f"{headrace_topic}.*"}
    run_to_end(reader(spark, headrace_broker, **options), tmp_path, Batches())
    headrace_broker.delete_topic(other)
    send(headrace_broker, headrace_topic, range(4, 6))
    with pytest.raises(StreamingQueryException, match="no longer exists; it was read up to offset 2"):
        run_to_end(reader(spark, headrace_broker, **options), tmp_path, Batches())
    lenient = Batches()
    run_to_end(reader(spark, headrace_broker, **options, failOnDataLoss=False), tmp_path, lenient)
    assert lenient.values == [4, 5]


def test_survives_broker_outage(
    spark: Any, headrace_broker: EmbeddedBroker, headrace_topic: str, tmp_path: Path
) -> None:
    batches = Batches()
    frame = reader(
        spark, headrace_broker, subscribe=headrace_topic, minPartitions=3, **{"kafka.isolation.level": "read_committed"}
    )
    with running(frame, tmp_path, batches) as query:
        send(headrace_broker, headrace_topic, range(10))
        wait(lambda: batches.values == list(range(10)), query)
        headrace_broker.kill()
        wait(lambda: not query.isActive or _is_waiting(query), query)
        headrace_broker.start()
        send(headrace_broker, headrace_topic, range(10, 20))
        wait(lambda: batches.values == list(range(20)), query)


def _is_waiting(query: Any) -> bool:
    return not query.status["isDataAvailable"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' cannot be set for a stream"),
        ({"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 4}, "is higher than"),
        ({"startingOffsets": '{"elsewhere": {"0": 1}}'}, "must name exactly the partitions"),
    ],
)
def test_invalid_options_end_the_query(
    spark: Any,
    headrace_broker: EmbeddedBroker,
    headrace_topic: str,
    tmp_path: Path,
    options: dict[str, object],
    words: str,
) -> None:
    with pytest.raises(StreamingQueryException, match=words):
        run_to_end(reader(spark, headrace_broker, subscribe=headrace_topic, **options), tmp_path, Batches())
