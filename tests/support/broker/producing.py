"""A broker's Produce path without sockets: a dispatcher with real partitions, and the responses that it sends."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.support.broker.replicas import TOPIC_ID, TP, TP_1, Replicas

from headrace.broker import handlers
from headrace.broker._fast_produce import FastProduce
from headrace.broker.apis import REGISTRY
from headrace.broker.dispatch import Dispatcher
from headrace.broker.partition import Partition
from headrace.common.errors import InvalidTxnStateError
from headrace.common.metrics import Metrics
from headrace.common.types import TopicPartition
from headrace.net.connection import ServerConnection
from headrace.protocol import encode_request
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

SLOW_MS = 1000
MAX_ELEMENTS = 1000


class _Connection:
    """Keeps the responses."""

    listener_name = "PLAINTEXT"
    peer = ("127.0.0.1", 1)
    context: Any = None
    closed = False
    authentication: Any = None

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def __str__(self) -> str:
        return "127.0.0.1:1"

    def expect_response(self) -> Any:
        return SimpleNamespace(send=lambda frame: self.sent.append(bytes(frame)))

    def retain(self, _: int) -> None:
        pass

    def close(self, _: str) -> None:
        self.closed = True


class _Image:
    """Knows the id of one topic."""

    def topic_name(self, topic_id: object) -> str | None:
        return TP.topic if topic_id == TOPIC_ID else None

    def partition(self, *_: object) -> None:
        return None


class _Transactions:
    def check_append(self, *_: object) -> None:
        raise InvalidTxnStateError("no transaction")


class ProducePath:
    """Leads `tps`. Counts the requests that the compiled path completed, and those that it began."""

    def __init__(
        self, directory: Path, *, is_fast: bool = True, tps: Sequence[TopicPartition] = (TP, TP_1), **topic: object
    ):
        handlers.load()
        self.replicas = Replicas(directory, **topic)
        for tp in tps:
            self.lead(tp)
        image = cast(Any, _Image())
        services = dict.fromkeys(name for api in REGISTRY.values() for name in api.services)
        given = {"image": image, "replicas": self.replicas, "transactions": _Transactions()}
        self.metrics = Metrics()
        self.dispatcher = Dispatcher(
            cast(Any, SimpleNamespace(**{**services, **given})),
            self.replicas.clock,
            self.metrics,
            SLOW_MS,
            MAX_ELEMENTS,
        )
        self.connection = _Connection()
        self.completed = self.begun = 0
        if is_fast:
            fast = FastProduce(self.replicas, image, self.replicas.clock)
            counted = SimpleNamespace(handle=lambda frame, writable: self._count(fast, frame, writable))
            self.dispatcher.fast_produce = cast(FastProduce, counted)

    def _count(self, fast: FastProduce, frame: memoryview, writable: Any) -> Any:
        result = fast.handle(frame, writable)
        self.completed += isinstance(result, bytes)
        self.begun += isinstance(result, list)
        return result

    def __enter__(self) -> "ProducePath":
        return self

    def __exit__(self, *_: object) -> None:
        self.replicas.manager.close()

    def lead(self, tp: TopicPartition = TP, **changes: Any) -> Partition:
        partition = self.replicas.lead(tp, **changes)
        assert partition.log is not None
        partition.log.config = self.replicas.config.log
        return partition

    def receive(self, frame: bytes) -> None:
        """Handles a frame without its size field."""
        self.dispatcher.frame_received(cast(ServerConnection, self.connection), memoryview(bytearray(frame)))

    def produce(self, *batches: tuple[int, bytes | bytearray | None], acks: int = 1, version: int = 13) -> bytes:
        """Produces to partitions of the topic by index. Returns the response, or nothing."""
        before = len(self.connection.sent)
        self.receive(produce_frame(batches, acks=acks, version=version))
        return b"".join(self.connection.sent[before:])


def produce_frame(
    batches: Sequence[tuple[int, bytes | bytearray | None]],
    *,
    acks: int = 1,
    version: int = 13,
    topic: str = TP.topic,
    topic_id: Any = TOPIC_ID,
    transactional_id: str | None = None,
    client_id: str | None = "client",
) -> bytes:
    """Returns a request without its size field."""
    data = [PartitionProduceData(index=index, records=records) for index, records in batches]
    topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)
    assert ApiKey.PRODUCE == 0
    return b"".join(bytes(part) for part in _parts(encode_request(request, version, 5, client_id)))[4:]


def _parts(frame: Any) -> Sequence[Any]:
    return [frame] if isinstance(frame, bytes | bytearray | memoryview) else frame


def state_of(path: ProducePath) -> list[object]:
    """Returns everything that appends change: files, indexes, offsets, producers."""
    found: list[object] = []
    for log in sorted(path.replicas.logs, key=lambda log: log.tp):
        producers = log.producers
        found.append((log.tp, log.log_end_offset, log.high_watermark, log.log_start_offset, log.recovery_point))
        found.append((producers.entries, producers.end_offset, log.epochs.entries, len(log._failed_appends)))
        for segment in log.segments:
            content = segment.file.read_at(segment.size, 0) if segment.size else b""
            found.append((segment.base_offset, segment.size, content, segment._bytes_since_index))
            found.append((segment.offset_index.entries(), segment.time_index.entries()))
            found.append((segment._last_batch, segment.max_timestamp, segment._first_batch_timestamp))
    return found
