"""The asyncio producer. Belongs to the event loop on which `start` was called."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from headrace.client.arguments import AnyPartition, OffsetLike
from headrace.client.background import check_loop
from headrace.client.config.keywords import ProducerKeywords
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.types import ProducerConfig
from headrace.client.core import ClientCore
from headrace.client.errors import IllegalStateError, KafkaTimeoutError
from headrace.client.metric_names import KafkaMetric, MetricName, flatten
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer.base import BaseProducer
from headrace.client.producer.config import timeout_seconds
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.types import ArrowData, Headers, OnDelivery
from headrace.client.types import ConsumerGroupMetadata, RecordMetadata
from headrace.common.clock import Clock
from headrace.common.errors import KafkaError
from headrace.common.ids import Random
from headrace.net.dialer import Dialer

if TYPE_CHECKING:
    from headrace.client.producer.arrow import ArrowFuture

__all__ = ["Producer"]


class Producer(BaseProducer):
    """Sends records to topics.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            future = await producer.send("orders", b"value", key=b"key")    # in a batch
            metadata = await future                                         # acknowledged
            await producer.send_and_wait("orders", b"value")                # both

    Takes the same configs as `headrace.Producer`.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        dialer: Dialer | None = None,
        **keywords: Unpack[ProducerKeywords],
    ):
        """Configs are keyword arguments or a mapping. `clock`, `random` and `dialer` replace time, randomness and
        sockets in tests."""
        super().__init__(PRODUCER_KEYS.load(config, **keywords))
        if clock is not None:
            self._clock = clock
        self._random = random
        self._dialer = dialer
        self._check_state = self._raise_not_started
        self._started: ProducerCore | None = None
        self._is_closed = False

    @property
    def _core(self) -> ProducerCore:
        return self._check_usable()

    @property
    def _running_client(self) -> ClientCore[ProducerConfig] | None:
        return None if self._started is None or self._is_closed else self._started.client

    def _check_usable(self) -> ProducerCore:
        """Returns the core. Raises if the producer is not open or belongs to another event loop."""
        if self._started is None or self._is_closed:
            self._raise_not_started()
        assert self._started is not None
        check_loop(self._started.client.loop)
        return self._started

    def _raise_not_started(self) -> None:
        raise IllegalStateError(
            "Cannot perform operation after producer has been closed"
            if self._is_closed
            else "The producer is not started: await start(), or use async with"
        )

    async def start(self) -> None:
        """Starts the producer on the running event loop. Does not need a broker yet."""
        if self._started is not None or self._is_closed:
            raise IllegalStateError("The producer was already started: create a new one")
        self._started = ProducerCore(self.config, clock=self._clock, random=self._random, dialer=self._dialer)
        self._start(self._started)

    # ---- sending

    async def send(  # type: ignore[override]
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Appends a record to the batch of its partition and returns the record's future, which can be awaited. Waits
        only for missing metadata or memory, up to `max.block.ms`."""
        self._check_usable()
        result = self._try_append(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return result if isinstance(result, FutureRecordMetadata) else await self._append(result)

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

    async def send_arrow(self, topic: str, data: ArrowData, *, partition: int | None = None) -> "ArrowFuture":
        """Sends every row of an Arrow table or record batch, as `headrace.Producer.send_arrow`. Returns one future,
        which can be awaited."""
        from headrace.client.producer.arrow import send_arrow

        return await send_arrow(self, topic, data, partition)

    async def _wait_for_partition(self, topic: str, partition: int, deadline: float) -> None:
        core = self._core
        left_ms = max(0.0, (deadline - core.clock.monotonic()) * 1000)
        await core.metadata.wait_for_partition(topic, partition, left_ms)

    async def _wait_for_memory(self, size: int, deadline: float, wants_buffer: bool = True) -> bytearray | None:
        core = self._core
        return await core.wait_for_memory(size, deadline - core.clock.monotonic(), wants_buffer)

    async def _yield_to_sender(self) -> None:
        await asyncio.sleep(0)

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """Sends all records now and waits until they are acknowledged or have failed. Raises KafkaTimeoutError after
        `timeout_ms`."""
        try:
            async with asyncio.timeout(timeout_seconds(timeout_ms)):
                await self._core.flush()
        except TimeoutError:
            raise KafkaTimeoutError(f"Not all records were acknowledged within {timeout_ms:g} ms") from None

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the partitions of a topic. Waits for its metadata if necessary."""
        await self._wait_for_partition(topic, -1, self._block_deadline())
        return self._partitions(topic)

    @overload
    async def metrics(self, raw: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    async def metrics(self, raw: Literal[True]) -> dict[MetricName, KafkaMetric]: ...

    async def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Returns the statistics that `stats_cb` receives, with librdkafka's names. Resets their time windows. With
        `raw`, returns a flat mapping of MetricName to KafkaMetric."""
        statistics = await self._core.metrics()
        return flatten(statistics) if raw else statistics

    # ---- transactions: see headrace.Producer

    async def init_transactions(self, transactional_id: str | None = None) -> None:
        """Gets the producer ID and epoch of the transactional ID and fences other producers with the same ID. Call it
        once, before the first transaction. With the argument `transactional_id`, it may also be called between
        transactions, and the producer continues with that ID."""
        await self._core.init_transactions(transactional_id)

    async def begin_transaction(self) -> None:
        """Begins a transaction. All records sent until it is committed or aborted belong to it."""
        await self._core.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[AnyPartition, OffsetLike],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commits a consumer group's offsets with the transaction."""
        await self._core.send_offsets_to_transaction(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Commits the transaction. After KafkaTimeoutError, call it again to wait for the same commit."""
        await self._core.commit_transaction()

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Unsent records fail with TransactionAbortedError."""
        await self._core.abort_transaction()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """`async with producer.transaction():` begins a transaction and commits it at the end of the block. An
        exception in the block aborts it, and so does an `abortable` error of the commit. Both exceptions are raised
        again."""
        await self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            if not getattr(error, "fatal", False):
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except KafkaError as error:
            if error.abortable:
                await self.abort_transaction()
            raise

    # ---- closing

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Sends the queued records and closes the producer. Records that are not sent after `timeout_ms` fail."""
        timeout = timeout_seconds(timeout_ms)
        if self._is_closed:
            return
        if self._started is not None:
            check_loop(self._started.client.loop)
        self._is_closed = True
        self._check_state = self._raise_not_started
        if self._started is not None:
            await self._started.close(timeout)

    stop = close

    def __del__(self) -> None:
        if getattr(self, "_started", None) is not None and not self._is_closed:
            warnings.warn(
                "A headrace Producer was left open: await close()", ResourceWarning, source=self, stacklevel=2
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
