"""The producer's side of the loop: everything wired together, and woken when there is something to do.

Owned by the loop it is made on. `wake` may be called from any thread; the accumulator and the buffer pool say
themselves what else may be.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from headrace.client import serialization
from headrace.client.config.types import ProducerConfig
from headrace.client.coordinators import COORDINATOR, CoordinatorType
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, TransactionAbortedError
from headrace.client.metadata_cache import ClusterView, TopicInfo
from headrace.client.producer import serializers
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import SendPath, SendRequest
from headrace.client.producer.accumulator import (
    MIDDLE_BYTES,
    NEVER,
    TOPIC_FORGOTTEN,
    Accumulator,
    AccumulatorSettings,
)
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.idempotence import Idempotence
from headrace.client.producer.interceptors import Interceptors
from headrace.client.producer.partitioners import partitioner_for
from headrace.client.producer.sender import OnReply, Sender, SenderSettings
from headrace.client.producer.transactions import TransactionManager
from headrace.client.statistics_sources import producer_source
from headrace.common.clock import Clock
from headrace.common.errors import ConfigError, KafkaError, MessageSizeTooLargeError
from headrace.common.ids import Random, Uuid
from headrace.common.types import TopicPartition
from headrace.net.broker_pool import PoolEvents
from headrace.net.dialer import Dialer
from headrace.net.nodes import Node
from headrace.protocol import ApiKey, Message
from headrace.protocol.messages.produce import ProduceRequest
from headrace.records import Compression

__all__ = ["ProducerCore", "check_settings", "check_timeout", "set_up_path"]

_logger = logging.getLogger(__name__)

_PRODUCE = int(ApiKey.PRODUCE)
_POOL_IN_FLIGHT = 1000
"""The sender counts its own; metadata does not wait for its turn behind them."""
_USE_SECONDS = 1.0
_ASK_AGAIN_MS = 200.0
_LARGEST_RECORD = 2**29
_TIMER_SLACK = 0.001
"""The loop's timers come up to a millisecond late, as epoll counts in those; so they are set so much earlier."""
_FIRST_BYTES = 16_384
"""Batches begin small and grow, so that many partitions with little to send do not use up the memory."""


def check_settings(settings: ProducerConfig) -> ProducerConfig:
    """Settings that go together; idempotence is turned off where others, that were asked for, rule it out."""
    given = settings.explicit
    in_flight = settings.max_in_flight_requests_per_connection
    transactional = settings.transactional_id is not None
    if settings.enable_idempotence:
        conflict = None
        if settings.acks != -1:
            conflict = f"acks={settings.acks}: expected all"
        elif settings.retries == 0:
            conflict = "retries=0: expected at least 1"
        elif in_flight > 5:
            conflict = f"max.in.flight.requests.per.connection={in_flight}: expected 5 at most"
        if conflict is not None:
            if transactional or "enable.idempotence" in given:
                raise ConfigError(f"idempotence does not go with {conflict}")
            settings = replace(settings, enable_idempotence=False)
    elif transactional:
        raise ConfigError("transactional.id needs enable.idempotence=true")
    least = settings.linger_ms + settings.request_timeout_ms
    if settings.delivery_timeout_ms < least:
        if "delivery.timeout.ms" in given:
            raise ConfigError(
                f"delivery.timeout.ms={settings.delivery_timeout_ms} is not a valid value: expected at least "
                f"linger.ms + request.timeout.ms, {least}"
            )
        settings = replace(settings, delivery_timeout_ms=least)
    return settings


def check_timeout(timeout: float | None) -> None:
    """For how long `close` waits."""
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout is a number of seconds, at least 0, not {timeout}")


def set_up_path(path: SendPath, settings: ProducerConfig, clock: Clock) -> None:
    """Gives the way of each record what it needs of the settings."""
    path._clock = clock
    path._key_serializer = serializers.prepare(settings.key_serializer)
    path._value_serializer = serializers.prepare(settings.value_serializer)
    path._partitioner = partitioner_for(settings.partitioner)
    path._ignore_keys = settings.partitioner_ignore_keys
    path._max_request_bytes = min(settings.max_request_size, settings.buffer_memory)
    path._on_delivery = settings.on_delivery


