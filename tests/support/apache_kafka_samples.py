"""Sample data written to a Kafka broker by the Java client and by librdkafka.

The data covers what a reader of log directories meets: every codec, batches with
and without producer ids, headers, tombstones, transactions in every state,
compacted logs, many segments, broker-set timestamps, a trimmed log.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

from .apache_kafka_jvm import JavaFailed, start_java

if TYPE_CHECKING:
    from confluent_kafka import Message

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
AGENT = Path(__file__).parent / "java" / "ClientAgent.java"

Partition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]
State = Literal["plain", "committed", "aborted", "open"]

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_OPEN_TRANSACTION_MS = 15 * _MINUTE
_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (len(CODECS), {}),
    "txn": (1, {"internal.segment.bytes": "2000", "index.interval.bytes": "300"}),
    "segments": (1, {"internal.segment.bytes": "4096", "index.interval.bytes": "512"}),
    "appendtime": (1, {"message.timestamp.type": "LogAppendTime"}),
    "trimmed": (1, {"internal.segment.bytes": "4096"}),
    "compacted": (1, {"delete.retention.ms": str(24 * _HOUR)}),
    "compacted-deletes": (1, {"delete.retention.ms": "0"}),
}
_COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "8192",
    "segment.ms": str(10 * _MINUTE),
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


@dataclass(frozen=True)
class SampleRecord:
    """A record as a reader must find it; *state* is that of its transaction, if it has one."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    state: State = "plain"
    writer: str = ""

    @property
    def content(self) -> tuple[int, int, bytes | None, bytes | None, Headers]:
        """What can be compared with a record that was read."""
        return (self.offset, self.timestamp, self.key, self.value, self.headers)


@dataclass
class SampleData:
    """What was written and what must be found, by topic and partition, in offset order.

    *written* has every record a producer wrote.  *records* has those that the log
    must still hold: without what compaction or trimming took away, with the records
    of aborted and open transactions.  *last_stable* is the first offset of the open
    transaction, where there is one.  *latest* maps the keys of a compacted partition
    to their last committed value (``None``: deleted).
    """

    written: dict[Partition, list[SampleRecord]] = field(default_factory=dict)
    records: dict[Partition, list[SampleRecord]] = field(default_factory=dict)
    last_stable: dict[Partition, int] = field(default_factory=dict)
    latest: dict[Partition, dict[bytes, bytes | None]] = field(default_factory=dict)

    def committed(self, topic: str, partition: int = 0) -> list[SampleRecord]:
        """What a consumer with isolation ``read_committed`` gets."""
        end = self.last_stable.get((topic, partition))
        return [
            record
            for record in self.records[topic, partition]
            if record.state in ("plain", "committed") and (end is None or record.offset < end)
        ]


