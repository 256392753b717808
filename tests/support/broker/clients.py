"""Producers and consumers of other projects behind one small interface.

None of them needs a coordinator: consumers are assigned partitions manually and commit nothing, producers are not
idempotent (and have one request in flight, because a retry would change the order). The clients' size limits are
raised, so that the broker checks the size of records.
"""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Coroutine, Iterable, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import aiokafka
import aiokafka.codec
import aiokafka.errors
import confluent_kafka as confluent
from tests.support.apache_kafka.jvm import apt_lock
from tests.support.broker.java_clients import Java, to_fields, to_record
from tests.support.broker.records import Headers, Record
from tests.support.records.other_clients import kafka

TIMEOUT_SECONDS = 60.0
BATCH_BYTES = 900_000
REQUEST_BYTES = 8_000_000

T = TypeVar("T")


class Ack(NamedTuple):
    """The result of a record: its offset and timestamp, or Kafka's error code."""

    offset: int = -1
    timestamp: int | None = None
    error: int = 0


class Client(Protocol):
    name: str
    writes_timestamps: bool

    def can_write(self, record: Record) -> bool: ...

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", **settings: Any) -> list[Ack]:
        """Writes with acks=all; *settings* are the client's own configs. Returns a result for each record."""

    def read(self, topic: str, partitions: Iterable[int], start: int | None = None, **settings: Any) -> list[Record]:
        """Returns all records from the beginning (or an offset) to the end, by partition."""


def by_partition(records: Iterable[Record]) -> list[Record]:
    """Returns the records by partition, in order."""
    return sorted(records, key=lambda record: record.partition)


class Confluent:
    name = "confluent-kafka"
    writes_timestamps = True

    def can_write(self, record: Record) -> bool:
        return True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(self, **settings: Any) -> confluent.Producer:
        return confluent.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "enable.idempotence": False,
                "acks": "all",
                "linger.ms": 20,
                "batch.size": BATCH_BYTES,
                "message.max.bytes": REQUEST_BYTES,
                "max.in.flight.requests.per.connection": 1,
                **_dotted(settings),
            }
        )

    def consumer(self, **settings: Any) -> confluent.Consumer:
        return confluent.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "group.id": "not used",  # the library requires one
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                **_dotted(settings),
            }
        )

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", **settings: Any) -> list[Ack]:
        producer = self.producer(compression_type=codec, **settings)
        acks = [Ack(error=-1) for _ in records]

        def report(number: int, error: confluent.KafkaError | None, message: confluent.Message) -> None:
            done = Ack(message.offset() or 0, message.timestamp()[1])
            acks[number] = done if error is None else Ack(error=error.code())

        for number, record in enumerate(records):
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=lambda error, message, number=number: report(number, error, message),
                timestamp=record.timestamp or 0,
                headers=list(record.headers) or None,
            )
        assert producer.flush(TIMEOUT_SECONDS) == 0, "records were left in the queue"
        return acks

    def read(self, topic: str, partitions: Iterable[int], start: int | None = None, **settings: Any) -> list[Record]:
        found: list[Record] = []
        consumer = self.consumer(**settings)
        unfinished = set(partitions)
        at = confluent.OFFSET_BEGINNING if start is None else start
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            consumer.assign([confluent.TopicPartition(topic, each, at) for each in unfinished])
            while unfinished:
                assert time.monotonic() < deadline, f"partitions {unfinished} were not read in time"
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append(confluent_record(message))
                else:
                    assert error.code() == confluent.KafkaError._PARTITION_EOF, error
                    unfinished.discard(message.partition() or 0)
        finally:
            consumer.close()
        return by_partition(found)


def confluent_record(message: confluent.Message) -> Record:
    headers: Headers = tuple(message.headers() or ())  # type: ignore[arg-type]
    timestamp = message.timestamp()[1]
    return Record(message.partition() or 0, message.key(), message.value(), headers, timestamp, message.offset() or 0)


