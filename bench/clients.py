"""Compares the client library with confluent-kafka, kafka-python and aiokafka, on a Headrace broker, and with
confluent-kafka on an Apache Kafka broker.

Each measurement runs in its own process (`bench.client_work`). The order alternates from round to round. Each producer
measurement has its own topic, which is deleted afterwards; all consumers read the same topic.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.apache_kafka.broker import KafkaUnavailable

from bench.broker_sides import Headrace, Kafka, Side
from bench.broker_wire import drop_topic, make_topic
from bench.harness import Measurement, describe, from_pairs

PARTITIONS = 4
WORK_SECONDS = 300
RATE = 1000
ROUNDS = 5
LINGERS_MS = (0, 5)
ON_KAFKA = " on Apache Kafka"
TUNED = ("confluent-kafka tuned", "consume")
NOTES = [
    "Profile of `send_arrow`, 1,000,000 rows of 100 B (perf, strace, /proc/PID/task/*/schedstat). Five tables in a "
    "row by one producer took 0.067 to 0.094 s each, with 0.061 to 0.078 s of CPU in the broker's loop, 0.026 to "
    "0.039 s in the client's calling thread and 0.036 to 0.047 s in its loop's thread, so two cores need about 0.07 "
    "s. The next three took 0.14 s with the same CPU: each thread waited 0.04 to 0.06 s for a core. The rounds of "
    "this benchmark took 0.17 to 0.20 s (medians of two runs, with ratios from 1.9 to 7.9); the cause of that "
    "difference is not known. Memory that the system must allocate again after a pause is not it: a loop of pwrite "
    "alone takes 0.024 to 0.033 s with and without pauses. Broker: 38% of the CPU is the copy to the page cache, "
    "then Python code, checks of each record, the copy from the socket, CRC; 1.4 reads and about one write to a "
    "file per request. Client: encoding takes 0.020 s, 0.007 s of it the CRC, and half of the loop's thread is the "
    "copy to the socket; 6 of 824 sends found the socket full.",
    "Tried for `send_arrow`: batches are filled up to 1,000,000 B (before: 916,768 B, because the size of rows was "
    "estimated), so there are 8% fewer requests. The effect on the time was not measured.",
    "Row-by-row consumption, 300,000 rows of 1,000 B: 0.19 to 0.24 s of CPU in two threads of the client, which "
    "share Python's lock (five of six runs; 0.41 s in the other), and 0.1 s in two threads of the broker, against "
    "0.44 to 0.50 s in confluent-kafka's process. Tried earlier on a busy machine and not used: a switch interval "
    "of 0.5 ms (median +9% in 15 rounds), a pause of 50 microseconds before each poll (+25% in 15 rounds, -6% in 8 "
    "others), a wait of up to 1 ms until the loop has sent due fetches (+3% in 8 rounds).",
    "Latency was not profiled. A record passes two threads of each client, which need Python's lock, while "
    "librdkafka runs C code.",
]
"""Where the time goes in the cases with the most ambitious targets, and what was tried."""


@dataclass(frozen=True)
class Sizes:
    rows_100: int = 1_000_000
    rows_1000: int = 300_000
    slow_share: float = 0.2
    """The fraction of the rows for slow clients; speeds are rows per second."""
    latency_rows: int = 10_000


QUICK = Sizes(rows_100=200_000, rows_1000=60_000, latency_rows=3_000)


@dataclass(frozen=True)
class Case:
    name: str
    ours: tuple[str, str]
    theirs: tuple[str, str]
    size: int
    target: float
    memory_target: float | None = None


def _cases() -> list[Case]:
    cases = []
    for size in (100, 1000):
        for what in ("produce", "consume"):
            rows = f"{what} row by row, {size} B"
            cases += [
                Case(rows, ("headrace", what), ("confluent-kafka", what), size, 1.0, 1.0),
                Case(rows, ("headrace", what), ("kafka-python", what), size, 5.0 if what == "produce" else 1.0),
                Case(rows, ("headrace", what), ("aiokafka", what), size, 1.0),
            ]
    return [
        *cases,
        Case("asyncio: produce row by row, 100 B", ("headrace.aio", "produce"), ("aiokafka", "produce"), 100, 1.0),
        Case("send_arrow and row by row, 100 B", ("headrace", "send_arrow"), ("confluent-kafka", "produce"), 100, 6.0),
        Case("poll_arrow and consume(n), 100 B", ("headrace", "poll_arrow"), ("confluent-kafka", "consume"), 100, 10.0),
        # confluent-kafka's defaults slow its consumer down; these cases show how much of the ratio that explains.
        Case("consume row by row, 100 B", ("headrace", "consume"), TUNED, 100, 1.0),
        Case("consume row by row, 1000 B", ("headrace", "consume"), TUNED, 1000, 1.1),
        Case("poll_arrow and consume(n), 100 B", ("headrace", "poll_arrow"), TUNED, 100, 1.0),
    ]


class Bench:
    def __init__(self, side: Side, sizes: Sizes, only: str):
        self._side = side
        self._sizes = sizes
        self._only = only
        self._topics = 0
        self.notes: list[str] = []

    def wants(self, name: str) -> bool:
        return self._only in name

    def _rows(self, size: int, who: tuple[str, str]) -> int:
        rows = self._sizes.rows_100 if size == 100 else self._sizes.rows_1000
        if who[0] in ("kafka-python", "aiokafka"):
            rows = int(rows * self._sizes.slow_share)
        return rows // 1000 * 1000

    def fill(self, topic: str, size: int) -> None:
        make_topic(self._side.port, topic, PARTITIONS)
        _work(self._side, ("confluent-kafka", "produce"), topic, self._rows(size, ("", "")), size)

    def measure(self, who: tuple[str, str], size: int) -> dict[str, float]:
        rows = self._rows(size, who)
        if who[1] in ("consume", "poll_arrow"):
            found = _work(self._side, who, f"filled-{size}", rows, size)
        else:
            self._topics += 1
            topic = f"work-{self._topics}"
            make_topic(self._side.port, topic, PARTITIONS)
            found = _work(self._side, who, topic, rows, size)
            drop_topic(self._side.port, topic, self._side.data_dir)
        return {**found, "rows_per_second": rows / found["seconds"]}

    def latency(self, client: str, linger_ms: int) -> dict[str, float]:
        self._topics += 1
        topic = f"paced-{self._topics}"
        make_topic(self._side.port, topic, 1)
        return _work(self._side, (client, f"latency linger {linger_ms}"), topic, self._sizes.latency_rows, 100, RATE)


def _work(side: Side, who: tuple[str, str], topic: str, rows: int, size: int, rate: int = 0) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.client_work", *who, side.bootstrap, topic, str(rows), str(size), str(rate)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORK_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(who)} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(directory: Path, rounds: int, *, quick: bool = False, only: str = "") -> tuple[list[Measurement], list[str]]:
    """Measures all clients on a Headrace broker, then Headrace's and confluent-kafka's on an Apache Kafka broker."""
    sizes = QUICK if quick else Sizes()
    load = os.getloadavg()[0]
    measurements = _run_on(Headrace(directory / "headrace"), sizes, rounds, only, "")
    second = "The rows with `on Apache Kafka` are measured on its broker, with its shipped settings."
    try:
        measurements += _run_on(Kafka(directory / "kafka"), sizes, rounds, only, ON_KAFKA)
    except KafkaUnavailable as error:
        second = f"Not measured on an Apache Kafka broker: {error}."
        print(second, file=sys.stderr)
    return measurements, [
        f"Broker: Headrace, topics with {PARTITIONS} partitions. {second} Load average before the run: {load:.1f}.",
        f"{sizes.rows_100:,} rows of 100 B, {sizes.rows_1000:,} of 1,000 B; kafka-python and aiokafka do "
        f"{sizes.slow_share:.0%} of them. Each client has its defaults. Times are from the first row to the end of "
        "flush, or from the first poll to the last row, without start and connecting.",
        "All consumers sum up the lengths of all values: row by row, or with `pyarrow.compute` for `poll_arrow`.",
        f"Latency: {sizes.latency_rows:,} records of 100 B at {RATE:,}/s, from send until poll returns the row to a "
        "consumer in the same process. Both producers have the same `linger.ms`.",
        "Memory is the peak of the client's process, including the interpreter and imports.",
        *NOTES,
    ]


def _run_on(side: Side, sizes: Sizes, rounds: int, only: str, suffix: str) -> list[Measurement]:
    side.start()
    try:
        return _measure_all(Bench(side, sizes, only), rounds, suffix)
    finally:
        side.stop()


def _measure_all(bench: Bench, rounds: int, suffix: str) -> list[Measurement]:
    """`suffix` is added to the names. On an Apache Kafka broker, only confluent-kafka is measured."""
    for size in (100, 1000):
        bench.fill(f"filled-{size}", size)
    measurements: list[Measurement] = []
    for case in _cases():
        if not bench.wants(f"{case.name}{suffix} {case.theirs[0]}"):
            continue
        if suffix and "confluent" not in case.theirs[0]:
            continue
        ours, theirs = _rounds(
            rounds, lambda c=case: bench.measure(c.ours, c.size), lambda c=case: bench.measure(c.theirs, c.size)
        )
        name = f"{case.name}{suffix}"
        _add(measurements, name, "rows/s", case.theirs[0], ours, theirs, "rows_per_second", case.target)
        if case.memory_target is not None:
            name = f"{name}: memory"
            _add(measurements, name, "MB", case.theirs[0], ours, theirs, "memory_mb", case.memory_target, lower=True)
    for linger_ms in LINGERS_MS:
        name = f"latency at {RATE:,}/s, linger {linger_ms}{suffix}"
        if bench.wants(name):
            ours, theirs = _rounds(
                rounds,
                lambda ms=linger_ms: bench.latency("headrace", ms),
                lambda ms=linger_ms: bench.latency("confluent-kafka", ms),
            )
            for field in ("p50_ms", "p99_ms"):
                peer = "confluent-kafka"
                _add(measurements, f"{name}, {field[:3]}", "ms", peer, ours, theirs, field, 1.0, lower=True)
    return measurements


Found = list[dict[str, float]]


def _rounds(
    rounds: int, ours: Callable[[], dict[str, float]], theirs: Callable[[], dict[str, float]]
) -> tuple[Found, Found]:
    mine: Found = []
    other: Found = []
    for number in range(rounds):
        if number % 2:
            other.append(theirs())
            mine.append(ours())
        else:
            mine.append(ours())
            other.append(theirs())
    return mine, other


def _add(
    measurements: list[Measurement],
    name: str,
    unit: str,
    peer: str,
    ours: Found,
    theirs: Found,
    field: str,
    target: float,
    lower: bool = False,
) -> None:
    pairs = [(mine[field], other[field]) for mine, other in zip(ours, theirs, strict=True)]
    measured = from_pairs(name, unit, peer, pairs, target, lower)
    print(describe(measured), f"({peer})", file=sys.stderr, flush=True)
    measurements.append(measured)