class SampleProducer(Protocol):
    """A producer of either client."""

    writer: str

    def send(self, topic: str, partition: int, record: SampleRecord) -> None: ...
    def sync(self) -> list[tuple[int, int]]: ...
    def init(self) -> None: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class JavaClient:
    """A JVM that holds Kafka producers; ending it leaves their transactions open."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._count = 0
        self._process = start_java(AGENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> JavaClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.exit()

    def producer(self, properties: Mapping[str, object] | None = None) -> JavaProducer:
        """Open a producer; its defaults put what is sent between two syncs in one batch."""
        self._count += 1
        name = f"p{self._count}"
        settings: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "linger.ms": 1000,
            "batch.size": 900_000,
            **(properties or {}),
        }
        self.command("open", name, *(f"{key}={value}" for key, value in settings.items()))
        return JavaProducer(self, name)

    def command(self, *fields: str) -> list[str]:
        """Send a command and return the fields of its answer."""
        line = "\t".join(fields)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
            answer = stdout.readline().decode().rstrip("\n").split("\t")
        except BrokenPipeError:
            answer = [""]
        if answer[0] != "ok":
            raise JavaFailed(f"{line[:200]!r} was answered with {answer}")
        return answer[1:]

    def exit(self) -> None:
        """End the JVM at once, without closing the producers."""
        self._process.kill()
        self._process.communicate()


class JavaProducer:
    """One of the producers of a :class:`JavaClient`."""

    writer = "java"

    def __init__(self, client: JavaClient, name: str) -> None:
        self._client = client
        self._name = name

    def send(self, topic: str, partition: int, record: SampleRecord) -> None:
        headers = [text for name, value in record.headers for text in (name, _hex(value))]
        self._client.command(
            "send",
            self._name,
            topic,
            str(partition),
            str(record.timestamp),
            _hex(record.key),
            _hex(record.value),
            *headers,
        )

    def sync(self) -> list[tuple[int, int]]:
        """Flush; return offset and timestamp of what was sent since the last time."""
        pairs = [text.split(":") for text in self._client.command("sync", self._name)]
        return [(int(offset), int(timestamp)) for offset, timestamp in pairs]

    def init(self) -> None:
        self._client.command("init", self._name)

    def begin(self) -> None:
        self._client.command("begin", self._name)

    def commit(self) -> None:
        self._client.command("commit", self._name)

    def abort(self) -> None:
        self._client.command("abort", self._name)

    def close(self) -> None:
        self._client.command("close", self._name)


class LibrdkafkaProducer:
    """A producer of confluent-kafka."""

    writer = "librdkafka"

    def __init__(self, bootstrap: str, properties: Mapping[str, object] | None = None) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 1000,
                "batch.size": 900_000,
                **(properties or {}),
            }
        )
        self._sent = 0
        self._reports: dict[int, tuple[int, int]] = {}
        self._errors: list[str] = []

    def send(self, topic: str, partition: int, record: SampleRecord) -> None:
        number = self._sent
        self._sent += 1

        def report(error: object, message: object) -> None:
            if error is not None:
                self._errors.append(str(error))
            else:
                self._reports[number] = (message.offset(), message.timestamp()[1])  # type: ignore[attr-defined]

        self._producer.produce(
            topic,
            partition=partition,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
            on_delivery=report,
        )

    def sync(self) -> list[tuple[int, int]]:
        """Flush; return offset and timestamp of what was sent since the last time."""
        left = self._producer.flush(60)
        if left or self._errors or len(self._reports) != self._sent:
            raise RuntimeError(f"librdkafka delivered too little: {left} left, {self._errors}")
        delivered = [self._reports[number] for number in range(self._sent)]
        self._reports.clear()
        self._sent = 0
        return delivered

    def init(self) -> None:
        self._producer.init_transactions(60)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction(60)

    def abort(self) -> None:
        self._producer.abort_transaction(60)


def write_sample_data(broker_bootstrap: str, *, timeout: float = 120.0) -> SampleData:
    """Fill a broker with the sample topics; see :class:`SampleData` for what it returns.

    It returns when the broker has cleaned the compacted topics, so nothing changes
    any more while the broker runs (the open transaction lasts for 15 minutes).
    """
    with JavaClient(broker_bootstrap) as java:
        sample = _Writer(broker_bootstrap, java)
        sample.create_topics()
        sample.write_codecs()
        sample.write_segments()
        sample.write_append_time()
        sample.write_trimmed()
        sample.write_compacted("compacted")
        sample.write_compacted("compacted-deletes")
        sample.write_transactions()
        sample.finish_compaction("compacted", timeout)
        sample.finish_compaction("compacted-deletes", timeout)
    return sample.data


def read_back(
    bootstrap: str,
    topic: str,
    partition: int = 0,
    *,
    read_committed: bool = False,
    timeout: float = 60.0,
) -> list[SampleRecord]:
    """Return what librdkafka's consumer finds from the start of a partition to its end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "headrace-read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        }
    )
    found: list[SampleRecord] = []
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return found
                    raise RuntimeError(f"{topic}-{partition}: {error}")
                found.append(_from_message(message))
    finally:
        consumer.close()
    raise TimeoutError(f"{topic}-{partition} was not read in {timeout:.0f} s")


