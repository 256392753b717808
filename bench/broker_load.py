"""Builds and runs the load generators of the broker benchmark: Kafka's own tools, and a C program on librdkafka.

They know only the broker's address. Each returns its own measurement, which excludes its start and its warm-up. All
records that it sent or read, including the warm-up, count for the broker's CPU time.
"""

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.apache_kafka.broker import run_java

from bench.broker_wire import HOST, produce_error_at, produce_frame

RECORD_BYTES = 1000
SMALL_RECORD_BYTES = 100
PARTITIONS = 6
SOURCE = Path(__file__).with_name("broker_load.c")
CONSUMER = Path(__file__).parent / "java" / "AssignedConsumer.java"
TIMEOUT_SECONDS = 900
# As in the distribution's kafka-producer-perf-test.sh and kafka-run-class.sh.
TOOL_JVM_ARGS = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
_SUMMARY = re.compile(r"^(\d+)(?: steady state)? records sent, ([\d.]+) records/sec.*99\.9th", re.MULTILINE)


class LoadFailed(Exception):
    """A load generator failed. The message ends with its output."""


@dataclass(frozen=True)
class Load:
    """A generator's throughput, and the total bytes that it sent or read."""

    mb_per_second: float
    total_bytes: int
    generator_cpu: float = 0.0  # CPU seconds of the generator, if it reports them


@dataclass(frozen=True)
class Pace:
    p50_us: float
    p99_us: float


