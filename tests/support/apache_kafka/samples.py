"""Sample data written to a Kafka broker by the Java client and by librdkafka.

The data covers everything that occurs in log directories: every codec, batches with
and without producer ids, headers, tombstones, transactions in every state,
compacted logs, many segments, broker-set timestamps, a trimmed log.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.support.apache_kafka.clients import (
    Headers,
    JavaClient,
    LibrdkafkaProducer,
    SampleProducer,
    SampleRecord,
    State,
    read_back,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Partition = tuple[str, int]

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


def sample_topic_configs() -> dict[str, dict[str, str]]:
    """The configs of the sample topics, by Kafka's names."""
    return {
        name: {**_COMPACTED, **config} if name.startswith("compacted") else dict(config)
        for name, (_, config) in _TOPICS.items()
    }


@dataclass
class SampleData:
    """The written and the expected records, by topic and partition, in offset order.

    *written* has every record that a producer wrote. *records* has those that the log must still contain: without
    records that compaction or DeleteRecords removed, with the records of aborted and open transactions.  *last_stable*
    is the first offset of the open transaction, if there is one.  *latest* maps the keys of a compacted partition
    to their last committed value (``None``: deleted).

    A killed broker loses the log start offsets of the last minute: the directory of ``trimmed`` then contains all
    *written* records and starts at offset 0 again.
    """

    written: dict[Partition, list[SampleRecord]] = field(default_factory=dict)
    records: dict[Partition, list[SampleRecord]] = field(default_factory=dict)
    last_stable: dict[Partition, int] = field(default_factory=dict)
    latest: dict[Partition, dict[bytes, bytes | None]] = field(default_factory=dict)

    def committed(self, topic: str, partition: int = 0) -> list[SampleRecord]:
        """Returns the records that a ``read_committed`` consumer receives."""
        end = self.last_stable.get((topic, partition))
        return [
            record
            for record in self.records[topic, partition]
            if record.state in ("plain", "committed") and (end is None or record.offset < end)
        ]


def write_sample_data(broker_bootstrap: str, *, timeout: float = 120.0) -> SampleData:
    """Writes the sample topics to a broker and returns their :class:`SampleData`.

    Returns when the broker has compacted its topics, so nothing changes any more while the broker runs (the open
    transaction lasts for 15 minutes).
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


class _Writer:
    """Writes the topics and records the data that readers must see."""

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

        topics = [NewTopic(name, _TOPICS[name][0], 1, config=config) for name, config in sample_topic_configs().items()]
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
        """Sends *records* as one batch (by the producer's config) and records them."""
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
        """Returns a batch of all kinds of records; its timestamps increase and decrease."""
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
                noise = SampleRecord(-1, self.start, b"noise", self.random.randbytes(150_000))
                self.write(producer, "codecs", [noise], partition)

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
        start = 105  # inside a batch of a segment that is not the first
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition("trimmed", 0, start)]).values():
            future.result(60)
        kept = [each for each in self.data.written["trimmed", 0] if each.offset >= start]
        self.data.records["trimmed", 0] = kept

    def transactional(self, prefix: str) -> list[SampleProducer]:
        timeout = {"transaction.timeout.ms": _OPEN_TRANSACTION_MS}
        producers: list[SampleProducer] = [
            LibrdkafkaProducer(self.bootstrap, {"transactional.id": f"{prefix}-librdkafka", **timeout}),
            self.java.producer({"transactional.id": f"{prefix}-java", **timeout}),
        ]
        for producer in producers:
            producer.init()
        return producers

    def write_transactions(self) -> None:
        plain = self.java.producer()
        rdkafka, java = self.transactional("txn")
        opener = self.java.producer({"transactional.id": "txn-open", "transaction.timeout.ms": _OPEN_TRANSACTION_MS})
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
            # Two concurrent transactions: the one that began later ends first.
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
        """Writes a record twice; the second has such a late timestamp that it starts a new segment. Once the earlier
        records of the key are removed, the log cleaner has run.
        """
        producer = self.java.producer()
        # Transaction markers have the broker's time, and it accepts at most an hour ahead.
        late = self.start + number * 15 * _MINUTE
        for timestamp in (late - 14 * _MINUTE, late):
            value = f"marker {number}".encode()
            record = SampleRecord(-1, timestamp, b"marker", value)
            (done,) = self.write(producer, topic, [record])
            self.data.latest[topic, 0][b"marker"] = value
        producer.close()
        self.segment_starts[topic] = done.offset

    def finish_compaction(self, topic: str, timeout: float) -> None:
        """Waits until all segments but the last are compacted, then reads the remaining records."""
        partition = (topic, 0)
        self.await_clean(topic, timeout)
        # Tombstones and transaction markers are removed by a later cleaning than the first one that reads them, and a
        # cleaning needs new dirty records.
        for number in (2, 3):
            self.mark(topic, number)
            self.await_clean(topic, timeout)
        found = {record.offset: record for record in read_back(self.bootstrap, topic)}
        kept = [each for each in self.data.written[partition] if each.offset in found]
        if [each.content for each in kept] != [each.content for each in found.values()]:
            raise RuntimeError(f"{topic} holds other records than were written")
        self.data.records[partition] = kept

    def await_clean(self, topic: str, timeout: float) -> None:
        """Waits until no key occurs twice before the last segment."""
        deadline = time.monotonic() + timeout
        end = self.segment_starts[topic]
        while True:
            keys = [each.key for each in read_back(self.bootstrap, topic) if each.offset < end]
            if len(set(keys)) == len(keys):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} was not cleaned in {timeout:.0f} s")
            time.sleep(0.2)