class _Writer:
    """Writes the topics and keeps account of what a reader must find."""

    def __init__(self, bootstrap: str, java: JavaClient) -> None:
        self.bootstrap = bootstrap
        self.java = java
        self.data = SampleData()
        self.random = random.Random(20240229)
        self.start = int(time.time() * 1000) - _MINUTE
        self.segment_starts: dict[str, int] = {}

    def producers(self, **properties: object) -> list[SampleProducer]:
        settings = {key.replace("_", "."): value for key, value in properties.items()}
        return [LibrdkafkaProducer(self.bootstrap, settings), self.java.producer(settings)]

    def create_topics(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        topics = []
        for name, (partitions, config) in _TOPICS.items():
            if name.startswith("compacted"):
                config = {**_COMPACTED, **config}
            topics.append(NewTopic(name, partitions, 1, config=config))
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics(topics).values():
            future.result(60)

    def write(
        self,
        producer: SampleProducer,
        topic: str,
        records: Iterable[SampleRecord],
        partition: int = 0,
        state: State = "plain",
    ) -> list[SampleRecord]:
        """Send *records* as one batch (by the producer's settings) and account for them."""
        batch = list(records)
        for record in batch:
            producer.send(topic, partition, record)
        done = [
            replace(record, offset=offset, timestamp=timestamp, state=state, writer=producer.writer)
            for record, (offset, timestamp) in zip(batch, producer.sync(), strict=True)
        ]
        self.data.written.setdefault((topic, partition), []).extend(done)
        self.data.records.setdefault((topic, partition), []).extend(done)
        return done

    def plain(self, label: str, count: int, size: int = 40, at: int = 0) -> Iterator[SampleRecord]:
        for number in range(count):
            yield SampleRecord(
                -1,
                self.start + at + number,
                f"{label}-{number}".encode(),
                f"{label} {number} ".encode().ljust(size, b"."),
            )

    def varied(self, label: str, at: int) -> Iterator[SampleRecord]:
        """A batch of all kinds of records; its timestamps go up and down."""
        keys: list[bytes | None] = [None, b"", label.encode(), b"\x00\xff\n\t", "ключ".encode()]
        values: list[bytes | None] = [
            None,
            b"",
            f"value of {label}".encode(),
            bytes(range(256)),
            b"repeat me " * 2_000,
            self.random.randbytes(3_000),
        ]
        headers: list[Headers] = [
            (),
            (("trace", b"1"),),
            (("twice", b"a"), ("twice", b"b"), ("empty", b""), ("null", None)),
            (("имя", "значение".encode()), ("", b"no name")),
        ]
        for number in range(len(keys) * len(values)):
            yield SampleRecord(
                -1,
                self.start + at + (number * 37) % 101,
                keys[number % len(keys)],
                values[number % len(values)],
                headers[number % len(headers)],
            )

    def write_codecs(self) -> None:
        for partition, codec in enumerate(CODECS):
            for producer in self.producers(compression_type=codec):
                name = f"{codec}-{producer.writer}"
                for number, size in enumerate((1, 300)):
                    at = (2 * number + (producer.writer == "java")) * 1000
                    self.write(producer, "codecs", self.plain(name, size, at=at), partition)
                    self.write(producer, "codecs", self.varied(name, at + 500), partition)

    def write_segments(self) -> None:
        producers = self.producers(enable_idempotence="true")
        for number in range(120):
            records = self.plain(f"segment-{number}", 5, 150, at=number * 100)
            self.write(producers[number % 2], "segments", records)

    def write_append_time(self) -> None:
        for codec in ("none", "zstd"):
            for producer in self.producers(compression_type=codec):
                for number in range(3):
                    name = f"append-{codec}-{number}"
                    self.write(producer, "appendtime", self.plain(name, 10))

    def write_trimmed(self) -> None:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        producer = self.producers()[1]
        for number in range(20):
            records = self.plain(f"trim-{number}", 10, 100, at=number * 100)
            self.write(producer, "trimmed", records)
        start = 105  # inside a batch, of a segment that is not the first
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition("trimmed", 0, start)]).values():
            future.result(60)
        kept = [each for each in self.data.written["trimmed", 0] if each.offset >= start]
        self.data.records["trimmed", 0] = kept

    def transactional(self, prefix: str) -> list[SampleProducer]:
        producers = [
            *self.producers(transactional_id=f"{prefix}-1", transaction_timeout_ms=_OPEN_TRANSACTION_MS)[:1],
            *self.producers(transactional_id=f"{prefix}-2", transaction_timeout_ms=_OPEN_TRANSACTION_MS)[1:],
        ]
        for producer in producers:
            producer.init()
        return producers

    def write_transactions(self) -> None:
        plain = self.java.producer()
        rdkafka, java = self.transactional("txn")
        opener = self.java.producer(
            {"transactional.id": "txn-open", "transaction.timeout.ms": _OPEN_TRANSACTION_MS}
        )
        opener.init()
        at = 0

        def write(producer: SampleProducer, label: str, state: State, count: int = 3) -> None:
            nonlocal at
            at += 100
            self.write(producer, "txn", self.plain(label, count, at=at), state=state)

        for number in range(3):
            write(plain, f"before-{number}", "plain", 1)
            for producer in (java, rdkafka):
                producer.begin()
                write(producer, f"{producer.writer}-committed-{number}", "committed")
                write(producer, f"{producer.writer}-committed-too-{number}", "committed", 1)
                producer.commit()
                producer.begin()
                write(producer, f"{producer.writer}-aborted-{number}", "aborted")
                producer.abort()
            # Two transactions at once: the one that began later ends earlier.
            java.begin()
            write(java, f"outer-{number}", "committed")
            rdkafka.begin()
            write(rdkafka, f"inner-{number}", "aborted")
            write(plain, f"between-{number}", "plain", 1)
            rdkafka.abort()
            write(java, f"outer-again-{number}", "committed", 1)
            java.commit()
        opener.begin()
        write(opener, "open", "open")
        self.data.last_stable["txn", 0] = self.data.written["txn", 0][-3].offset
        for producer, end in ((java, "committed"), (rdkafka, "aborted")):
            producer.begin()
            state: State = "committed" if end == "committed" else "aborted"
            write(producer, f"after-open-{end}", state)
            (producer.commit if end == "committed" else producer.abort)()
        write(opener, "open-again", "open", 2)
        write(plain, "last", "plain", 1)

    def write_compacted(self, topic: str) -> None:
        plain = self.producers(compression_type="lz4")
        transactional = self.transactional(topic)
        latest = self.data.latest.setdefault((topic, 0), {})
        for number in range(24):
            records = list(self.compacted_batch(number))
            turn = number % 6
            if turn < 4:
                self.write(plain[turn % 2], topic, records)
            else:
                producer = transactional[turn % 2]
                state: State = "aborted" if number % 4 == 0 else "committed"
                producer.begin()
                self.write(producer, topic, records, state=state)
                (producer.abort if state == "aborted" else producer.commit)()
                if state == "aborted":
                    continue
            latest.update((each.key, each.value) for each in records if each.key is not None)
        self.mark(topic, 1)

    def compacted_batch(self, number: int) -> Iterator[SampleRecord]:
        for place in range(20):
            key = (number * 7 + place) % 50
            deleted = key % 10 == 3 and number % 3 == 2
            value = None if deleted else f"value {number} of {key} ".encode().ljust(120, b"-")
            yield SampleRecord(
                -1,
                self.start + number * 1000 + place,
                f"key-{key:02}".encode(),
                value,
                (("round", str(number).encode()),),
            )

    def mark(self, topic: str, number: int) -> None:
        """Write a record twice, the second so late (by its timestamp) that it begins a segment.

        When the earlier writings of the key are gone, the cleaner has been here.
        """
        producer = self.java.producer()
        # Markers of transactions have the broker's time, and an hour ahead is the most it takes.
        late = self.start + number * 15 * _MINUTE
        for timestamp in (late - 14 * _MINUTE, late):
            value = f"marker {number}".encode()
            record = SampleRecord(-1, timestamp, b"marker", value)
            (done,) = self.write(producer, topic, [record])
            self.data.latest[topic, 0][b"marker"] = value
        producer.close()
        self.segment_starts[topic] = done.offset

    def finish_compaction(self, topic: str, timeout: float) -> None:
        """Wait until every segment but the last is clean, then see what it has left."""
        partition = (topic, 0)
        self.await_clean(topic, timeout)
        # Tombstones and transaction markers go in a later round than the first one
        # that met them, and a round needs something new to clean.
        for number in (2, 3):
            self.mark(topic, number)
            self.await_clean(topic, timeout)
        found = {record.offset: record for record in read_back(self.bootstrap, topic)}
        kept = [each for each in self.data.written[partition] if each.offset in found]
        if [each.content for each in kept] != [each.content for each in found.values()]:
            raise RuntimeError(f"{topic} holds other records than were written")
        self.data.records[partition] = kept

    def await_clean(self, topic: str, timeout: float) -> None:
        """Wait until no key occurs twice before the last segment."""
        deadline = time.monotonic() + timeout
        end = self.segment_starts[topic]
        while True:
            keys = [each.key for each in read_back(self.bootstrap, topic) if each.offset < end]
            if len(set(keys)) == len(keys):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was not cleaned in {timeout:.0f} s")
            time.sleep(0.2)


def _from_message(message: Message) -> SampleRecord:
    return SampleRecord(
        offset=message.offset() or 0,
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
    )


def _hex(value: bytes | None) -> str:
    return "-" if value is None else "=" + value.hex()
