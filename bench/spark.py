"""Format headrace compared with Spark's own Kafka connector: one session, one Headrace broker, the same topics.

The last rows compare the brokers: both formats on Headrace's broker and on Apache Kafka's.

    python -m bench spark [--rounds 3] [--quick] [--only TEXT]

Batch reads read every column of every row and discard it; batch writes take rows from Spark's memory. Streams copy a
topic, with a limit that splits it into several batches. They have two rows: the sum of Spark's own durations of these
batches, and the whole query from its start to its end, which includes the start of Python workers. The latency is
measured with a stream that copies single records, from the producer's call to the consumer's, together with the time
that Spark takes for such a batch. The session is `headrace.spark.session()`, from which the connector benefits as well.
Each format writes to its own topics, which are never deleted, because the connector's cached Java producer keeps
requesting deleted topics. Only their records are deleted.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.broker.process import Headrace
from tests.support.spark.session import CONNECTOR_VERSION, connector_jars

import headrace
from bench.broker_sides import Kafka
from bench.harness import Measurement, compare, describe, from_pairs, seconds_of
from headrace.admin import NewTopic

ROUNDS = 5
PARTITIONS = 4
STREAM_BATCHES = 4
KAFKA, HEADRACE = "kafka", "headrace"
BROKER = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": 64 * 1024 * 1024,
    "log.segment.delete.delay.ms": 1000,
    "log.retention.check.interval.ms": 1000,
}
PEER = f"Spark's connector {CONNECTOR_VERSION}"


@dataclass(frozen=True)
class Sizes:
    rows_100: int = 2_000_000
    rows_1000: int = 300_000
    latency_records: int = 150
    latency_warm: int = 20

    def rows(self, size: int) -> int:
        return self.rows_100 if size == 100 else self.rows_1000


QUICK = Sizes(rows_100=200_000, rows_1000=40_000, latency_records=25, latency_warm=5)


TOPICS = [
    *(f"filled-{size}" for size in (100, 1000)),
    *(f"{what}-{name}" for what in ("written", "paced", "copied") for name in (KAFKA, HEADRACE)),
]


class Bench:
    def __init__(self, spark: Any, side: Headrace | Kafka, sizes: Sizes, directory: Path) -> None:
        self.spark = spark
        self.sizes = sizes
        self._side = side
        self._directory = directory
        self._admin = headrace.Admin(bootstrap_servers=side.bootstrap)
        self._options = {"kafka.bootstrap.servers": side.bootstrap}
        self._frames: dict[int, Any] = {}
        for topic in TOPICS:
            self._admin.create_topics([NewTopic(topic, PARTITIONS, 1)])

    def close(self) -> None:
        self._admin.close()

    # ---- topics

    def fill(self, size: int) -> None:
        """Fills the topic that is read. Rows differ, and each has a key of 8 bytes."""
        topic = f"filled-{size}"
        count = min(self.sizes.rows(size), 20_000)
        block = pa.table(
            {
                "key": pa.array([b"%08d" % number for number in range(count)]),
                "value": pa.array([(b"%09d" % number).ljust(size, b"v") for number in range(count)]),
            }
        )
        with headrace.Producer(bootstrap_servers=self._side.bootstrap) as producer:
            for _ in range(self.sizes.rows(size) // count):
                producer.send_arrow(topic, block).get(timeout_ms=120_000)

    def _empty(self, topic: str) -> None:
        self._admin.delete_records({headrace.TopicPartition(topic, number): -1 for number in range(PARTITIONS)})

    # ---- batches

    def read(self, name: str, size: int) -> float:
        frame = self.spark.read.format(name).options(**self._options).option("subscribe", f"filled-{size}").load()
        return seconds_of(frame.write.format("noop").mode("overwrite").save)

    def write(self, name: str, size: int, **options: str) -> float:
        topic = f"written-{name}"
        writer = self._rows(size).write.format(name).mode("append").options(**self._options, **options)
        taken = seconds_of(writer.option("topic", topic).save)
        self._empty(topic)
        return taken

    def _rows(self, size: int) -> Any:
        if size not in self._frames:
            frame = self.spark.range(0, self.sizes.rows(size), 1, PARTITIONS).selectExpr(
                "binary(lpad(string(id), 8, '0')) key", f"binary(rpad(string(id), {size}, 'v')) value"
            )
            self._frames[size] = frame.persist()
            frame.count()
        return self._frames[size]

    def forget_rows(self) -> None:
        for frame in self._frames.values():
            frame.unpersist()
        self._frames.clear()

    # ---- streams

    def _stream(self, name: str, source: str, target: str, limit: int | None = None, **trigger: Any) -> Any:
        reader = self.spark.readStream.format(name).options(**self._options, subscribe=source)
        if limit is not None:
            reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(limit))
        checkpoint = tempfile.mkdtemp(dir=self._directory)
        writer = reader.load().select("key", "value").writeStream.format(name).options(**self._options, topic=target)
        writer = writer.option("checkpointLocation", checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def copy(self, name: str, size: int) -> tuple[float, float]:
        """Copies a topic in a few batches. Returns the duration of the batches, and of the query from its start to its
        end."""
        target = f"written-{name}"
        limit = self.sizes.rows(size) // STREAM_BATCHES
        started = time.perf_counter()
        query = self._stream(name, f"filled-{size}", target, limit, availableNow=True)
        query.awaitTermination()
        whole = time.perf_counter() - started
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        if sum(each["numInputRows"] for each in batches) != self.sizes.rows(size):
            raise RuntimeError(f"the stream read {batches} instead of {self.sizes.rows(size)} rows")
        self._empty(target)
        return float(sum(each["batchDuration"] for each in batches)) / 1000, whole

    def latency(self, name: str) -> dict[str, float]:
        """Sends single records through a stream that copies them. Each is sent a varying time after the previous one
        arrived, so that sends are not synchronized with the stream."""
        source, target = f"paced-{name}", f"copied-{name}"
        query = self._stream(name, source, target)
        try:
            taken = self._ping(source, target, query)
            batches = [each["batchDuration"] for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
        self._empty(target)
        warm = self.sizes.latency_warm
        return {
            "p50": statistics.median(taken[warm:]),
            "p99": sorted(taken[warm:])[int(len(taken[warm:]) * 0.99)],
            "batch": statistics.median(batches[warm:] or batches),
        }

    def _ping(self, source: str, target: str, query: Any) -> list[float]:
        arrived = threading.Semaphore(0)
        ended = threading.Event()

        def receive() -> None:
            with headrace.Consumer(
                target,
                bootstrap_servers=self._side.bootstrap,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer:
                while not ended.is_set():
                    for records in consumer.poll(timeout_ms=100).values():
                        for _ in records:
                            arrived.release()

        receiver = threading.Thread(target=receive)
        receiver.start()
        taken = []
        try:
            while not query.recentProgress:  # until the stream has its first offsets, the latest
                time.sleep(0.05)
            with headrace.Producer(bootstrap_servers=self._side.bootstrap, linger_ms=0) as producer:
                for number in range(self.sizes.latency_records + self.sizes.latency_warm):
                    started = time.perf_counter()
                    producer.send(source, b"%d" % number, key=b"k")
                    if not arrived.acquire(timeout=60):
                        raise TimeoutError(f"record {number} did not arrive: {query.exception()}")
                    taken.append((time.perf_counter() - started) * 1000)
                    time.sleep(0.01 + 0.037 * (number % 3))
        finally:
            ended.set()
            receiver.join()
        return taken


def run(directory: Path, rounds: int, *, quick: bool = False, only: str = "") -> tuple[list[Measurement], list[str]]:
    """Raises `KafkaUnavailable` if Java or the connector is not available."""
    sizes = QUICK if quick else Sizes()
    jars = connector_jars()
    load = os.getloadavg()[0]
    with Headrace(directory / "broker", BROKER) as side:
        spark = _session(directory, jars)
        bench = Bench(spark, side, sizes, directory)
        try:
            measurements = _measure_all(bench, rounds, only)
            measurements += _compare_brokers(bench, directory, rounds, only)
        finally:
            bench.close()
            spark.stop()
    return measurements, [
        f"Spark {spark.version} on local[2], {PEER}; broker: Headrace in its own process, topics with {PARTITIONS} "
        f"partitions. Load average before the run: {load:.1f}.",
        f"{sizes.rows_100:,} rows of 100 B, {sizes.rows_1000:,} of 1,000 B, with keys of 8 B.",
        "Spark's connector writes at least once; format headrace writes exactly once by default, in transactions, "
        "unless the line says otherwise.",
        "Streams have two rows: the sum of the durations of their batches, and the whole query from its start to its "
        "end, which includes the start of Python workers.",
        f"Latency: {sizes.latency_records} records in each round, one after the other.",
        f"Rows with two brokers: the value on Headrace's broker, and on {Kafka.name}'s.",
    ]


def _session(directory: Path, jars: tuple[Path, ...]) -> Any:
    from headrace.pipelines.sessions import quiet_session

    config = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": "3g",
        "spark.local.dir": str(directory / "local"),
    }
    return quiet_session("headrace bench", "local[2]", config)


def _measure_all(bench: Bench, rounds: int, only: str) -> list[Measurement]:
    measurements: list[Measurement] = []

    def measure(name: str, work: int, target: float, run: Callable[[str], float], **ours: str) -> None:
        if only in name:
            measurements.append(
                compare(
                    name,
                    peer=PEER,
                    ours=lambda: run(HEADRACE, **ours),
                    theirs=lambda: run(KAFKA),
                    work=work,
                    unit="rows/s",
                    target=target,
                    rounds=rounds,
                )
            )

    for size in (100, 1000):
        bench.fill(size)
        rows = bench.sizes.rows(size)
        measure(f"batch read, {size} B", rows, 1.5, lambda name, size=size: bench.read(name, size))
        measure(f"batch write, {size} B", rows, 1.5, lambda name, size=size: bench.write(name, size))
        measure(
            f"batch write at least once, {size} B",
            rows,
            1.5,
            lambda name, size=size, **ours: bench.write(name, size, **ours),
            deliveryGuarantee="at-least-once",
        )
        bench.forget_rows()
        if only in f"stream from topic to topic, {size} B, whole query":
            measurements += _streams(bench, size, rounds)
    if only in "latency of a small micro-batch":
        measurements += _latencies(bench, rounds)
    return measurements


def _streams(bench: Bench, size: int, rounds: int) -> list[Measurement]:
    found: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(rounds + 1):
        if number % 2:
            theirs, ours = bench.copy(KAFKA, size), bench.copy(HEADRACE, size)
        else:
            ours, theirs = bench.copy(HEADRACE, size), bench.copy(KAFKA, size)
        if number:  # the first one is a warm-up
            found.append((ours, theirs))
    measurements = []
    rows = bench.sizes.rows(size)
    for position, suffix in enumerate(("", ", whole query")):
        pairs = [(rows / ours[position], rows / theirs[position]) for ours, theirs in found]
        measured = from_pairs(f"stream from topic to topic, {size} B{suffix}", "rows/s", PEER, pairs, 1.0)
        print(describe(measured), file=sys.stderr, flush=True)
        measurements.append(measured)
    return measurements


def _latencies(bench: Bench, rounds: int) -> list[Measurement]:
    found: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(rounds):
        if number % 2:
            theirs, ours = bench.latency(KAFKA), bench.latency(HEADRACE)
        else:
            ours, theirs = bench.latency(HEADRACE), bench.latency(KAFKA)
        found.append((ours, theirs))
    measurements = []
    for field, name in (
        ("p50", "latency of a small micro-batch, topic to topic, p50"),
        ("p99", "latency of a small micro-batch, topic to topic, p99"),
        ("batch", "duration of a small micro-batch, median"),
    ):
        pairs = [(ours[field], theirs[field]) for ours, theirs in found]
        measured = from_pairs(name, "ms", PEER, pairs, 1.0, lower_is_better=True)
        print(describe(measured), file=sys.stderr, flush=True)
        measurements.append(measured)
    return measurements


def _compare_brokers(bench: Bench, directory: Path, rounds: int, only: str) -> list[Measurement]:
    """Runs some cases of both formats on both brokers."""
    cases = [
        (f"{what}, format {name}: Headrace's broker vs Apache Kafka's", what, name)
        for what in ("batch read, 1000 B", "batch write, 1000 B", "latency of a small micro-batch, p50")
        for name in (HEADRACE, KAFKA)
    ]
    wanted = [case for case in cases if only in case[0]]
    if not wanted:
        return []
    side = Kafka(directory / "apache-kafka")
    side.start()
    measurements: list[Measurement] = []
    try:
        other = Bench(bench.spark, side, bench.sizes, directory)
        other.fill(1000)
        for row, what, name in wanted:
            measured = _compare_on(row, what, name, (bench, other), rounds)
            print(describe(measured), file=sys.stderr, flush=True)
            measurements.append(measured)
        bench.forget_rows()
        other.forget_rows()
        other.close()
    finally:
        side.stop()
    return measurements


def _compare_on(row: str, what: str, name: str, benches: tuple[Bench, Bench], rounds: int) -> Measurement:
    def value(bench: Bench) -> float:
        if what.startswith("latency"):
            return bench.latency(name)["p50"]
        run = bench.read if what.startswith("batch read") else bench.write
        return bench.sizes.rows(1000) / run(name, 1000)

    is_latency = what.startswith("latency")
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        found = {place: value(benches[place]) for place in ((0, 1) if number % 2 else (1, 0))}
        if number:  # the first one is a warm-up
            pairs.append((found[0], found[1]))
    unit = "ms" if is_latency else "rows/s"
    return from_pairs(row, unit, Kafka.name, pairs, 1.0, lower_is_better=is_latency)