class KafkaPython:
    """kafka-python; codecs whose libraries are not installed use aiokafka's functions."""

    name = "kafka-python"
    writes_timestamps = True

    def can_write(self, record: Record) -> bool:
        return (record.key, record.value) != (None, None) and all(value is not None for _, value in record.headers)

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        _bring_codecs()

    def producer(self, **settings: Any) -> Any:
        return kafka.KafkaProducer(
            **{
                "bootstrap_servers": self.bootstrap,
                "enable_idempotence": False,
                "acks": "all",
                "linger_ms": 20,
                "batch_size": BATCH_BYTES,
                "max_request_size": REQUEST_BYTES,
                "max_in_flight_requests_per_connection": 1,
                **settings,
            }
        )

    def consumer(self, **settings: Any) -> Any:
        return kafka.KafkaConsumer(
            **{
                "bootstrap_servers": self.bootstrap,
                "group_id": None,
                "enable_auto_commit": False,
                "auto_offset_reset": "earliest",
                **settings,
            }
        )

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", **settings: Any) -> list[Ack]:
        producer = self.producer(compression_type=None if codec == "none" else codec, **settings)
        try:
            futures = [
                producer.send(topic, each.value, each.key, list(each.headers), each.partition, each.timestamp)
                for each in records
            ]
            producer.flush(TIMEOUT_SECONDS)
            return [self._ack(future) for future in futures]
        finally:
            producer.close()

    @staticmethod
    def _ack(future: Any) -> Ack:
        try:
            done = future.get(TIMEOUT_SECONDS)
        except kafka.errors.BrokerResponseError as error:
            return Ack(error=error.errno)
        return Ack(done.offset, done.timestamp)

    def read(self, topic: str, partitions: Iterable[int], start: int | None = None, **settings: Any) -> list[Record]:
        found: list[Record] = []
        tps = [kafka.TopicPartition(topic, each) for each in partitions]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with self.consumer(**settings) as consumer:
            consumer.assign(tps)
            ends = consumer.end_offsets(tps)
            if start is None:
                consumer.seek_to_beginning(*tps)
            else:
                for tp in tps:
                    consumer.seek(tp, start)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                assert time.monotonic() < deadline, "the end was not reached in time"
                for messages in consumer.poll(timeout_ms=500).values():
                    found += map(python_record, messages)
        return by_partition(found)


def python_record(message: Any) -> Record:
    """Converts a record of kafka-python or aiokafka, which have the same fields."""
    headers = tuple((name, None if value is None else bytes(value)) for name, value in message.headers)
    return Record(message.partition, message.key, message.value, headers, message.timestamp, message.offset)


def _bring_codecs() -> None:
    for name in ("snappy", "lz4", "zstd"):
        if not getattr(kafka.codec, f"has_{name}")():
            for module in (kafka.codec, kafka.record.default_records):
                for direction in ("encode", "decode"):
                    setattr(module, f"{name}_{direction}", getattr(aiokafka.codec, f"{name}_{direction}"))
            setattr(kafka.codec, f"has_{name}", lambda: True)
            number = kafka.KafkaProducer._COMPRESSORS[name][1]
            kafka.KafkaProducer._COMPRESSORS[name] = (lambda: True, number)


class Aiokafka:
    name = "aiokafka"
    writes_timestamps = True

    def can_write(self, record: Record) -> bool:
        return (record.key, record.value) != (None, None)

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def producer(self, **settings: Any) -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(
            **{
                "bootstrap_servers": self.bootstrap,
                "enable_idempotence": False,
                "acks": "all",
                "linger_ms": 20,
                "max_batch_size": BATCH_BYTES,
                "max_request_size": REQUEST_BYTES,
                **settings,
            }
        )

    def consumer(self, **settings: Any) -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            **{
                "bootstrap_servers": self.bootstrap,
                "group_id": None,
                "enable_auto_commit": False,
                "auto_offset_reset": "earliest",
                **settings,
            }
        )

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", **settings: Any) -> list[Ack]:
        return run(self._write(topic, records, None if codec == "none" else codec, settings))

    async def _write(
        self, topic: str, records: Sequence[Record], codec: str | None, settings: dict[str, Any]
    ) -> list[Ack]:
        async with self.producer(compression_type=codec, **settings) as producer:
            futures = [
                await producer.send(topic, each.value, each.key, each.partition, each.timestamp, list(each.headers))
                for each in records
            ]
            return [await self._ack(future) for future in futures]

    @staticmethod
    async def _ack(future: Any) -> Ack:
        try:
            done = await future
        except aiokafka.errors.BrokerResponseError as error:
            return Ack(error=error.errno)
        return Ack() if done is None else Ack(done.offset, done.timestamp)  # acks=0

    def read(self, topic: str, partitions: Iterable[int], start: int | None = None, **settings: Any) -> list[Record]:
        return run(self._read(topic, list(partitions), start, settings))

    async def _read(
        self, topic: str, partitions: list[int], start: int | None, settings: dict[str, Any]
    ) -> list[Record]:
        found: list[Record] = []
        tps = [aiokafka.TopicPartition(topic, each) for each in partitions]
        async with self.consumer(**settings) as consumer:
            consumer.assign(tps)
            ends = await consumer.end_offsets(tps)
            if start is None:
                await consumer.seek_to_beginning(*tps)
            else:
                for tp in tps:
                    consumer.seek(tp, start)
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    found += map(python_record, messages)
        return by_partition(found)


def run(work: Coroutine[Any, Any, T], timeout: float = TIMEOUT_SECONDS) -> T:
    async def limited() -> T:
        async with asyncio.timeout(timeout):
            return await work

    return asyncio.run(limited())


