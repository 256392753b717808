"""ProducerCore: creates a producer's parts on its event loop and connects them.

    send() ─▶ Accumulator ─▶ Sender ─▶ NetworkClient ─▶ brokers
                  ▲             ▲
              BufferPool    SenderLoop (wake-ups and timer), ProducerMetadata (leaders),
                            IdempotenceManager or TransactionManager (sequence numbers, transactions)

Belongs to the event loop that it was created on, except for the methods in the section "any thread".
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from headrace.client import serialization
from headrace.client.arguments import AnyPartition, OffsetLike
from headrace.client.config.types import ProducerConfig
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, TransactionAbortedError
from headrace.client.producer._send import SerializedRecord
from headrace.client.producer.accumulator import MIDDLE_BYTES, Accumulator, AccumulatorConfig
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.config import compression_level
from headrace.client.producer.idempotence import IdempotenceManager
from headrace.client.producer.interceptors import Interceptors
from headrace.client.producer.metadata import ProducerMetadata
from headrace.client.producer.network_client import NetworkClient
from headrace.client.producer.sender import Sender, SenderConfig
from headrace.client.producer.sender_loop import TIMER_SLACK_SECONDS, SenderLoop
from headrace.client.producer.transactions import TransactionManager
from headrace.client.statistics_sources import producer_source
from headrace.client.types import ConsumerGroupMetadata
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError, MessageSizeTooLargeError
from headrace.common.ids import Random
from headrace.net.broker_pool import PoolEvents
from headrace.net.dialer import Dialer
from headrace.records import Compression

__all__ = ["ProducerCore"]

_logger = logging.getLogger(__name__)

_POOL_IN_FLIGHT = 1000
"""The sender limits Produce requests itself. Metadata requests must not queue behind them."""
_MAX_BATCH_BYTES = 2**29
_INITIAL_BATCH_BYTES = 16_384
"""Batches start small and grow, so that many partitions with few records do not exhaust the memory."""


class ProducerCore:
    """The parts of a producer that live on its event loop."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        events: PoolEvents | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
    ):
        self.config = config
        self.client = ClientCore(
            config, events=events, clock=clock, random=random, dialer=dialer, max_in_flight=_POOL_IN_FLIGHT
        )
        self.clock = self.client.clock
        self.interceptors = Interceptors(config.interceptors)
        self.fatal_error: BaseException | None = None
        self._is_closed = False
        self.sender_loop = SenderLoop(self.client.loop, self.clock)
        self.network = NetworkClient(self.client, self.sender_loop, config.acks, config.request_timeout_ms)
        self.idempotence = self._create_idempotence_manager()
        self.transactions = self.idempotence if isinstance(self.idempotence, TransactionManager) else None
        self.accumulator = self._create_accumulator()
        self.buffers = self.accumulator.pool
        self.metadata = ProducerMetadata(self.client.metadata, self.accumulator, self.clock, self.sender_loop.wake)
        self.sender = self._create_sender()
        self.sender_loop.start(self._poll_sender)
        self.client.statistics.add(producer_source(self), self.sender.traffic)

    def _create_idempotence_manager(self) -> IdempotenceManager | None:
        config = self.config
        if config.transactional_id is not None:
            return TransactionManager(
                config.transactional_id,
                config.transaction_timeout_ms,
                self.network,
                self.client.backoff,
                self.sender_loop,
                self._on_fatal_error,
                self._complete_batches,
            )
        if config.enable_idempotence:
            return IdempotenceManager(self.network, self.client.backoff, self.sender_loop, self._on_fatal_error)
        return None

    def _create_accumulator(self) -> Accumulator:
        config = self.config
        codec = Compression.from_name(config.compression_type)
        batch_bytes = min(config.batch_size, config.max_request_size)
        first_bytes = min(config.batch_size, _INITIAL_BATCH_BYTES)
        large_bytes = batch_bytes if batch_bytes > MIDDLE_BYTES else 0
        return Accumulator(
            AccumulatorConfig(
                batch_bytes=batch_bytes,
                first_bytes=first_bytes,
                linger=config.linger_ms / 1000,
                delivery_timeout=config.delivery_timeout_ms / 1000,
                max_request_bytes=config.max_request_size,
                codec=codec,
                level=compression_level(codec, config),
                adaptive=config.partitioner_adaptive_partitioning_enable,
            ),
            BufferPool(config.buffer_memory, first_bytes, large_bytes),
            self.clock,
            self.client.random,
            self.client.backoff,
            self.sender_loop.wake,
            self.idempotence,
        )

    def _create_sender(self) -> Sender:
        config = self.config
        return Sender(
            SenderConfig(
                acks=config.acks,
                max_in_flight=config.max_in_flight_requests_per_connection,
                retries=config.retries,
                request_timeout_ms=config.request_timeout_ms,
                delivery_timeout=config.delivery_timeout_ms / 1000,
                availability_timeout=config.partitioner_availability_timeout_ms / 1000,
                timer_slack=TIMER_SLACK_SECONDS,
            ),
            self.accumulator,
            self.network,
            self.metadata,
            self.clock,
            self.sender_loop.wake,
            self.idempotence,
        )

    # ---- any thread

    def check_record(self, record: SerializedRecord) -> BaseException | None:
        """Returns the error if the record can never be sent: a fatal error of the producer, or its size."""
        if self.fatal_error is not None:
            return self.fatal_error
        size = record.batch_size_bytes
        limits = (
            ("the largest batch", _MAX_BATCH_BYTES),
            ("max.request.size", self.config.max_request_size),
            ("buffer.memory", self.config.buffer_memory),
        )
        for limit, max_bytes in limits:
            if size > max_bytes:
                error = MessageSizeTooLargeError(
                    f"The record for topic {record.topic!r} is {size} bytes when serialized, which is larger than "
                    f"{limit} ({max_bytes} bytes)"
                )
                self.fail_transaction(error)
                return error
        return None

    def fail_transaction(self, error: BaseException) -> None:
        """Makes an open transaction abortable only, because a record of it will not be sent."""
        if self.transactions is not None:
            # In this thread's order: before a commit that the caller may request next.
            self.sender_loop.call(self.transactions.record_failed, error)

    def memory_timeout(self) -> KafkaTimeoutError:
        """Returns the error for a record that found no memory within max.block.ms."""
        return KafkaTimeoutError(
            f"Failed to allocate memory within max.block.ms={self.config.max_block_ms}: the records that wait to be "
            f"sent fill buffer.memory={self.config.buffer_memory}"
        )

    # ---- the loop

    def _poll_sender(self) -> float:
        transactions = self.transactions
        if self.fatal_error is not None:
            self.sender.fail_queued(self.fatal_error)
        elif transactions is not None and transactions.must_abort and transactions.error is not None:
            self.sender.fail_queued(transactions.error)
        return self.sender.poll()

    def _on_fatal_error(self, error: BaseException) -> None:
        _logger.error("Producer %s fails all further records after a fatal error: %s", self.config.client_id, error)
        self.fatal_error = error
        if isinstance(error, KafkaError):
            self.client.events.error(error, fatal=True)
        self.sender_loop.wake()

    async def flush(self) -> None:
        """Waits until all batches that exist now are acknowledged or have failed."""
        done: asyncio.Future[None] = self.client.loop.create_future()
        flush = self.accumulator.flush(lambda: _release(done))
        if flush is None:
            return
        try:
            await done
        finally:
            self.accumulator.leave(flush)

    async def wait_for_memory(self, size: int, timeout: float, wants_buffer: bool = True) -> bytearray | None:
        """Waits for `size` bytes of the buffer memory. Returns a buffer, or None if the bytes are only to be
        counted."""
        memory_granted: asyncio.Future[None] = self.client.loop.create_future()
        waiter = self.buffers.enqueue(size, lambda: _release(memory_granted), wants_buffer)
        self.sender_loop.wake()
        try:
            async with asyncio.timeout(timeout):
                await memory_granted
        except BaseException as error:
            self.buffers.leave(waiter)
            if isinstance(error, TimeoutError):
                raise self.memory_timeout() from None
            raise
        return waiter.buffer

    async def metrics(self) -> dict[str, Any]:
        """Returns the statistics and resets their time windows."""
        return self.client.statistics.take()

    # ---- transactions

    async def init_transactions(self, transactional_id: str | None = None) -> None:
        manager = self._transaction_manager("init_transactions")
        await self._within_max_block("init_transactions", manager.init(transactional_id))

    async def begin_transaction(self) -> None:
        self._transaction_manager("begin_transaction").begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[AnyPartition, OffsetLike],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        manager = self._transaction_manager("send_offsets_to_transaction")
        await self._within_max_block("send_offsets_to_transaction", manager.send_offsets(offsets, group_metadata))

    async def commit_transaction(self) -> None:
        manager = self._transaction_manager("commit_transaction")
        await self._within_max_block("commit_transaction", manager.commit())

    async def abort_transaction(self) -> None:
        manager = self._transaction_manager("abort_transaction")
        await self._within_max_block("abort_transaction", manager.abort())

    def _transaction_manager(self, method: str) -> TransactionManager:
        if self.transactions is None:
            raise IllegalStateError(
                f"Cannot use {method}() without setting the transactional.id configuration property"
            )
        return self.transactions

    async def _within_max_block(self, method: str, operation: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                await operation
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise KafkaTimeoutError(
                f"Timeout expired after max.block.ms={self.config.max_block_ms} while awaiting {method}(); it "
                "continues, and calling it again waits for the same operation"
            ) from None

    async def _complete_batches(self, drop_queued: bool) -> None:
        """Waits until no batch is left. With `drop_queued`, fails the queued ones first."""
        if drop_queued:
            self.sender.fail_queued(TransactionAbortedError("Failing batch since transaction was aborted"))
        await self.flush()

    # ---- closing

    async def close(self, timeout: float | None = None) -> None:
        """Sends the queued records and ends the transaction for at most `timeout` seconds, fails the other records and
        closes all connections. A cancelled `close` does not wait."""
        if self._is_closed:
            return
        closed = IllegalStateError("Cannot perform operation after producer has been closed")
        self.accumulator.close(closed)
        try:
            if timeout != 0:
                async with asyncio.timeout(timeout):
                    if self.transactions is not None:
                        await self.transactions.close()
                    await self.flush()
        except TimeoutError:
            _logger.warning(
                "Producer %s: closed after %s s with %d batches unsent; their records are lost",
                self.config.client_id,
                timeout,
                self.accumulator.incomplete_count,
            )
        except KafkaError as error:
            _logger.warning(
                "Producer %s: closed without aborting its transaction, which stays open for transaction.timeout.ms: %s",
                self.config.client_id,
                error,
            )
        finally:
            await self._close(closed)

    async def _close(self, closed: KafkaError) -> None:
        self._is_closed = True
        self.sender_loop.stop_polling()
        self.sender.fail_queued(closed)
        await self.sender_loop.cancel_tasks()
        await self.client.close()
        await asyncio.sleep(0)  # lets callbacks of requests that the pool cancelled run
        self.sender.fail_in_flight(closed)
        self.sender.fail_queued(closed)
        self.interceptors.close()
        serialization.close(self.config.key_serializer, self.config.value_serializer)


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
