"""librdkafka's own mock broker, which keeps record batches as it was given them, and its producer and consumer.

Batches are written to it and read from it in raw form, with the two requests that takes written out by hand.
"""

import socket
import struct
import time
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

PRODUCE, PRODUCE_VERSION = 0, 3
FETCH, FETCH_VERSION = 1, 4
TIMEOUT_SECONDS = 20.0


class MockBroker:
    """A broker that lives as long as the producer inside which librdkafka runs it."""

    def __init__(self) -> None:
        self._host = Producer({"bootstrap.servers": "replaced", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self._host.list_topics(timeout=TIMEOUT_SECONDS).brokers.values()
        self._address = (broker.host, broker.port)

    def __enter__(self) -> "MockBroker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._host.flush(TIMEOUT_SECONDS)

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self._address)

    def send(self, topic: str, rows: list[tuple[Any, Any, int, Any]], **config: Any) -> None:
        """Sends rows with librdkafka's producer, as one batch unless it decides otherwise."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50, "log_level": 0} | config)
        for key, value, timestamp, headers in rows:
            producer.produce(topic, value, key, 0, timestamp=timestamp, headers=headers or None)
        assert producer.flush(TIMEOUT_SECONDS) == 0, "messages were left in the queue"

    def receive(self, topic: str, count: int) -> list[Message]:
        """What librdkafka's consumer gets of a topic, whose CRCs it checks."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "check.crcs": True,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        found: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while len(found) < count and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append(message)
        finally:
            consumer.close()
        return found

    def write(self, topic: str, batch: bytes) -> int:
        """Appends a batch as it is and returns the base offset that it was given."""
        self._host.list_topics(topic, timeout=TIMEOUT_SECONDS)  # asking for a topic makes it
        body = struct.pack(">hhi", -1, 1, 10_000) + _one(_text(topic) + _one(struct.pack(">ii", 0, len(batch)) + batch))
        reply = self._call(PRODUCE, PRODUCE_VERSION, body)
        partitions_at = 4 + 4 + len(_text(topic)) + 4
        _, error, base_offset = struct.unpack_from(">ihq", reply, partitions_at)
        assert error == 0, f"the broker refused the batch with error {error}"
        return base_offset

    def read(self, topic: str) -> bytes:
        """All batches of a topic, as they are stored. One request gets one batch from this broker."""
        stored, offset, end = b"", 0, 1
        while offset < end:
            batch, end = self._fetch(topic, offset)
            base_offset, last_offset_delta = struct.unpack_from(">q15xi", batch)
            stored += batch
            offset = base_offset + last_offset_delta + 1
        return stored

    def _fetch(self, topic: str, offset: int) -> tuple[bytes, int]:
        """The batch at an offset, and the high watermark."""
        body = struct.pack(">iiiib", -1, 100, 1, 1 << 24, 0) + _one(
            _text(topic) + _one(struct.pack(">iqi", 0, offset, 1 << 24))
        )
        reply = self._call(FETCH, FETCH_VERSION, body)
        partitions_at = 4 + 4 + 4 + len(_text(topic)) + 4
        _, error, high_watermark, _, aborted = struct.unpack_from(">ihqqi", reply, partitions_at)
        assert (error, max(aborted, 0)) == (0, 0)
        size_at = partitions_at + struct.calcsize(">ihqqi")
        (size,) = struct.unpack_from(">i", reply, size_at)
        assert len(reply) == size_at + 4 + size
        return reply[size_at + 4 :], high_watermark

    def _call(self, api: int, version: int, body: bytes) -> bytes:
        no_client_id = -1
        request = struct.pack(">hhih", api, version, 1, no_client_id) + body
        with (
            socket.create_connection(self._address, TIMEOUT_SECONDS) as connection,
            connection.makefile("rb") as replies,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", replies.read(4))
            return replies.read(size)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _one(element: bytes) -> bytes:
    """An array of one element."""
    return struct.pack(">i", 1) + element