class JavaKafkaClients:
    name = "kafka-clients"
    writes_timestamps = True

    def can_write(self, record: Record) -> bool:
        return True

    def __init__(self, java: Java) -> None:
        self.java = java

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", **settings: Any) -> list[Ack]:
        properties = {
            "enable.idempotence": "false",
            "acks": "all",
            "linger.ms": 20,
            "batch.size": BATCH_BYTES,
            "max.request.size": REQUEST_BYTES,
            "max.in.flight.requests.per.connection": 1,
            "compression.type": codec,
            **_dotted(settings),
        }
        rows = [to_fields(record) for record in records]
        answers = self.java.call("produce", topic=topic, settings=properties, records=rows)
        return [Ack(error=each["error"]) if isinstance(each, dict) else Ack(*each) for each in answers]

    def read(self, topic: str, partitions: Iterable[int], start: int | None = None, **settings: Any) -> list[Record]:
        rows = self.java.call("read", topic=topic, partitions=list(partitions), start=start, settings=_dotted(settings))
        return by_partition(map(to_record, rows))


class Kcat:
    """kcat, which cannot set timestamps, and needs a separate process for each kind of record (headers, nulls)."""

    name = "kcat"
    writes_timestamps = False

    def can_write(self, record: Record) -> bool:
        return True

    KEY_END = b"\x1d|key|\x1d"
    RECORD_END = b"\x1d|record|\x1d"
    FORMAT: ClassVar[bytes] = b"%p %o %T %K %S %h\x1d|headers|\x1d%k%s" + RECORD_END

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *args: object, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        command = ["kcat", "-q", "-b", self.bootstrap, *(a if isinstance(a, bytes) else str(a) for a in args)]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        assert done.returncode == 0 or not check, f"kcat failed: {done.stderr.decode(errors='replace')}"
        return done

    def write(self, topic: str, records: Sequence[Record], codec: str = "none", **settings: Any) -> list[Ack]:
        def kind(record: Record) -> tuple[int, Headers, bool]:
            return record.partition, record.headers, None in (record.key, record.value)

        for (partition, headers, nulls), group in groupby(records, kind):
            rows = [(each.key or b"") + self.KEY_END + (each.value or b"") for each in group]
            options: list[object] = ["-t", topic, "-p", partition, "-z", codec, "-K", self.KEY_END]
            options += ["-D", self.RECORD_END, *(["-Z"] if nulls else [])]
            for name, value in headers:
                options += ["-H", name.encode() if value is None else name.encode() + b"=" + value]
            for key, value in {"message.max.bytes": REQUEST_BYTES, "acks": "all", **_dotted(settings)}.items():
                options += ["-X", f"{key}={value}"]
            self.run("-P", *options, stdin=self.RECORD_END.join(rows))
        return []

    def read(self, topic: str, partitions: Iterable[int], start: int | None = None, **settings: Any) -> list[Record]:
        found = []
        options = [
            f"-X{key}={value}"
            for key, value in {"check.crcs": "true", "fetch.wait.max.ms": 20, **_dotted(settings)}.items()
        ]
        for partition in partitions:
            at = "beginning" if start is None else start
            out = self.run("-C", "-t", topic, "-p", partition, "-o", at, "-e", "-f", self.FORMAT, *options).stdout
            while out:
                head, _, rest = out.partition(b"\x1d|headers|\x1d")
                fields, numbers = head.split(b" ", 5), [int(each) for each in head.split(b" ", 5)[:5]]
                key_size, value_size = numbers[3], numbers[4]
                key, value = rest[: max(key_size, 0)], rest[max(key_size, 0) : max(key_size, 0) + max(value_size, 0)]
                found.append(
                    Record(
                        numbers[0],
                        None if key_size < 0 else key,
                        None if value_size < 0 else value,
                        self._headers(fields[5]),
                        numbers[2],
                        numbers[1],
                    )
                )
                out = rest[len(key) + len(value) + len(self.RECORD_END) :]
        return found

    @staticmethod
    def _headers(text: bytes) -> Headers:
        """Parses name=value,name=NULL; no sample contains commas."""
        pairs = [pair.split(b"=", 1) for pair in text.split(b",")] if text else []
        return tuple((name.decode(), None if value == b"NULL" else value) for name, value in pairs)


def install_kcat() -> str | None:
    """Downloads Debian's package if it is missing; returns the reason if that fails."""
    if shutil.which("kcat"):
        return None
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return "kcat is not installed"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with apt_lock():
        for command in (["apt-get", "-qy", "install", "kcat"], ["apt-get", "-q", "update"]) * 2:
            if shutil.which("kcat"):
                return None
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if shutil.which("kcat"):
        return None
    return f"kcat cannot be installed: {done.stderr.decode(errors='replace').strip()[-300:]}"


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}
