"""librdkafka's mock broker, which stores record batches unchanged, with librdkafka's producer and consumer.

Raw batches are written and read with hand-written Produce and Fetch requests.
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
    """A mock broker. librdkafka runs it inside a producer, and stops it with that."""

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
        """Sends rows with librdkafka's producer, which normally puts them into one batch."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50, "log_level": 0} | config)
        for key, value, timestamp, headers in rows:
            producer.produce(topic, value, key, 0, timestamp=timestamp, headers=headers or None)
        assert producer.flush(TIMEOUT_SECONDS) == 0, "messages were left in the queue"

    def receive(self, topic: str, count: int) -> list[Message]:
        """Returns the messages that librdkafka's consumer reads from a topic. It checks CRCs."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "check.crcs": True,
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )
        messages: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while len(messages) < count and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None:
                    assert message.error() is None, message.error()
                    messages.append(message)
        finally:
            consumer.close()
        return messages

    def write(self, topic: str, batch: bytes) -> int:
        """Appends a batch unchanged and returns its base offset."""
        self._host.list_topics(topic, timeout=TIMEOUT_SECONDS)  # a metadata request creates the topic
        body = struct.pack(">hhi", -1, 1, 10_000) + _array_of_one(
            _string(topic) + _array_of_one(struct.pack(">ii", 0, len(batch)) + batch)
        )
        response = self._call(PRODUCE, PRODUCE_VERSION, body)
        partitions_at = 4 + 4 + len(_string(topic)) + 4
        _, error, base_offset = struct.unpack_from(">ihq", response, partitions_at)
        assert error == 0, f"the broker rejected the batch with error {error}"
        return base_offset

    def read(self, topic: str) -> bytes:
        """Returns all batches of a topic as they are stored. This broker returns one batch per request."""
        stored, offset, end = b"", 0, 1
        while offset < end:
            batch, end = self._fetch(topic, offset)
            base_offset, last_offset_delta = struct.unpack_from(">q15xi", batch)
            stored += batch
            offset = base_offset + last_offset_delta + 1
        return stored

    def _fetch(self, topic: str, offset: int) -> tuple[bytes, int]:
        """Returns the batch at an offset, and the high watermark."""
        body = struct.pack(">iiiib", -1, 100, 1, 1 << 24, 0) + _array_of_one(
            _string(topic) + _array_of_one(struct.pack(">iqi", 0, offset, 1 << 24))
        )
        response = self._call(FETCH, FETCH_VERSION, body)
        partitions_at = 4 + 4 + 4 + len(_string(topic)) + 4
        _, error, high_watermark, _, aborted = struct.unpack_from(">ihqqi", response, partitions_at)
        assert (error, max(aborted, 0)) == (0, 0)
        size_at = partitions_at + struct.calcsize(">ihqqi")
        (size,) = struct.unpack_from(">i", response, size_at)
        assert len(response) == size_at + 4 + size
        return response[size_at + 4 :], high_watermark

    def _call(self, api: int, version: int, body: bytes) -> bytes:
        no_client_id = -1
        request = struct.pack(">hhih", api, version, 1, no_client_id) + body
        with (
            socket.create_connection(self._address, TIMEOUT_SECONDS) as connection,
            connection.makefile("rb") as responses,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", responses.read(4))
            return responses.read(size)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _array_of_one(element: bytes) -> bytes:
    """Encodes an array of one element."""
    return struct.pack(">i", 1) + element