class ProducerCore:
    def __init__(
        self,
        settings: ProducerConfig,
        *,
        events: PoolEvents | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
    ):
        self.settings = settings
        self.client = ClientCore(
            settings, events=events, clock=clock, random=random, dialer=dialer, max_in_flight=_POOL_IN_FLIGHT
        )
        self.clock = self.client.clock
        self.interceptors = Interceptors(settings.interceptors)
        self.fatal_error: BaseException | None = None
        self._loop = self.client.loop
        self._thread_id = threading.get_ident()
        self._is_woken = False
        self._has_polled = threading.Event()
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connecting: set[int] = set()
        self._used: dict[str, float] = {}

        self.idempotence: Idempotence | None = None
        self.transactions: TransactionManager | None = None
        if settings.transactional_id is not None:
            self.idempotence = self.transactions = TransactionManager(
                settings.transactional_id,
                settings.transaction_timeout_ms,
                self,
                self.client.backoff,
                self._start,
                self.wake,
                self._on_fatal,
                self._settle,
            )
        elif settings.enable_idempotence:
            self.idempotence = Idempotence(self, self.client.backoff, self._start, self.wake, self._on_fatal)
        codec = Compression.from_name(settings.compression_type)
        batch_bytes = min(settings.batch_size, settings.max_request_size)
        first_bytes = min(settings.batch_size, _FIRST_BYTES)
        large_bytes = batch_bytes if batch_bytes > MIDDLE_BYTES else 0
        self.buffers = BufferPool(settings.buffer_memory, first_bytes, large_bytes)
        self.accumulator = Accumulator(
            AccumulatorSettings(
                batch_bytes=batch_bytes,
                first_bytes=first_bytes,
                linger=settings.linger_ms / 1000,
                delivery_timeout=settings.delivery_timeout_ms / 1000,
                max_request_bytes=settings.max_request_size,
                codec=codec,
                level=_level(codec, settings),
                adaptive=settings.partitioner_adaptive_partitioning_enable,
            ),
            self.buffers,
            self.clock,
            self.client.random,
            self.client.backoff,
            self.wake,
            self.idempotence,
            None if self.transactions is None else self.transactions.admit,
        )
        self.sender = Sender(
            SenderSettings(
                acks=settings.acks,
                max_in_flight=settings.max_in_flight_requests_per_connection,
                retries=settings.retries,
                request_timeout_ms=settings.request_timeout_ms,
                delivery_timeout=settings.delivery_timeout_ms / 1000,
                availability_timeout=settings.partitioner_availability_timeout_ms / 1000,
                timer_slack=_TIMER_SLACK,
            ),
            self.accumulator,
            self,
            self,
            self.clock,
            self.idempotence,
        )
        self.client.metadata.on_change(self._metadata_changed)
        self.client.statistics.add(producer_source(self))

    # ---- any thread

    def wake(self) -> None:
        """Has the sender look at what is due."""
        if self._is_woken:
            return
        self._is_woken = True
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._poll)
            return
        try:
            self._loop.call_soon_threadsafe(self._poll)
        except RuntimeError:
            _logger.debug("the loop has ended before the producer was closed")

    def give_turn(self, seconds: float) -> None:
        """Waits until the sender has looked at what is due, or so long."""
        self._has_polled.clear()
        self.wake()
        self._has_polled.wait(seconds)

    def check_request(self, request: SendRequest) -> BaseException | None:
        """Why a record can never be sent, however long it waits."""
        if self.fatal_error is not None:
            return self.fatal_error
        size = request.largest_size
        limits = (
            ("a batch may be", _LARGEST_RECORD),
            ("max.request.size", self.settings.max_request_size),
            ("buffer.memory", self.settings.buffer_memory),
        )
        for limit, most in limits:
            if size > most:
                error = MessageSizeTooLargeError(f"a record of {size} bytes is larger than {limit}, {most}")
                self.spoil(error)
                return error
        return None

    def spoil(self, error: BaseException) -> None:
        """A record will not be sent, which only its future tells: the transaction, if there is one, must be aborted."""
        if self.transactions is None:
            return
        if threading.get_ident() == self._thread_id:
            self.transactions.refused(error)
        else:  # before a commit that this thread may ask for next
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the transaction
                self._loop.call_soon_threadsafe(self.transactions.refused, error)

    def no_memory(self) -> KafkaTimeoutError:
        return KafkaTimeoutError(
            f"no room for the record within {self.settings.max_block_ms} ms (max.block.ms): "
            f"{self.settings.buffer_memory} bytes (buffer.memory) are waiting to be sent"
        )

    # ---- the loop

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it is told

    def _poll(self) -> None:
        self._is_woken = False
        if self._is_closed:
            return
        if self.fatal_error is not None:
            self._fail_queued(self.fatal_error)
        elif self.transactions is not None and self.transactions.is_spoilt and self.transactions.error is not None:
            self._fail_queued(self.transactions.error)
        try:
            at = self.sender.poll()
        except Exception:
            _logger.exception("the sender failed; it tries again")
            at = self.clock.monotonic() + 1.0
        self._set_timer(at)
        self._has_polled.set()

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            if at >= self._timer_at:
                return  # it comes early, and looks again
            self._timer.cancel()
            self._timer = None
        if at != NEVER:
            self._timer_at = at
            self._timer = self._loop.call_later(max(0.0, at - self.clock.monotonic() - _TIMER_SLACK), self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        self._poll()

    def _fail_queued(self, error: BaseException) -> None:
        self.sender.fail_all(self.accumulator.take_unsent(also_sent=True), error)

    def _on_fatal(self, error: BaseException) -> None:
        _logger.error("the producer cannot go on: %s", error)
        self.fatal_error = error
        if isinstance(error, KafkaError):
            self.client.events.error(error, fatal=True)
        self.wake()

    async def _settle(self, drop: bool) -> None:
        """Until all batches are done (`TransactionManager`'s)."""
        if drop:
            error = TransactionAbortedError("the record was not sent: its transaction was aborted")
            self.sender.fail_all(self.accumulator.take_unsent(also_sent=True), error)
        await self.flush()

    async def flush(self) -> None:
        """Until everything that is here now is done."""
        done: asyncio.Future[None] = self._loop.create_future()
        flush = self.accumulator.flush(lambda: _release(done))
        if flush is None:
            return
        try:
            await done
        finally:
            self.accumulator.leave(flush)

    async def wait_for_metadata(self, topic: str, partition: int, timeout_ms: float) -> None:
        """Until the topic is known, and has the partition if that is not -1."""
        info: TopicInfo = await self.client.metadata.topic(topic, timeout_ms)
        self._set_leaders(self.client.metadata.view, info)
        deadline = self._loop.time() + timeout_ms / 1000
        while partition >= len(info.partitions):
            self.client.metadata.request_update([topic])
            left_ms = (deadline - self._loop.time()) * 1000
            try:
                view = await self.client.metadata.wait_for(
                    lambda view: (view.partition_count(topic) or 0) > partition, max(0.0, min(left_ms, _ASK_AGAIN_MS))
                )
            except KafkaTimeoutError:
                if left_ms <= 0:
                    raise KafkaTimeoutError(
                        f"{topic} has {len(info.partitions)} partitions, and partition {partition} did not come into "
                        f"being within {timeout_ms:.0f} ms"
                    ) from None
            else:
                info = view.topics[topic]
                self._set_leaders(view, info)

    async def place(self, path: SendPath, request: SendRequest) -> FutureRecordMetadata:
        """The slow way of a record, for callers on the loop: waits for what it needs."""
        error = self.check_request(request)
        if error is not None:
            return request.refuse(error)
        deadline = self.clock.monotonic() + self.settings.max_block_ms / 1000
        buffer: bytearray | None = None
        while True:
            while not path._choose_partition(request):
                left = (deadline - self.clock.monotonic()) * 1000
                await self.wait_for_metadata(request.topic, request.partition, max(left, 0.0))
            outcome = self.accumulator.append(request, buffer)
            if isinstance(outcome, FutureRecordMetadata):
                return outcome
            buffer = None
            if outcome != TOPIC_FORGOTTEN:
                buffer = await self.wait_for_room(outcome, deadline - self.clock.monotonic())

    async def wait_for_room(self, size: int, timeout: float, wants_buffer: bool = True) -> bytearray | None:
        """Memory, when it is there; as a buffer, or only counted."""
        granted: asyncio.Future[None] = self._loop.create_future()
        waiter = self.buffers.enqueue(size, lambda: _release(granted), wants_buffer)
        self.wake()
        try:
            async with asyncio.timeout(timeout):
                await granted
        except BaseException as gone:
            self.buffers.leave(waiter)
            if isinstance(gone, TimeoutError):
                raise self.no_memory() from None
            raise
        return waiter.buffer

    async def metrics(self) -> dict[str, Any]:
        return self.client.statistics.take()

    async def transact(self, what: str, *arguments: Any) -> None:
        """One of the calls for transactions, waited for as long as `max.block.ms`."""
        manager = self.transactions
        if manager is None:
            raise IllegalStateError(f"{what}() needs a producer with a transactional.id")
        if what == "begin_transaction":
            manager.begin()
            return
        calls: dict[str, Callable[..., Awaitable[None]]] = {
            "init_transactions": manager.init,
            "send_offsets_to_transaction": manager.send_offsets,
            "commit_transaction": manager.commit,
            "abort_transaction": manager.abort,
        }
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                await calls[what](*arguments)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise KafkaTimeoutError(
                f"{what}() was not done within {self.settings.max_block_ms} ms (max.block.ms); it goes on, and "
                "may be called again to wait for it"
            ) from None

    # ---- metadata (sender.Cluster)

    def _metadata_changed(self, old: ClusterView, new: ClusterView) -> None:
        changed = False
        for topic in tuple(self.accumulator.topics):
            info = new.topic(topic)
            if info is None:
                self.accumulator.forget_topic(topic)
            elif info is not old.topic(topic) or old.nodes is not new.nodes:
                self._set_leaders(new, info)
                changed = True
        if changed:
            self.wake()

    def _set_leaders(self, view: ClusterView, info: TopicInfo) -> None:
        if info.partitions:
            leaders = [part.leader if part.leader in view.nodes else -1 for part in info.partitions]
            self.accumulator.set_leaders(info.name, leaders)

    def request_update(self, topics: set[str]) -> None:
        self.client.metadata.request_update(topics)

    def topic_id(self, topic: str) -> Uuid:
        now = self.clock.monotonic()
        if self._used.get(topic, 0.0) < now:
            self._used[topic] = now + _USE_SECONDS
            self.client.metadata.use(topic)
        return self.client.metadata.view.topic_id(topic)

    def note_leader(self, tp: TopicPartition, leader: int, leader_epoch: int, node: Node | None) -> object:
        return self.client.metadata.note_leader(tp, leader, leader_epoch, node)

    # ---- brokers (sender.Network)

    def is_ready(self, node_id: int) -> bool:
        return self.client.pool.is_ready(node_id)

    def ready_in(self, node_id: int) -> float:
        return self.client.pool.ready_in_ms(node_id) / 1000

    def connect(self, node_id: int) -> None:
        if node_id not in self._connecting:
            self._connecting.add(node_id)
            self._start(self._connect(node_id))

    async def _connect(self, node_id: int) -> None:
        try:
            await self.client.pool.connect(node_id)
            self.sender.unreachable.pop(node_id, None)
        except KafkaError as error:
            self.sender.unreachable[node_id] = error
            _logger.debug("no connection to broker %d: %s", node_id, error)
            self.client.metadata.request_update()
        finally:
            self._connecting.discard(node_id)
            self.wake()

    def produce(
        self,
        node_id: int,
        request: ProduceRequest,
        min_version: int | None,
        max_version: int | None,
        on_reply: OnReply,
    ) -> None:
        future = self.client.pool.send_now(
            node_id, request, min_version=min_version, max_version=max_version, expect_response=self.settings.acks != 0
        )

        def done(future: "asyncio.Future[Any]") -> None:
            error = future.exception()
            on_reply(None if error is not None else future.result(), error)
            if self.sender.awaits_reply:
                self.wake()

        future.add_done_callback(done)

    # ---- other requests (idempotence.Calls)

    async def any_broker(self, request: Message) -> Any:
        return await self.client.pool.send_to_any(request)

    async def coordinator(
        self, kind: CoordinatorType, key: str, request: Message, min_version: int | None, max_version: int | None
    ) -> Any:
        node_id = await self.client.coordinators.find(kind, key, self.settings.request_timeout_ms)
        return await self.client.pool.send(
            node_id, request, min_version=min_version, max_version=max_version, purpose=COORDINATOR
        )

    def forget_coordinator(self, kind: CoordinatorType, key: str) -> None:
        self.client.coordinators.forget(kind, key)

    async def transaction_version(self, key: str) -> int:
        timeout_ms = self.settings.request_timeout_ms
        node_id = await self.client.coordinators.find(CoordinatorType.TRANSACTION, key, timeout_ms)
        await self.client.pool.connect(node_id, COORDINATOR)
        return self.client.pool.features(node_id).get("transaction.version", 1)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # ---- the end

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is there, for `timeout` seconds at most, fails the rest, and drops all connections; who cancels it
        does not want to wait for what is there."""
        if self._is_closed:
            return
        closed = IllegalStateError("this producer is closed")
        self.accumulator.close(closed)
        try:
            if timeout != 0:
                async with asyncio.timeout(timeout):
                    if self.transactions is not None and self.transactions.is_open:
                        await self.transactions.abort()
                    await self.flush()
        except TimeoutError:
            _logger.warning("the producer is closed with %d batches unsent", self.accumulator.incomplete_count)
        except KafkaError as error:
            _logger.warning("the transaction was not aborted when the producer was closed: %s", error)
        finally:
            await self._end(closed)

    async def _end(self, closed: KafkaError) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_queued(closed)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self.client.close()
        await asyncio.sleep(0)  # replies that will not come any more
        self.sender.fail_in_flight(closed)
        self._fail_queued(closed)
        self.interceptors.close()
        serialization.close(self.settings.key_serializer, self.settings.value_serializer)


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _level(codec: Compression, settings: ProducerConfig) -> int | None:
    if codec is Compression.GZIP:
        level = settings.compression_gzip_level
        return None if level == -1 else level
    if codec is Compression.LZ4:
        return settings.compression_lz4_level
    if codec is Compression.ZSTD:
        return settings.compression_zstd_level
    return None
