"""Batches and futures."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.errors import IllegalArgumentError, KafkaTimeoutError, SerializationError
from headrace.client.producer._batch import FutureRecordMetadata, ProducerBatch
from headrace.client.producer._send import RecordAppender, SerializedRecord, TopicQueues
from headrace.client.producer.serializers import prepare
from headrace.client.types import RecordMetadata
from headrace.common.errors import ConfigError, InvalidRecordError, KafkaError
from headrace.common.types import TopicPartition
from headrace.records import BATCH_HEADER_BYTES, Compression, RecordBatch, decode_rows, encode_rows
from headrace.testing.clock import ManualClock

TP = TopicPartition("t", 0)


class Path(RecordAppender):
    """Keeps what does not fit the open batch."""

    def __init__(self, partitions: int = 1) -> None:
        self._clock = self.clock = ManualClock()
        self.placed: list[SerializedRecord] = []
        queues = TopicQueues("t")
        queues.set_leaders([1] * partitions)
        queues.sticky = queues.queues[0]
        self._topics = {"t": queues}

    def open(self, partition: int = 0, size: int = 1000, codec: Compression = Compression.NONE) -> ProducerBatch:
        queue = self._topics["t"].queues[partition]
        queue.open_batch = ProducerBatch(queue.tp, bytearray(size), 0.0, codec)
        return queue.open_batch

    def _append_to_accumulator(self, record: SerializedRecord) -> Any:
        self.placed.append(record)
        return record


def rows_of(batch: ProducerBatch) -> list[Any]:
    records = decode_rows(RecordBatch(batch.build()).records())
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in records]


def test_encodes_records() -> None:
    path = Path()
    batch = path.open()
    sent = [
        (b"k", b"v", 1_000, []),
        (None, b"", 2_000, [("h", b"1"), ("h", None)]),
        (b"", None, 500, []),
        (b"k" * 100, b"v" * 300, 1_700_000_000_000, [("ümlaut", b"x" * 70)]),
    ]
    for key, value, timestamp, headers in sent:
        path.send("t", value, key, headers, timestamp_ms=timestamp)
    assert len(batch) == 4
    assert rows_of(batch) == sent
    expected = encode_rows([(key, value, timestamp, headers) for key, value, timestamp, headers in sent])
    assert batch.data == expected


@pytest.mark.parametrize("codec", list(Compression))
def test_compresses_batch_in_build(codec: Compression) -> None:
    path = Path()
    batch = path.open(codec=codec)
    path.send("t", b"a" * 500)
    batch.set_producer(7, 3, 11, True)
    built = RecordBatch(batch.build())
    built.check_crc()
    assert built.codec == codec
    assert (built.producer_id, built.producer_epoch, built.base_sequence, built.is_transactional) == (7, 3, 11, True)
    assert batch.size_in_bytes == len(batch.data or b"")


def test_set_producer_patches_built_batch() -> None:
    path = Path()
    batch = path.open()
    path.send("t", b"v")
    batch.set_producer(7, 0, 5, False)
    first = batch.build()
    before = bytes(first)
    batch.in_flight = True
    batch.set_producer(7, 1, 0, False)
    assert bytes(first) == before, "what is on the wire has changed"
    built = RecordBatch(batch.build())
    built.check_crc()
    assert (built.producer_epoch, built.base_sequence) == (1, 0)
    assert (batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (1, 0, 0)


def test_full_or_closed_batch_refuses_records() -> None:
    path = Path()
    batch = path.open(size=BATCH_HEADER_BYTES + 100)
    assert isinstance(path.send("t", b"v" * 40), FutureRecordMetadata)
    assert isinstance(path.send("t", b"v" * 40), SerializedRecord)
    assert len(batch) == 1
    assert isinstance(path.send("t", b"v"), SerializedRecord) or len(batch) == 2
    batch.close()
    assert isinstance(path.send("t"), SerializedRecord)


def test_grow_enlarges_batch() -> None:
    path = Path()
    batch = path.open(size=200)
    path.send("t", b"v" * 50)
    request: Any = path.send("t", b"w" * 150)
    assert request.append_to(batch) is None
    batch.grow(1000)
    assert batch.capacity == 1000
    assert request.append_to(batch) is not None
    assert [value for _, value, _, _ in rows_of(batch)] == [b"v" * 50, b"w" * 150]


def test_move_changes_buffer() -> None:
    path = Path()
    batch = path.open(size=200)
    path.send("t", b"v" * 50)
    buffer = bytearray(1000)
    batch.move(bytearray(100))
    batch.move(buffer)
    assert batch.capacity == 1000
    path.send("t", b"w" * 150)
    assert [value for _, value, _, _ in rows_of(batch)] == [b"v" * 50, b"w" * 150]
    assert batch.detach() == (buffer, 1000)
    batch.move(bytearray(2000))
    assert batch.buffer is None, "a batch that is closed stays where it is"


def test_futures_complete_with_their_batch() -> None:
    path = Path()
    batch = path.open()
    futures = [path.send("t", b"v" * n, key=b"k", headers={"h": b"1"}, timestamp_ms=100 + n) for n in range(3)]
    assert not any(each.is_done or each.succeeded() or each.failed() for each in futures)
    assert futures[0].value is None
    with pytest.raises(KafkaTimeoutError):
        futures[0].get(timeout_ms=0)
    assert batch.complete(40, -1)
    assert futures[2].get() == RecordMetadata("t", 0, 42, 102, 1, 2, 4)
    assert futures[2].value == futures[2].get(timeout_ms=0)
    assert all(each.succeeded() and not each.failed() for each in futures)
    assert not batch.complete(50, -1), "a batch is done once"
    assert not batch.fail(KafkaError("late"))


def test_log_append_time_replaces_timestamp() -> None:
    path = Path()
    batch = path.open()
    future = path.send("t", b"v", timestamp_ms=5)
    batch.complete(0, 777)
    assert future.get().timestamp == 777


def test_failed_batch_fails_its_futures() -> None:
    path = Path()
    batch = path.open()
    futures = [path.send("t", b"v") for _ in range(3)]
    batch.fail(InvalidRecordError("others of the batch were refused"), {1: InvalidRecordError("no key")})
    for future, text in zip(futures, ["others", "no key", "others"], strict=True):
        assert future.failed()
        with pytest.raises(InvalidRecordError, match=text):
            future.get()
        assert not future.retriable()


def test_calls_callbacks_once_in_order() -> None:
    path = Path()
    batch = path.open()
    heard: list[Any] = []
    first = path.send("t", b"1", on_delivery=lambda error, metadata: heard.append(("delivery", error, metadata.offset)))
    second = path.send("t", b"2")
    second.add_callback(lambda tag, metadata, more: heard.append((tag, metadata.offset, more)), "tag", more=9)
    second.add_errback(lambda error: heard.append(error))
    second.add_both(lambda outcome: heard.append(outcome.offset))
    batch.complete(10, -1)
    first.add_callback(lambda metadata: heard.append("late"))
    assert heard == [("delivery", None, 10), ("tag", 11, 9), 11, "late"]


def test_calls_errbacks_and_logs_failing_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    path = Path()
    batch = path.open()
    heard: list[Any] = []
    future = path.send("t", b"1", on_delivery=lambda error, metadata: heard.append((error, metadata.offset)))
    future.add_callback(heard.append)
    future.add_errback(lambda error: 1 / 0)
    future.add_errback(heard.append)
    error = KafkaError("no")
    batch.fail(error)
    assert heard == [(error, -1), error]
    assert "callback" in caplog.text


def test_futures_follow_split_batch() -> None:
    path = Path()
    batch = path.open(size=10_000)
    heard: list[int] = []
    futures = [
        path.send("t", b"v" * 90, key=str(n).encode(), on_delivery=lambda _, metadata: heard.append(metadata.offset))
        for n in range(20)
    ]
    whole = rows_of(batch)
    parts = batch.split(500)
    assert len(parts) > 3
    assert [row for part in parts for row in rows_of(part)] == whole
    assert not futures[0].is_done
    offset = 0
    for part in parts[:-1]:
        part.complete(offset, -1)
        offset += len(part)
    smaller = parts[-1].split(1)
    assert [len(part) for part in smaller] == [1] * len(smaller)
    for part in smaller:
        part.complete(offset, -1)
        offset += 1
    assert [future.get(timeout_ms=0).offset for future in futures] == list(range(20))
    assert heard == list(range(20))


def test_get_continues_to_wait_after_split() -> None:
    path = Path()
    batch = path.open()
    future = path.send("t", b"v")
    path.send("t", b"w")
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(future.get(timeout_ms=60_000).offset))
    thread.start()
    parts = batch.split(1)
    parts[0].complete(5, -1)
    parts[1].fail(KafkaError("no"))
    thread.join(60)
    assert found == [5]


def test_releases_callbacks_after_calling_them() -> None:
    class Heard(list[Any]):
        pass

    path = Path()
    batch = path.open()
    heard = Heard()
    reference = weakref.ref(heard)
    future = path.send("t", b"v", on_delivery=lambda *outcome, heard=heard: heard.append(outcome))
    batch.complete(0, -1)
    assert len(heard) == 1
    del heard
    gc.collect()
    assert reference() is None
    assert future.succeeded()


def test_futures_cannot_be_constructed() -> None:
    with pytest.raises(TypeError):
        FutureRecordMetadata()
    with pytest.raises(TypeError):
        SerializedRecord()


# ---- the way of a record


def test_partitions_keys_like_java() -> None:
    path = Path(partitions=7)
    for number in range(7):
        path.open(number)
    for key, value in {b"21": -973932308, b"foobar": -790332482}.items():
        future = path.send("t", b"v", key=key)
        assert f"t-{(value & 0x7FFFFFFF) % 7}," in repr(future)


def test_uses_sticky_partition_without_key() -> None:
    path = Path(partitions=3)
    for number in range(3):
        path.open(number)
    path._topics["t"].sticky = path._topics["t"].queues[2]
    assert "t-2," in repr(path.send("t", b"v"))
    path._ignore_keys = True
    assert "t-2," in repr(path.send("t", b"v", key=b"21"))


def test_calls_custom_partitioner() -> None:
    path = Path(partitions=3)
    path.open(1)
    asked: list[Any] = []
    path._partitioner = lambda key, partitions, available: asked.append((key, partitions, available)) or 1
    assert "t-1," in repr(path.send("t", b"v", key=b"k"))
    assert asked == [(b"k", [0, 1, 2], [0, 1, 2])]
    path._partitioner = lambda *_: 3
    with pytest.raises(IllegalArgumentError, match="partition 3"):
        path.send("t", b"v")


def test_explicit_partition_takes_precedence() -> None:
    path = Path(partitions=2)
    path.open(1)
    path._partitioner = lambda *_: 0
    assert "t-1," in repr(path.send("t", b"v", key=b"k", partition=1))
    request: Any = path.send("t", b"v", partition=5)
    assert request.partition == 5
    assert not path._choose_partition(request)
    with pytest.raises(IllegalArgumentError):
        path.send("t", b"v", partition=-1)


def test_unknown_topic_needs_metadata() -> None:
    path = Path()
    request: Any = path.send("other", b"v", key=b"21")
    assert (request.topic, request.value, request.key, request.partition) == ("other", b"v", b"21", -1)
    assert not path._choose_partition(request)
    queues = TopicQueues("other")
    queues.set_leaders([1, 1, 1])
    path._topics["other"] = queues
    assert path._choose_partition(request)
    assert request.partition == (-973932308 & 0x7FFFFFFF) % 3


def test_uses_injected_clock_for_timestamps() -> None:
    path = Path()
    batch = path.open()
    path.send("t", b"v")
    assert rows_of(batch)[0][2] == path.clock.time_ms()
    with pytest.raises(IllegalArgumentError):
        path.send("t", b"v", timestamp_ms=-1)


def test_serializes_key_and_value() -> None:
    class Upper:
        def serialize(self, topic: str, data: str) -> bytes:
            return f"{topic}:{data}".upper().encode()

    path = Path()
    batch = path.open()
    path._key_serializer = prepare(str.encode)
    path._value_serializer = prepare(Upper())
    path.send("t", "v", key="k")
    assert rows_of(batch)[0][:2] == (b"k", b"T:V")
    with pytest.raises(SerializationError, match="key serializer failed for topic 't'"):
        path.send("t", "v", key=3)


def test_serializer_may_add_headers() -> None:
    class Typed:
        def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: object) -> bytes:
            headers.append(("type", type(data).__name__.encode()))
            return f"{topic}:{data}".encode()

    path = Path()
    batch = path.open()
    path._value_serializer = prepare(Typed())
    given = [("h", b"1")]
    path.send("t", 5, headers=given)
    path.send("t", "v", headers={"h": b"2"})
    path.send("t", None)
    assert [(value, headers) for _, value, _, headers in rows_of(batch)] == [
        (b"t:5", [("h", b"1"), ("type", b"int")]),
        (b"t:v", [("h", b"2"), ("type", b"str")]),
        (b"t:None", [("type", b"NoneType")]),
    ]
    assert given == [("h", b"1")]


def test_rejects_invalid_serializers() -> None:
    assert prepare(None) is None
    with pytest.raises(ConfigError, match="a serializer must be a function or have a method `serialize`, not int"):
        prepare(5)


class Named(str):
    def __str__(self) -> str:
        return "another"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": b"t"}, "Topic names must be str, not bytes"),
        ({"topic": None}, "Topic names must be str, not NoneType"),
        ({"partition": "0"}, "partition must be an int .*, not str"),
        ({"partition": 0.0}, "partition must be an int .*, not float"),
        ({"timestamp_ms": 1.5}, "timestamp_ms must be an int .milliseconds since 1970., not float"),
        ({"headers": 5}, "not iterable"),
        ({"headers": ["name"]}, "a header must be a pair of a name and bytes or None, not 'name'"),
        ({"headers": [("name", b"1", b"2")]}, "a header must be a pair"),
    ],
)
def test_rejects_arguments_of_wrong_type(arguments: dict[str, Any], words: str) -> None:
    path = Path()
    path.open()
    with pytest.raises(TypeError, match=words):
        path.send(**{"topic": "t", "value": b"v", **arguments})


@pytest.mark.parametrize("arguments", [{"partition": 2**31}, {"timestamp_ms": 2**63}, {"timestamp_ms": -(2**70)}])
def test_rejects_arguments_out_of_range(arguments: dict[str, Any]) -> None:
    path = Path()
    path.open()
    with pytest.raises(ValueError, match=r"=-?[0-9]+ is not valid"):
        path.send("t", b"v", **arguments)


def test_accepts_topic_of_str_subclass() -> None:
    path = Path()
    path.open()
    assert isinstance(path.send(Named("t"), b"v"), FutureRecordMetadata)


def test_rejects_str_value_with_hint_at_serializer() -> None:
    path = Path()
    path.open()
    with pytest.raises(TypeError, match="value_serializer"):
        path.send("t", "text")
    with pytest.raises(TypeError, match="key_serializer"):
        path.send("t", b"v", key=5)
    with pytest.raises(TypeError, match="header"):
        path.send("t", b"v", headers=[("h", "text")])
    assert isinstance(path.send("t", bytearray(b"v"), key=memoryview(b"k")), FutureRecordMetadata)


def test_send_raises_error_of_check_state() -> None:
    path = Path()
    path.open()

    def shut() -> None:
        raise KafkaError("shut")

    path._check_state = shut
    with pytest.raises(KafkaError, match="shut"):
        path.send("t", b"v")


def test_refused_record_returns_failed_future() -> None:
    path = Path()
    heard: list[Any] = []
    request: Any = path.send("other", b"v", on_delivery=lambda error, metadata: heard.append((error, metadata.topic)))
    error = KafkaError("no")
    future = request.fail(error)
    assert future.failed()
    assert heard == [(error, "other")]


class Litter:
    """Garbage that runs code when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)  # gives the GIL away


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as can be, and the collector runs all the time."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("restless")
def test_threads_append_to_one_batch_without_lock() -> None:
    path = Path()
    batch = path.open(size=2_000_000)
    start = threading.Barrier(4)
    futures: dict[int, list[FutureRecordMetadata]] = {}
    heard: list[int] = []

    def send(number: int) -> None:
        start.wait()
        mine = futures[number] = []
        for n in range(2000):
            Litter()
            mine.append(
                path.send(
                    "t",
                    b"%d:%d" % (number, n),
                    headers=[("h", b"")],
                    on_delivery=lambda _, metadata: heard.append(metadata.offset),
                )
            )

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batch.complete(0, -1)
    values = [value for _, value, _, _ in rows_of(batch)]
    assert len(values) == 8000
    assert heard == list(range(8000))
    for number, mine in futures.items():
        for n, future in enumerate(mine):
            assert values[future.get(timeout_ms=0).offset] == b"%d:%d" % (number, n)


