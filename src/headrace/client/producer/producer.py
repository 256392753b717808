"""The blocking producer. `send` runs in the calling thread. The network code runs on an event loop in the producer's
own thread."""

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from headrace.client.arguments import AnyPartition, OffsetLike
from headrace.client.background import LoopThread
from headrace.client.config.keywords import ProducerKeywords
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.types import ProducerConfig
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.metric_names import KafkaMetric, MetricName, flatten
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import SerializedRecord
from headrace.client.producer.base import BaseProducer, run_blocking
from headrace.client.producer.config import timeout_seconds
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.types import ArrowData
from headrace.client.types import ConsumerGroupMetadata
from headrace.client.waiting import InterruptibleEvent
from headrace.common.errors import KafkaError

if TYPE_CHECKING:
    from headrace.client.producer.arrow import ArrowFuture

__all__ = ["Producer"]

_BACKLOG_BYTES = 6 * 1024 * 1024
"""Enough to keep brokers busy: five requests of 1 MB in flight, and the next one."""
_ARROW_BACKLOG_BYTES = 8 * 1024 * 1024
"""The same for encoded tables, per broker."""
_ARROW_BACKLOG_SECONDS = 0.1
"""How long to wait for slow brokers before the next batch of a table is encoded."""
_SENDER_TURN_SECONDS = 0.002
_UNCLOSED_FLUSH_SECONDS = 4.0
"""How long a producer that was not closed tries to send its queued records at exit."""


