"""Batches and futures."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.client.producer_batches import OpenBatchAppender, rows_of

from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import SerializedRecord
from headrace.client.types import RecordMetadata
from headrace.common.errors import InvalidRecordError, KafkaError
from headrace.common.types import TopicPartition
from headrace.records import BATCH_HEADER_BYTES, Compression, RecordBatch, encode_rows

TP = TopicPartition("t", 0)


def test_encodes_records() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    sent = [
        (b"k", b"v", 1_000, []),
        (None, b"", 2_000, [("h", b"1"), ("h", None)]),
        (b"", None, 500, []),
        (b"k" * 100, b"v" * 300, 1_700_000_000_000, [("ümlaut", b"x" * 70)]),
    ]
    for key, value, timestamp, headers in sent:
        appender.send("t", value, key, headers, timestamp_ms=timestamp)
    assert len(batch) == 4
    assert rows_of(batch) == sent
    expected = encode_rows([(key, value, timestamp, headers) for key, value, timestamp, headers in sent])
    assert batch.data == expected


@pytest.mark.parametrize("codec", list(Compression))
def test_compresses_batch_in_build(codec: Compression) -> None:
    appender = OpenBatchAppender()
    batch = appender.open(codec=codec)
    appender.send("t", b"a" * 500)
    batch.set_producer(7, 3, 11, True)
    built = RecordBatch(batch.build())
    built.check_crc()
    assert built.codec == codec
    assert (built.producer_id, built.producer_epoch, built.base_sequence, built.is_transactional) == (7, 3, 11, True)
    assert batch.size_in_bytes == len(batch.data or b"")


def test_set_producer_patches_built_batch() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    appender.send("t", b"v")
    batch.set_producer(7, 0, 5, False)
    first = batch.build()
    before = bytes(first)
    batch.in_flight = True
    batch.set_producer(7, 1, 0, False)
    assert bytes(first) == before, "bytes that may be in flight have changed"
    built = RecordBatch(batch.build())
    built.check_crc()
    assert (built.producer_epoch, built.base_sequence) == (1, 0)
    assert (batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (1, 0, 0)


def test_full_or_closed_batch_refuses_records() -> None:
    appender = OpenBatchAppender()
    batch = appender.open(size=BATCH_HEADER_BYTES + 100)
    assert isinstance(appender.send("t", b"v" * 40), FutureRecordMetadata)
    assert isinstance(appender.send("t", b"v" * 40), SerializedRecord)
    assert len(batch) == 1
    assert isinstance(appender.send("t", b"v"), SerializedRecord) or len(batch) == 2
    batch.close()
    assert isinstance(appender.send("t"), SerializedRecord)


def test_grow_enlarges_batch() -> None:
    appender = OpenBatchAppender()
    batch = appender.open(size=200)
    appender.send("t", b"v" * 50)
    request: Any = appender.send("t", b"w" * 150)
    assert request.append_to(batch) is None
    batch.grow(1000)
    assert batch.capacity == 1000
    assert request.append_to(batch) is not None
    assert [value for _, value, _, _ in rows_of(batch)] == [b"v" * 50, b"w" * 150]


def test_move_changes_buffer() -> None:
    appender = OpenBatchAppender()
    batch = appender.open(size=200)
    appender.send("t", b"v" * 50)
    buffer = bytearray(1000)
    batch.move(bytearray(100))
    batch.move(buffer)
    assert batch.capacity == 1000
    appender.send("t", b"w" * 150)
    assert [value for _, value, _, _ in rows_of(batch)] == [b"v" * 50, b"w" * 150]
    assert batch.detach() == (buffer, 1000)
    batch.move(bytearray(2000))
    assert batch.buffer is None, "a closed batch was moved"


def test_futures_complete_with_their_batch() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    futures = [appender.send("t", b"v" * n, key=b"k", headers={"h": b"1"}, timestamp_ms=100 + n) for n in range(3)]
    assert not any(future.is_done or future.succeeded() or future.failed() for future in futures)
    assert futures[0].value is None
    with pytest.raises(KafkaTimeoutError):
        futures[0].get(timeout_ms=0)
    assert batch.complete(40, -1)
    assert futures[2].get() == RecordMetadata("t", 0, TopicPartition("t", 0), 42, 102, None, 1, 2, 4)
    assert futures[2].value == futures[2].get(timeout_ms=0)
    assert all(future.succeeded() and not future.failed() for future in futures)
    assert not batch.complete(50, -1), "a batch completes once"
    assert not batch.fail(KafkaError("late"))


def test_log_append_time_replaces_timestamp() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    future = appender.send("t", b"v", timestamp_ms=5)
    batch.complete(0, 777)
    assert future.get().timestamp == 777


def test_failed_batch_fails_its_futures() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    futures = [appender.send("t", b"v") for _ in range(3)]
    batch.fail(InvalidRecordError("others of the batch were refused"), {1: InvalidRecordError("no key")})
    for future, text in zip(futures, ["others", "no key", "others"], strict=True):
        assert future.failed()
        with pytest.raises(InvalidRecordError, match=text):
            future.get()
        assert not future.retriable()


def test_calls_callbacks_once_in_order() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    results: list[Any] = []
    first = appender.send(
        "t", b"1", on_delivery=lambda error, metadata: results.append(("delivery", error, metadata.offset))
    )
    second = appender.send("t", b"2")
    second.add_callback(lambda tag, metadata, more: results.append((tag, metadata.offset, more)), "tag", more=9)
    second.add_errback(lambda error: results.append(error))
    second.add_both(lambda outcome: results.append(outcome.offset))
    batch.complete(10, -1)
    first.add_callback(lambda metadata: results.append("late"))
    assert results == [("delivery", None, 10), ("tag", 11, 9), 11, "late"]


def test_calls_errbacks_and_logs_failing_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    results: list[Any] = []
    future = appender.send("t", b"1", on_delivery=lambda error, metadata: results.append((error, metadata.offset)))
    future.add_callback(results.append)
    future.add_errback(lambda error: 1 / 0)
    future.add_errback(results.append)
    error = KafkaError("no")
    batch.fail(error)
    assert results == [(error, -1), error]
    assert "callback" in caplog.text


def test_futures_follow_split_batch() -> None:
    appender = OpenBatchAppender()
    batch = appender.open(size=10_000)
    results: list[int] = []
    futures = [
        appender.send(
            "t", b"v" * 90, key=str(n).encode(), on_delivery=lambda _, metadata: results.append(metadata.offset)
        )
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
    assert results == list(range(20))


def test_get_continues_to_wait_after_split() -> None:
    appender = OpenBatchAppender()
    batch = appender.open()
    future = appender.send("t", b"v")
    appender.send("t", b"w")
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

    appender = OpenBatchAppender()
    batch = appender.open()
    results = Heard()
    reference = weakref.ref(results)
    future = appender.send("t", b"v", on_delivery=lambda *outcome, results=results: results.append(outcome))
    batch.complete(0, -1)
    assert len(results) == 1
    del results
    gc.collect()
    assert reference() is None
    assert future.succeeded()


def test_futures_cannot_be_constructed() -> None:
    with pytest.raises(TypeError):
        FutureRecordMetadata()
    with pytest.raises(TypeError):
        SerializedRecord()


# ---- threads


class Garbage:
    """A reference cycle with a finalizer, which runs when the garbage collector finds it."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)  # releases the GIL


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Switches threads and runs the garbage collector as often as possible."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("frequent_switches")
def test_threads_append_to_one_batch_without_lock() -> None:
    appender = OpenBatchAppender()
    batch = appender.open(size=2_000_000)
    start = threading.Barrier(4)
    futures: dict[int, list[FutureRecordMetadata]] = {}
    results: list[int] = []

    def send(number: int) -> None:
        start.wait()
        own = futures[number] = []
        for n in range(2000):
            Garbage()
            own.append(
                appender.send(
                    "t",
                    b"%d:%d" % (number, n),
                    headers=[("h", b"")],
                    on_delivery=lambda _, metadata: results.append(metadata.offset),
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
    assert results == list(range(8000))
    for number, own in futures.items():
        for n, future in enumerate(own):
            assert values[future.get(timeout_ms=0).offset] == b"%d:%d" % (number, n)


@pytest.mark.usefixtures("frequent_switches")
def test_batch_closed_and_grown_concurrently_keeps_every_record_with_future() -> None:
    appender = OpenBatchAppender()
    appender.open(size=300)
    kept: dict[int, list[tuple[FutureRecordMetadata, bytes]]] = {}
    done = threading.Event()

    def send(number: int) -> None:
        own = kept[number] = []
        n = 0
        while not done.is_set():
            value = b"%d:%d" % (number, n)
            future = appender.send("t", value)
            if isinstance(future, FutureRecordMetadata):
                own.append((future, value))
                n += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    built: list[bytes | None] = []
    for round_number in range(200):
        batch = appender._topics["t"].queues[0].open_batch
        assert batch is not None
        if round_number % 2:
            batch.grow(300 * (round_number % 7 + 1))
        else:
            batch.move(bytearray(300 * (round_number % 7 + 1)))
        Garbage()
        appender.open(size=300)
        batch.close()
        if len(batch):
            batch.complete(len(built), -1)
            built += [value for _, value, _, _ in rows_of(batch)]
    done.set()
    for thread in threads:
        thread.join()
    last = appender._topics["t"].queues[0].open_batch
    assert last is not None
    if len(last):
        last.complete(len(built), -1)
        built += [value for _, value, _, _ in rows_of(last)]
    sent = [pair for own in kept.values() for pair in own]
    assert len(sent) == len(built)
    for future, value in sent:
        assert built[future.get(timeout_ms=0).offset] == value


def test_raised_errors_leave_nothing_in_memory() -> None:
    class Local:
        """A local variable of the caller."""

    alive: weakref.WeakSet[Local] = weakref.WeakSet()

    def send_and_fail() -> None:
        appender = OpenBatchAppender()
        batch = appender.open()
        future = appender.send("t", b"v")
        local = Local()
        alive.add(local)
        batch.fail(InvalidRecordError("broken"))
        with pytest.raises(InvalidRecordError, match="broken"):
            future.get()
        assert future.exception.__traceback__ is None

    send_and_fail()
    gc.collect()
    assert not alive
