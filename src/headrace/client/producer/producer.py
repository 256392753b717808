"""The blocking face of the producer. `send` is any thread's and does not leave the thread that calls it; what needs the
network runs on the loop of a thread of the producer's own."""

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from headrace.client.background import LoopThread
from headrace.client.config.keywords import ProducerKeywords
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import SendPath, SendRequest
from headrace.client.producer.accumulator import TOPIC_FORGOTTEN
from headrace.client.producer.core import ProducerCore, check_settings, check_timeout, set_up_path
from headrace.client.producer.interceptors import OutgoingRecord
from headrace.client.producer.types import Headers, OnDelivery
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata
from headrace.common.clock import SystemClock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client.producer.arrow import ArrowFuture

__all__ = ["Producer"]

_AHEAD_BYTES = 6 * 1024 * 1024
"""Enough to keep brokers busy: five requests of 1 MB in flight, and the next."""
_TURN_SECONDS = 0.002
_LAST_SECONDS = 4.0
"""How long a producer that nobody closed tries to send what it has."""


class Producer(SendPath):
    """Sends records to topics.

        producer = Producer(bootstrap_servers="localhost:9092")
        future = producer.send("orders", b"value", key=b"key")
        future.get(timeout=10)                  # RecordMetadata(topic="orders", partition=0, offset=42, ...)
        producer.close()

    Settings are keyword arguments as kafka-python has them, or a mapping with Kafka's names, or both. Any thread may
    use it. Idempotent by default: a record is in its partition once and in order, whatever happens on the way.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **keywords: Unpack[ProducerKeywords]):
        self.config = check_settings(PRODUCER_KEYS.load(config, **keywords))
        """The parsed configuration, such as `config.acks`."""
        set_up_path(self, self.config, SystemClock())
        self._thread = LoopThread("headrace-producer")
        self._close_lock = threading.Lock()
        self._is_closed = False
        try:
            self._core = self._thread.run(self._make_core())
        except BaseException:
            self._thread.stop()
            raise
        self._topics = self._core.accumulator.topics
        if self._core.transactions is not None:
            self._gate = self._core.transactions.check_open
        if self._core.interceptors:
            self.send = self._send_intercepted  # type: ignore[method-assign]
        self._thread.look_after(self, functools.partial(self._core.close, _LAST_SECONDS))

    async def _make_core(self) -> ProducerCore:
        return ProducerCore(self.config)

    if TYPE_CHECKING:

        def send(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            headers: Headers | None = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            on_delivery: OnDelivery | None = None,
        ) -> FutureRecordMetadata: ...

    def send_arrow(
        self, topic: str, data: "pa.Table | pa.RecordBatch", *, partition: int | None = None
    ) -> "ArrowFuture":
        """Sends every row of an Arrow table or record batch, without a Python object for any, and returns one future.

        Columns by name: `value` (required), `key`, `headers`, `timestamp`, `partition`; others are ignored. Rows of one
        partition keep their order. Serializers and interceptors are passed by. What goes wrong when some rows are sent
        already is the future's error.
        """
        from headrace.client.producer.arrow import send_arrow

        def wait_for_room(size: int, deadline: float) -> None:
            self._wait_for_room(size, deadline, False)

        return send_arrow(self, self._core, topic, data, partition, self._wait_for_topic, wait_for_room)

    def flush(self, timeout: float | None = None) -> None:
        """Sends everything at once, and waits until all of it is acknowledged or has failed; for `timeout` seconds, and
        raises KafkaTimeoutError then."""
        if self._thread.is_current:
            raise IllegalStateError("flush() in a callback of the producer would wait for itself")
        self._thread.check_process()
        done = threading.Event()
        flush = self._core.accumulator.flush(done.set)
        if flush is None:
            return
        try:
            if done.wait(timeout):
                return
        finally:
            self._core.accumulator.leave(flush)
        raise KafkaTimeoutError(f"{len(flush.pending)} batches were not acknowledged within {timeout} s")

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, known or asked for."""
        self._wait_for_topic(topic, -1, self._core.clock.monotonic() + self.config.max_block_ms / 1000)
        return set(range(len(self._topics[topic].queues)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster is known."""
        return bool(self._core.client.metadata.view.nodes)

    def metrics(self) -> dict[str, Any]:
        """What `stats_cb` would be told at this moment, with librdkafka's names. Windows begin anew."""
        return self._thread.run(self._core.metrics())

    # ---- transactions

    def init_transactions(self, transactional_id: str | None = None) -> None:
        """Once, before the first transaction: gets the identity of the transactional id, fences producers that have it
        too, and ends what they left open. With a transactional id, also between transactions: the producer goes on
        under that one, with the connections that it has."""
        self._transact("init_transactions", transactional_id)

    def begin_transaction(self) -> None:
        """From here on, what is sent belongs to a transaction, until it is committed or aborted."""
        self._transact("begin_transaction")

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits a consumer's offsets with the transaction: `consumer.group_metadata()`, or a group's id alone."""
        self._transact("send_offsets_to_transaction", offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Returns when all records are written and the decision too. After KafkaTimeoutError it may be called again,
        and goes on waiting for the same commit."""
        self._transact("commit_transaction")

    def abort_transaction(self) -> None:
        """Records that were not sent fail with TransactionAbortedError; the others are never seen by readers of
        committed records."""
        self._transact("abort_transaction")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction():` begins one, and commits it at the end of the block. An exception in the block
        aborts it, and so does an error of the commit that is `abortable`; both come out of here."""
        self.begin_transaction()
        try:
            yield
        except BaseException as error:
            if not getattr(error, "fatal", False):
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except KafkaError as error:
            if error.abortable:
                self.abort_transaction()
            raise

    def _transact(self, what: str, *arguments: Any) -> None:
        if self._is_closed:
            self._refuse()
        self._thread.run(self._core.transact(what, *arguments))

    # ---- the end

    def close(self, timeout: float | None = None) -> None:
        """Sends what is there and closes, after `timeout` seconds at the latest; what is not sent then has failed. May
        be called twice."""
        if self._thread.is_current:
            raise IllegalStateError("close() in a callback of the producer would wait for itself")
        check_timeout(timeout)
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._gate = self._refuse
        try:
            self._thread.run(self._core.close(timeout))
        finally:
            self._thread.stop()

    def _refuse(self) -> None:
        self._thread.check_process()
        raise IllegalStateError("this producer is closed")

    def _forked(self) -> None:
        self._close_lock = threading.Lock()
        self._is_closed = True
        self._gate = self._refuse

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the slow way of a record

    def _place(self, request: SendRequest) -> FutureRecordMetadata:
        core = self._core
        error = core.check_request(request)
        if error is not None:
            return request.refuse(error)
        deadline = core.clock.monotonic() + self.config.max_block_ms / 1000
        buffer: bytearray | None = None
        while True:
            while not self._choose_partition(request):
                self._wait_for_topic(request.topic, request.partition, deadline)
            outcome = core.accumulator.append(request, buffer)
            if isinstance(outcome, FutureRecordMetadata):
                if core.buffers.used_bytes > _AHEAD_BYTES:
                    self._let_pass()
                return outcome
            buffer = None if outcome == TOPIC_FORGOTTEN else self._wait_for_room(outcome, deadline, True)

    def _let_pass(self) -> None:
        """Much waits to be sent already, so the loop gets a turn now. Python would give it one after 5 ms only, while
        this thread works, and several are needed for a request: what waits meanwhile would fill the memory, however
        quick the brokers are."""
        if not self._thread.is_current:
            self._core.give_turn(_TURN_SECONDS)

    def _wait_for_topic(self, topic: str, partition: int, deadline: float) -> None:
        left_ms = max(0.0, (deadline - self._core.clock.monotonic()) * 1000)
        self._thread.run(self._core.wait_for_metadata(topic, partition, left_ms))

    def _wait_for_room(self, size: int, deadline: float, wants_buffer: bool) -> bytearray | None:
        core = self._core
        if self._thread.is_current:
            raise core.no_memory()  # who gives memory back is the one that would wait
        granted = threading.Event()
        waiter = core.buffers.enqueue(size, granted.set, wants_buffer)
        core.wake()
        try:
            if not granted.wait(max(0.0, deadline - core.clock.monotonic())):
                raise core.no_memory()
        except BaseException:
            core.buffers.leave(waiter)
            raise
        return waiter.buffer

    def _send_intercepted(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        interceptors = self._core.interceptors
        record = interceptors.on_send(OutgoingRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            future: FutureRecordMetadata = SendPath.send(self, *record, on_delivery=on_delivery)
        except Exception as error:
            interceptors.on_acknowledgement(error, None)
            raise
        future.add_done(interceptors.on_acknowledgement)
        return future