class Producer(BaseProducer):
    """Sends records to topics.

        producer = Producer(bootstrap_servers="localhost:9092")
        future = producer.send("orders", b"value", key=b"key")
        future.get(timeout_ms=10_000)           # RecordMetadata(topic="orders", partition=0, offset=42, ...)
        producer.close()

    Configs are keyword arguments with kafka-python's names, a mapping with Kafka's names, or both. All methods are
    thread-safe. The producer is idempotent by default: retries write each record once and in order.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **keywords: Unpack[ProducerKeywords]):
        super().__init__(PRODUCER_KEYS.load(config, **keywords))
        self._close_lock = threading.Lock()
        self._is_closed = False
        self._thread, self._started = LoopThread.start("headrace-producer", self._create_core)
        self._start(self._started)
        self._thread.close_automatically(self, functools.partial(self._started.close, _UNCLOSED_FLUSH_SECONDS))

    async def _create_core(self) -> ProducerCore:
        return ProducerCore(self.config)

    @property
    def _core(self) -> ProducerCore:
        return self._started

    @property
    def _running_client(self) -> ClientCore[ProducerConfig] | None:
        return self._started.client if self._thread.is_alive and not self._is_closed else None

    # ---- sending; `send` itself is in `_send`

    def _append_to_accumulator(self, record: SerializedRecord) -> FutureRecordMetadata:
        future = run_blocking(self._append(record))
        if self._core.buffers.used_bytes > _BACKLOG_BYTES and not self._thread.is_current:
            # Without this, Python would let the loop's thread run only every 5 ms, and a request needs several turns:
            # records would fill the memory, however fast the brokers are.
            self._core.sender_loop.wake_and_wait(_SENDER_TURN_SECONDS)
        return future

    def send_arrow(self, topic: str, data: ArrowData, *, partition: int | None = None) -> "ArrowFuture":
        """Sends every row of an Arrow table, a Polars or pandas data frame, or another object that exports Arrow data.
        Returns one future for all of them.

        Columns by name: `value` (required), `key`, `headers`, `timestamp`, `partition`. Other columns are ignored. Rows
        of one partition keep their order. Serializers and interceptors are not called. An error after the first rows
        were sent is the future's error.
        """
        from headrace.client.producer.arrow import send_arrow

        return run_blocking(send_arrow(self, topic, data, partition))

    async def _yield_to_sender(self) -> None:
        core = self._core
        if core.buffers.used_bytes > _ARROW_BACKLOG_BYTES and not self._thread.is_current:
            # Encoding further ahead only touches new memory, which the system has to clear first.
            limit = _ARROW_BACKLOG_BYTES // 2 * max(1, len(core.client.metadata.view.nodes))
            sent = InterruptibleEvent()
            if not core.buffers.when_used_below(limit, sent.set):
                sent.wait(_ARROW_BACKLOG_SECONDS)

    async def _wait_for_partition(self, topic: str, partition: int, deadline: float) -> None:
        left_ms = max(0.0, (deadline - self._core.clock.monotonic()) * 1000)
        self._thread.run(self._core.metadata.wait_for_partition(topic, partition, left_ms))

    async def _wait_for_memory(self, size: int, deadline: float, wants_buffer: bool = True) -> bytearray | None:
        core = self._core
        if self._thread.is_current:
            raise core.memory_timeout()  # waiting here would block the thread that frees memory
        memory_granted = InterruptibleEvent()
        waiter = core.buffers.enqueue(size, memory_granted.set, wants_buffer)
        core.sender_loop.wake()
        try:
            if not memory_granted.wait(max(0.0, deadline - core.clock.monotonic())):
                raise core.memory_timeout()
        except BaseException:
            core.buffers.leave(waiter)
            raise
        return waiter.buffer

    def flush(self, *, timeout_ms: float | None = None) -> None:
        """Sends all records now and waits until they are acknowledged or have failed. Raises KafkaTimeoutError after
        `timeout_ms`."""
        if self._thread.is_current:
            raise IllegalStateError("flush() must not be called from a callback of the producer: it would deadlock")
        timeout = timeout_seconds(timeout_ms)
        self._thread.check_process()
        done = InterruptibleEvent()
        flush = self._core.accumulator.flush(done.set)
        if flush is None:
            return
        try:
            if done.wait(timeout):
                return
        finally:
            self._core.accumulator.leave(flush)
        raise KafkaTimeoutError(f"{len(flush.pending)} batches were not acknowledged within {timeout_ms:g} ms")

    def partitions_for(self, topic: str) -> set[int]:
        """Returns the partitions of a topic. Waits for its metadata if necessary."""
        run_blocking(self._wait_for_partition(topic, -1, self._block_deadline()))
        return self._partitions(topic)

    @overload
    def metrics(self, raw: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    def metrics(self, raw: Literal[True]) -> dict[MetricName, KafkaMetric]: ...

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Returns the statistics that `stats_cb` receives, with librdkafka's names. Resets their time windows. With
        `raw`, returns a flat mapping of MetricName to KafkaMetric."""
        statistics = self._thread.run(self._core.metrics())
        return flatten(statistics) if raw else statistics

    # ---- transactions

    def init_transactions(self, transactional_id: str | None = None) -> None:
        """Gets the producer ID and epoch of the transactional ID, fences other producers with the same ID and completes
        their transactions. Call it once, before the first transaction. With a transactional ID, it may also be called
        between transactions: the producer continues under that ID with its connections."""
        self._check_not_closed()
        self._thread.run(self._core.init_transactions(transactional_id))

    def begin_transaction(self) -> None:
        """Begins a transaction. All records sent until it is committed or aborted belong to it."""
        self._check_not_closed()
        self._thread.run(self._core.begin_transaction())

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[AnyPartition, OffsetLike],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits a consumer group's offsets with the transaction. `group_metadata` is `consumer.group_metadata()`, or
        the group ID."""
        self._check_not_closed()
        self._thread.run(self._core.send_offsets_to_transaction(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Commits the transaction. Returns when all records and the commit are written. After KafkaTimeoutError, call
        it again to wait for the same commit."""
        self._check_not_closed()
        self._thread.run(self._core.commit_transaction())

    def abort_transaction(self) -> None:
        """Aborts the transaction. Unsent records fail with TransactionAbortedError. `read_committed` consumers never
        see the others."""
        self._check_not_closed()
        self._thread.run(self._core.abort_transaction())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction():` begins a transaction and commits it at the end of the block. An exception in
        the block aborts it, and so does an `abortable` error of the commit. Both exceptions are raised again."""
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

    # ---- closing

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Sends the queued records and closes the producer. Records that are not sent after `timeout_ms` fail. May
        be called more than once."""
        if self._thread.is_current:
            raise IllegalStateError("close() must not be called from a callback of the producer: it would deadlock")
        timeout = timeout_seconds(timeout_ms)
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._check_state = self._raise_closed
        try:
            self._thread.run(self._core.close(timeout))
        finally:
            self._thread.stop()

    def _check_not_closed(self) -> None:
        if self._is_closed:
            self._raise_closed()

    def _raise_closed(self) -> None:
        self._thread.check_process()
        raise IllegalStateError("Cannot perform operation after producer has been closed")

    def _forked(self) -> None:
        self._close_lock = threading.Lock()
        self._is_closed = True
        self._check_state = self._raise_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