@pytest.mark.usefixtures("restless")
def test_batch_closed_and_grown_concurrently_keeps_every_record_with_future() -> None:
    path = Path()
    path.open(size=300)
    kept: dict[int, list[tuple[FutureRecordMetadata, bytes]]] = {}
    done = threading.Event()

    def send(number: int) -> None:
        mine = kept[number] = []
        n = 0
        while not done.is_set():
            value = b"%d:%d" % (number, n)
            future = path.send("t", value)
            if isinstance(future, FutureRecordMetadata):
                mine.append((future, value))
                n += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    built: list[bytes | None] = []
    for round_number in range(200):
        batch = path._topics["t"].queues[0].open_batch
        assert batch is not None
        if round_number % 2:
            batch.grow(300 * (round_number % 7 + 1))
        else:
            batch.move(bytearray(300 * (round_number % 7 + 1)))
        Litter()
        path.open(size=300)
        batch.close()
        if len(batch):
            batch.complete(len(built), -1)
            built += [value for _, value, _, _ in rows_of(batch)]
    done.set()
    for thread in threads:
        thread.join()
    last = path._topics["t"].queues[0].open_batch
    assert last is not None
    if len(last):
        last.complete(len(built), -1)
        built += [value for _, value, _, _ in rows_of(last)]
    sent = [pair for mine in kept.values() for pair in mine]
    assert len(sent) == len(built)
    for future, value in sent:
        assert built[future.get(timeout_ms=0).offset] == value
