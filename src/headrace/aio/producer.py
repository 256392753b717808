"""The producer for asyncio. Lives on the loop that `start` is called on, and on no other thread."""

import asyncio
import warnings
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from headrace.client.background import check_loop
from headrace.client.config.keywords import ProducerKeywords
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer._send import SendPath, SendRequest
from headrace.client.producer.core import ProducerCore, check_settings, check_timeout, set_up_path
from headrace.client.producer.interceptors import OutgoingRecord
from headrace.client.producer.types import Headers, OnDelivery
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata
from headrace.common.clock import SystemClock
from headrace.common.errors import KafkaError
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client.producer.arrow import ArrowFuture

__all__ = ["Producer"]


class Producer(SendPath):
    """Sends records to topics.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("orders", b"value", key=b"key")    # in a batch
            metadata = await future                                         # acknowledged
            await producer.send_and_wait("orders", b"value")                # both

    Settings are those of `headrace.Producer`.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **keywords: Unpack[ProducerKeywords]):
        self.config = check_settings(PRODUCER_KEYS.load(config, **keywords))
        """The parsed configuration, such as `config.acks`."""
        set_up_path(self, self.config, SystemClock())
        self._gate = self._not_started
        self._started: ProducerCore | None = None
        self._is_closed = False

    @property
    def _core(self) -> ProducerCore:
        if self._started is None or self._is_closed:
            self._not_started()
        assert self._started is not None
        check_loop(self._started.client.loop)
        return self._started

    def _not_started(self) -> None:
        raise IllegalStateError(
            "this producer is closed"
            if self._is_closed
            else "this producer is not started: await start(), or use async with"
        )

    async def start(self) -> None:
        """Makes the producer live on the running loop. Needs no broker yet."""
        if self._started is not None or self._is_closed:
            raise IllegalStateError("this producer was started before")
        core = self._started = ProducerCore(self.config)
        self._topics = core.accumulator.topics
        self._gate = None if core.transactions is None else core.transactions.check_open

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Puts a record into its batch, and returns its future, which can be awaited. Waits only where the topic is not
        known yet or the memory is used up, for at most `max.block.ms`."""
        interceptors = self._core.interceptors
        if interceptors:
            record = interceptors.on_send(OutgoingRecord(topic, value, key, headers, partition, timestamp_ms))
            topic, value, key, headers, partition, timestamp_ms = record
        try:
            outcome = super().send(topic, value, key, headers, partition, timestamp_ms, on_delivery)
            future: FutureRecordMetadata = outcome if isinstance(outcome, FutureRecordMetadata) else await outcome
        except Exception as error:
            interceptors.on_acknowledgement(error, None)
            raise
        if interceptors:
            future.add_done(interceptors.on_acknowledgement)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    def _place(self, request: SendRequest) -> Coroutine[Any, Any, FutureRecordMetadata]:
        return self._core.place(self, request)

    async def send_arrow(
        self, topic: str, data: "pa.Table | pa.RecordBatch", *, partition: int | None = None
    ) -> "ArrowFuture":
        """As `headrace.Producer.send_arrow`; the future can be awaited."""
        from headrace.client.producer.arrow import send_arrow_async

        return await send_arrow_async(self, self._core, topic, data, partition)

    async def flush(self, timeout: float | None = None) -> None:
        """Sends everything at once, and waits until all of it is acknowledged or has failed."""
        try:
            async with asyncio.timeout(timeout):
                await self._core.flush()
        except TimeoutError:
            raise KafkaTimeoutError(f"not everything was acknowledged within {timeout} s") from None

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, known or asked for."""
        await self._core.wait_for_metadata(topic, -1, self.config.max_block_ms)
        return set(range(len(self._topics[topic].queues)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster is known."""
        return bool(self._core.client.metadata.view.nodes)

    async def metrics(self) -> dict[str, Any]:
        """What `stats_cb` would be told at this moment, with librdkafka's names. Windows begin anew."""
        return await self._core.metrics()

    # ---- transactions

    async def init_transactions(self, transactional_id: str | None = None) -> None:
        """Once, before the first transaction. With a transactional id, also between transactions: the producer goes on
        under that one, with the connections that it has."""
        await self._core.transact("init_transactions", transactional_id)

    async def begin_transaction(self) -> None:
        """From here on, what is sent belongs to a transaction, until it is committed or aborted."""
        await self._core.transact("begin_transaction")

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits a consumer's offsets with the transaction: `consumer.group_metadata()`, or a group's id alone."""
        await self._core.transact("send_offsets_to_transaction", offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Returns when all records are written and the decision too. After KafkaTimeoutError it may be called again,
        and goes on waiting for the same commit."""
        await self._core.transact("commit_transaction")

    async def abort_transaction(self) -> None:
        """Records that were not sent fail with TransactionAbortedError; the others are never seen by readers of
        committed records."""
        await self._core.transact("abort_transaction")

    def transaction(self) -> "Transaction":
        """`async with producer.transaction():` begins one, and commits it at the end of the block. An exception in the
        block aborts it, and so does an error of the commit that is `abortable`."""
        return Transaction(self)

    # ---- the end

    async def close(self, timeout: float | None = None) -> None:
        """Sends what is there and closes, after `timeout` seconds at the latest."""
        check_timeout(timeout)
        if self._is_closed:
            return
        if self._started is not None:
            check_loop(self._started.client.loop)
        self._is_closed = True
        self._gate = self._not_started
        if self._started is not None:
            await self._started.close(timeout)

    stop = close

    def __del__(self) -> None:
        if getattr(self, "_started", None) is not None and not self._is_closed:
            warnings.warn(
                "a headrace Producer was left open: await close()", ResourceWarning, source=self, stacklevel=2
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Transaction:
    """What `Producer.transaction()` returns."""

    def __init__(self, producer: Producer):
        self._producer = producer

    async def __aenter__(self) -> Producer:
        await self._producer.begin_transaction()
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._producer.commit_transaction()
            except KafkaError as failure:
                if failure.abortable:
                    await self._producer.abort_transaction()
                raise
        elif not getattr(error, "fatal", False):
            await self._producer.abort_transaction()