def build(directory: Path) -> Path:
    """Compiles the C generator against confluent-kafka's bundled librdkafka."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("the load generator needs a C compiler (cc or gcc), and none is on the PATH")
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise LoadFailed("confluent-kafka is not installed")
    bundled = Path(spec.origin).parent.with_name("confluent_kafka.libs")
    libraries = sorted(bundled.glob("librdkafka-*.so*"))
    if not libraries:
        raise LoadFailed(f"no librdkafka in {bundled}")
    program = directory / "broker_load"
    command = [compiler, "-O2", "-pthread", "-o", program, SOURCE, libraries[0], f"-Wl,-rpath,{bundled}"]
    _run([str(part) for part in command])
    return program


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise LoadFailed(f"{' '.join(command)} ended with status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Librdkafka:
    """librdkafka: one or several producers or consumers, each for all partitions."""

    name = "librdkafka"

    def __init__(self, program: Path, properties: Mapping[str, object] | None = None):
        """`properties`: for all producers and consumers, such as those of TLS."""
        self._program = program
        self._properties = dict(properties or {})

    def produce(
        self,
        bootstrap: str,
        topic: str,
        megabytes: int,
        batch_bytes: int,
        acks: str,
        *,
        partitions: int = PARTITIONS,
        producers: int = 1,
    ) -> Load:
        properties = {
            "acks": acks,
            "batch.size": batch_bytes,
            "batch.num.messages": 100_000,
            "message.max.bytes": 1_048_588,  # the broker's limit; with a lower one, batches of 1 MB would not fit
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 10,
            "enable.idempotence": "false",
        }
        records, warmup = _records(megabytes)
        return self._produce(bootstrap, topic, partitions, producers, records, RECORD_BYTES, warmup, properties)

    def produce_unbatched(self, bootstrap: str, topic: str, records: int) -> Load:
        """Sends records of 100 bytes, each in a request of its own, as with `linger.ms=0` and without batching."""
        properties = {"acks": "1", "batch.num.messages": 1, "linger.ms": 0, "enable.idempotence": "false"}
        return self._produce(bootstrap, topic, PARTITIONS, 1, records, SMALL_RECORD_BYTES, records // 10, properties)

    def _produce(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        producers: int,
        records: int,
        record_bytes: int,
        warmup: int,
        properties: Mapping[str, object],
    ) -> Load:
        sizes = [partitions, producers, records, record_bytes, warmup]
        found = self._json("produce", bootstrap, topic, *sizes, *_pairs({**properties, **self._properties}))
        total_bytes = (records + warmup) * record_bytes
        return Load(found["bytes"] / found["seconds"] / 1e6, total_bytes, found["generator_cpu"])

    def consume(self, bootstrap: str, topic: str, megabytes: int, *, consumers: int = 1) -> Load:
        """Reads as much as `produce` wrote, including its warm-up. Several consumers read their share of it each."""
        total = sum(_records(megabytes))
        # Otherwise librdkafka pauses for a second whenever its queue is full.
        properties: dict[str, object] = {"fetch.queue.backoff.ms": 10}
        if consumers > 1:
            properties["queued.max.messages.kbytes"] = 16 * 1024  # for the generator's memory
        settings = _pairs({**properties, **self._properties})
        found = self._json("consume", bootstrap, topic, PARTITIONS, consumers, total, *settings)
        return Load(found["bytes"] / found["seconds"] / 1e6, int(found["bytes"]), found["generator_cpu"])

    def pace(self, port: int, topic: str, rate: int, seconds: int, directory: Path, *, acks: int = 1) -> Pace:
        """Sends produce requests of one record at a fixed rate on a plain socket, to the leader of partition 0."""
        frame = directory / "produce-frame"
        frame.write_bytes(produce_frame(topic, RECORD_BYTES, acks))
        found = self._json("pace", HOST, port, frame, produce_error_at(topic), rate, rate * seconds, rate)
        return Pace(found["p50_us"], found["p99_us"])

    def _json(self, *arguments: object) -> dict[str, float]:
        found: dict[str, float] = json.loads(_run([str(self._program), *map(str, arguments)]))
        return found


class Java:
    """Kafka's ProducerPerformance, and a consumer with the settings of its ConsumerPerformance."""

    name = "Java"

    def produce(self, bootstrap: str, topic: str, megabytes: int, batch_bytes: int, acks: str) -> Load:
        records, warmup = _records(megabytes)
        properties = {
            "acks": acks,
            "batch.size": batch_bytes,
            "buffer.memory": 64 * 1024 * 1024,
            "linger.ms": 10,
            "enable.idempotence": "false",
        }
        options = {
            "bootstrap-server": bootstrap,
            "topic": topic,
            "num-records": records + warmup,
            "warmup-records": warmup,
            "record-size": RECORD_BYTES,
            "throughput": -1,
            "reporting-interval": 3_600_000,
        }
        arguments = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        output = run_java(
            "org.apache.kafka.tools.ProducerPerformance",
            [*arguments, "--command-property", *_pairs(properties)],
            jvm_args=TOOL_JVM_ARGS,
            timeout=TIMEOUT_SECONDS,
            log_level="ERROR",
        ).stdout
        found = _SUMMARY.findall(output)  # for all records, then for those after the warm-up
        if len(found) != 2 or int(found[0][0]) != records + warmup:
            raise LoadFailed(f"unexpected output of ProducerPerformance:\n{output}")
        return Load(float(found[1][1]) * RECORD_BYTES / 1e6, (records + warmup) * RECORD_BYTES)

    def consume(self, bootstrap: str, topic: str, megabytes: int) -> Load:
        records, warmup = _records(megabytes)
        arguments = [bootstrap, topic, str(PARTITIONS), str(records + warmup), str(warmup)]
        done = run_java(CONSUMER, arguments, jvm_args=TOOL_JVM_ARGS, timeout=TIMEOUT_SECONDS, log_level="ERROR")
        found = json.loads(done.stdout)
        return Load(found["bytes"] / found["seconds"] / 1e6, int(found["bytes"]) + warmup * RECORD_BYTES)


def _records(megabytes: int) -> tuple[int, int]:
    """Returns the number of measured records, and the number of warm-up records."""
    records = megabytes * 1_000_000 // RECORD_BYTES
    return records, records // 10


def _pairs(properties: Mapping[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in properties.items()]
