"""Reads and writes topics with Spark's own connector and with format headrace, for comparison.

`Formats` has a session, a broker and a client, and short methods for common steps of the tests. Both formats get the
same options.
"""

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.broker.process import eventually

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.admin import NewTopic

KAFKA, HEADRACE = "kafka", "headrace"
BOTH = (KAFKA, HEADRACE)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
BASE_MS = int(time.time()) * 1000 - 3_600_000  # recent enough not to be deleted by retention
QUERY_SECONDS = 90
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Sent:
    """A record to write, or a record that was read."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = BASE_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Failed:
    """An error, and the stage at which it occurred: when the frame was created (`load`) or run (`run`)."""

    stage: str
    text: str

    def names(self, *words: str) -> bool:
        return all(word.lower() in self.text.lower() for word in words)


class Formats:
    def __init__(self, spark: Any, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.admin = Admin(bootstrap_servers=bootstrap)
        self._producer = Producer(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._producer.close()
        self.admin.close()

    # ---- topics

    def new_topic(self, partitions: int = 1, prefix: str = "spark", **configs: object) -> str:
        """Creates a topic with a unique name; configs have underscores for dots."""
        name = f"{prefix}-{next(_numbers)}"
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions({topic: total})
        eventually(
            lambda: len(self.admin.describe_topics([topic])[topic].partitions) == total,
            f"{topic} has {total} partitions",
        )
        self.admin.wait_for_topics([topic])

    def send(self, topic: str, records: Iterable[Sent], **settings: object) -> list[int]:
        """Writes records one by one in their order, and returns their offsets."""
        producer = Producer(bootstrap_servers=self.bootstrap, **settings) if settings else self._producer
        futures = [
            producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ]
        producer.flush(timeout_ms=60_000)
        if settings:
            producer.close()
        return [future.get(timeout_ms=60_000).offset for future in futures]

    def send_numbers(self, topic: str, numbers: Iterable[int], partitions: int = 1) -> None:
        """Number n goes to partition n modulo *partitions*, n seconds after `BASE_MS`."""
        self.send(topic, [Sent(b"%d" % n, b"k%d" % n, n % partitions, BASE_MS + 1000 * n) for n in numbers])

    def stored(self, topic: str, isolation: str = "read_committed") -> dict[int, list[Sent]]:
        """Returns the records of each partition in order, read with Headrace's consumer."""
        with Consumer(bootstrap_servers=self.bootstrap, isolation_level=isolation) as consumer:
            tps = [TopicPartition(topic, partition) for partition in sorted(consumer.partitions_for_topic(topic))]
            ends = consumer.end_offsets(tps)
            consumer.assign(tps)
            consumer.seek_to_beginning(*tps)
            found: dict[int, list[Sent]] = {tp.partition: [] for tp in tps}

            def complete() -> bool:
                for tp, records in consumer.poll(timeout_ms=200).items():
                    found[tp.partition] += [
                        Sent(each.value, each.key, tp.partition, each.timestamp, tuple(each.headers))
                        for each in records
                    ]
                return all(consumer.position(tp) >= ends[tp] for tp in tps)

            eventually(complete, f"{topic} is read to its ends {ends}", 60)
        return found

    def values(self, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
        return [record.value for records in self.stored(topic, isolation).values() for record in records]

    # ---- data frames

    def load(self, name: str, schema: str | None = None, **options: object) -> Any:
        return self._prepared(self.spark.read, name, schema, options).load()

    def load_stream(self, name: str, schema: str | None = None, **options: object) -> Any:
        return self._prepared(self.spark.readStream, name, schema, options).load()

    def _prepared(self, reader: Any, name: str, schema: str | None, options: Mapping[str, object]) -> Any:
        reader = reader.format(name).options(**self.options(options))
        return reader if schema is None else reader.schema(schema)

    def options(self, options: Mapping[str, object]) -> dict[str, str]:
        """Returns the options. A value of None removes a default; `kafka__group__id` is `kafka.group.id`."""
        given = {key.replace("__", "."): value for key, value in options.items()}
        merged: dict[str, object] = {"kafka.bootstrap.servers": self.bootstrap, **given}
        return {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in merged.items()
            if value is not None
        }

    def rows(self, name: str, **options: object) -> list[tuple[Any, ...]]:
        """Returns all columns of all rows, ordered by topic, partition and offset."""
        return in_order(self.load(name, **options).collect())

    def numbers(self, name: str, **options: object) -> list[int]:
        return sorted(int(row.value) for row in self.load(name, **options).select("value").collect())

    def outcome(self, action: Callable[[], Any]) -> Any:
        """Runs the data frame that *action* returns. Returns its rows in order, or its failure."""
        try:
            frame = action()
        except Exception as error:  # noqa: BLE001
            return Failed("load", str(error))
        try:
            return in_order(frame.collect())
        except Exception as error:  # noqa: BLE001
            return Failed("run", str(error))

    def write(self, name: str, frame: Any, **options: object) -> None:
        frame.write.format(name).mode("append").options(**self.options(options)).save()

    def frame(self, rows: Sequence[tuple[Any, ...]], schema: str) -> Any:
        return self.spark.createDataFrame(list(rows), schema)

    # ---- streams

    def run_stream(self, frame: Any, checkpoint: Path, **trigger: object) -> "Run":
        """Runs a stream to its end (by default with available now) and returns its rows."""
        rows: list[Any] = []
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        finish(query)
        return Run(rows, [each for each in query.recentProgress if each["numInputRows"]])

    def copy_stream(self, frame: Any, name: str, checkpoint: Path, **options: object) -> Any:
        """Starts a query that writes *frame* with a format."""
        return (
            frame.writeStream.format(name)
            .options(**self.options(options))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )


@dataclass
class Run:
    """The rows of a stream in order of arrival, and the progress of its non-empty batches."""

    rows: list[Any]
    progress: list[dict[str, Any]]

    @property
    def numbers(self) -> list[int]:
        return sorted(int(row.value) for row in self.rows)

    @property
    def sizes(self) -> list[int]:
        return [each["numInputRows"] for each in self.progress]


def finish(query: Any) -> None:
    """Waits until a query ends, and raises its error."""
    try:
        assert query.awaitTermination(QUERY_SECONDS), f"the query has not ended: {query.status}"
    finally:
        query.stop()


def in_order(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    def place(row: Any) -> tuple[Any, ...]:
        known = row.asDict()
        return known.get("topic") or "", known.get("partition") or 0, known.get("offset") or 0

    return [
        tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in sorted(rows, key=place)
    ]


def condition_of(error: BaseException) -> str:
    """Returns the name of a Spark error: `STREAM_FAILED` for `[STREAM_FAILED]`."""
    found = re.match(r"\[([A-Z_.0-9]+)\]", str(error))
    return found[1] if found else type(error).__name__
