"""Producers of the Java client and of librdkafka behind one interface, and a consumer."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

from tests.support.apache_kafka.jvm import TOOL_JVM_ARGS, JavaFailed, start_java

if TYPE_CHECKING:
    from confluent_kafka import Message

DRIVER = Path(__file__).parents[1] / "java" / "ProducerDriver.java"

Headers = tuple[tuple[str, bytes | None], ...]
State = Literal["plain", "committed", "aborted", "open"]


@dataclass(frozen=True)
class SampleRecord:
    """A record as readers must see it; *state* is that of its transaction, if it has one."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    state: State = "plain"
    writer: str = ""

    @property
    def content(self) -> tuple[int, int, bytes | None, bytes | None, Headers]:
        """The fields to compare with a record that was read."""
        return (self.offset, self.timestamp, self.key, self.value, self.headers)


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
    """A JVM with Kafka producers. Killing it leaves their transactions open."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._count = 0
        self._temporary = tempfile.TemporaryDirectory(prefix="headrace-java-")
        self._process = start_java(
            DRIVER,
            jvm_args=[*TOOL_JVM_ARGS, f"-Djava.io.tmpdir={self._temporary.name}"],
            log_level="ERROR",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

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
        """Opens a producer. By default, all records between two syncs are one batch."""
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
        """Sends a command and returns the fields of its response."""
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
            raise JavaFailed(f"{line[:200]!r} failed: {answer}")
        return answer[1:]

    def exit(self) -> None:
        """Kills the JVM without closing the producers."""
        self._process.kill()
        self._process.communicate()
        self._temporary.cleanup()


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


def read_back(
    bootstrap: str,
    topic: str,
    partition: int = 0,
    *,
    read_committed: bool = False,
    timeout: float = 60.0,
) -> list[SampleRecord]:
    """Returns all records that librdkafka's consumer reads from a partition."""
    tp = (topic, partition)
    return read_back_all(bootstrap, [tp], read_committed=read_committed, timeout=timeout)[tp]


def read_back_all(
    bootstrap: str,
    partitions: Iterable[tuple[str, int]],
    *,
    read_committed: bool = False,
    timeout: float = 60.0,
) -> dict[tuple[str, int], list[SampleRecord]]:
    """Like `read_back`, for many partitions with one consumer, which saves half a second each."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "headrace-read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        }
    )
    found: dict[tuple[str, int], list[SampleRecord]] = {tp: [] for tp in partitions}
    unfinished = set(found)
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([TopicPartition(*tp, OFFSET_BEGINNING) for tp in found])
        while unfinished and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            tp = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                found[tp].append(_from_message(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(tp)
            else:
                raise RuntimeError(f"{tp}: {error}")
    finally:
        consumer.close()
    if unfinished:
        raise TimeoutError(f"{sorted(unfinished)} were not read in {timeout:.0f} s")
    return found


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
