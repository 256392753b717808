"""Sends Arrow tables: rows to partitions, partitions to batches, and one future for all.

    data ─▶ table (`arrow_input`) ─▶ slices ─▶ partition of each row (`_rows`) ─▶ take ─▶ `records.arrow.open_encoder`
         ─▶ accumulator ─▶ sender

No Python object is created per row. Batches are as large as a request allows, whatever `batch.size` says: all rows are
there already, so nothing waits for a batch to fill. Runs in the thread that sends.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from headrace.client.errors import IllegalArgumentError
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer._rows import choose_partitions, group_rows
from headrace.client.producer.arrow_input import read_table
from headrace.client.producer.base import BaseProducer
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.types import ArrowData
from headrace.client.waiting import InterruptibleEvent
from headrace.common.errors import MessageSizeTooLargeError
from headrace.common.extras import requires_extra
from headrace.common.types import TopicPartition
from headrace.records.arrow import open_encoder

with requires_extra("arrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["ArrowFuture", "ArrowMetadata", "OffsetRange", "send_arrow"]

_MAX_BATCH_BYTES = 1_000_000
"""Below the default message.max.bytes of brokers: 1048588, and 1000012 in old versions."""
_REQUEST_OVERHEAD_BYTES = 1024
_SLICE_BATCHES = 8
"""The size of a slice with keys, in batches: large enough that each partition's share is not too small."""
_LONG_SLICE_BATCHES = 64
"""The size of a slice without keys, in batches. It is not copied, but its last batch is not full."""


class OffsetRange(NamedTuple):
    """Consecutive rows in one partition. `base_offset` is -1 if it is not known, as with acks=0."""

    partition: int
    base_offset: int
    rows: int


class ArrowMetadata(NamedTuple):
    """The offsets of a table's rows. Within a partition, rows keep their order."""

    topic: str
    rows: int
    ranges: tuple[OffsetRange, ...]


class ArrowFuture:
    """The result of sending a table, with the methods of a record's future. `get` raises the first error if any batch
    failed, or if sending stopped before the last row."""

    def __init__(self, topic: str, rows: int, batches: list[ProducerBatch], stopped_by: Exception | None = None):
        """`stopped_by` is the error because of which `batches` are not the whole table."""
        self._topic = topic
        self._rows = rows
        self._batches = batches
        self._stopped_by = stopped_by
        self._done = 0
        """The number of leading batches that are done. A race between threads may lower it, which only costs time."""

    def _leaves(self) -> Iterator[ProducerBatch]:
        """Yields the batches. A split batch is replaced by its parts."""
        for batch in self._batches:
            yield from _parts_of(batch)

    def _pending(self) -> ProducerBatch | None:
        """Returns the first batch that is not done."""
        for batch_index in range(self._done, len(self._batches)):
            for leaf in _parts_of(self._batches[batch_index]):
                if not leaf.is_done:
                    return leaf
            self._done = batch_index + 1
        return None

    @property
    def is_done(self) -> bool:
        return self._pending() is None

    @property
    def exception(self) -> BaseException | None:
        if not self.is_done:
            return None
        return next((batch.error for batch in self._leaves() if batch.error is not None), self._stopped_by)

    def succeeded(self) -> bool:
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        return self.is_done and self.exception is not None

    @property
    def value(self) -> ArrowMetadata | None:
        """The offsets of all rows, or None until all are acknowledged."""
        return ArrowMetadata(self._topic, self._rows, self.acknowledged) if self.succeeded() else None

    @property
    def acknowledged(self) -> tuple[OffsetRange, ...]:
        """The rows acknowledged so far, even if others failed."""
        return tuple(
            OffsetRange(batch.tp.partition, batch.base_offset, len(batch))
            for batch in self._leaves()
            if batch.is_done and batch.error is None
        )

    def get(self, *, timeout_ms: float | None = None) -> ArrowMetadata:
        """Waits until all rows are acknowledged. Raises KafkaTimeoutError after `timeout_ms`."""
        done = InterruptibleEvent()
        self.add_done(lambda *_: done.set())
        if not done.wait(None if timeout_ms is None else timeout_ms / 1000):
            pending = self._pending()
            if pending is not None:
                pending.future().get(timeout_ms=0)
        return self._result()

    def _result(self) -> ArrowMetadata:
        error = self.exception
        if error is not None:
            raise error
        value = self.value
        assert value is not None
        return value

    def add_done(self, function: Callable[[BaseException | None, ArrowMetadata | None], Any]) -> "ArrowFuture":
        """Calls `function(error, metadata)` when all batches are done."""

        def check(*_: Any) -> None:
            pending = self._pending()
            if pending is None:
                function(self.exception, self.value)
            else:
                pending.future().add_done(check)

        check()
        return self

    def add_callback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "ArrowFuture":
        return self.add_done(lambda error, value: None if error is not None else function(*args, value, **kwargs))

    def add_errback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "ArrowFuture":
        return self.add_done(lambda error, _: None if error is None else function(*args, error, **kwargs))

    def __await__(self) -> Generator[Any, None, ArrowMetadata]:
        while (pending := self._pending()) is not None:
            try:
                yield from pending.future().__await__()
            except Exception:  # noqa: BLE001 - `_result` raises it when all batches are done
                continue
        return self._result()


def _parts_of(batch: ProducerBatch) -> Iterator[ProducerBatch]:
    parts = batch.parts
    if parts is None:
        yield batch
        return
    for part in parts:
        yield from _parts_of(part)


async def send_arrow(producer: BaseProducer, topic: str, data: ArrowData, partition: int | None) -> ArrowFuture:
    """Appends all rows to the accumulator, and waits for metadata and for the memory of each batch. Raises errors only
    before the first batch. The future gets later errors."""
    core = producer._core
    _check(producer, partition)
    table = read_table(data)
    deadline = producer._block_deadline()
    while not _is_known(core, topic, partition):
        await producer._wait_for_partition(topic, -1 if partition is None else partition, deadline)
    batches: list[ProducerBatch] = []
    try:
        for tp, encoded in _encode(producer, topic, table, partition):
            if not core.buffers.take_over(len(encoded)):
                await producer._wait_for_memory(len(encoded), producer._block_deadline(), wants_buffer=False)
            batches.append(_append(core, tp, encoded))
            await producer._yield_to_sender()
    except Exception as error:
        if not batches:
            raise
        core.fail_transaction(error)
        return ArrowFuture(topic, table.num_rows, batches, error)
    return ArrowFuture(topic, table.num_rows, batches)


def _check(producer: BaseProducer, partition: int | None) -> None:
    if producer._check_state is not None:
        producer._check_state()
    if producer._core.fatal_error is not None:
        raise producer._core.fatal_error
    if partition is not None and partition < 0:
        raise IllegalArgumentError(f"partition={partition} is not valid: expected at least 0")


def _is_known(core: ProducerCore, topic: str, partition: int | None) -> bool:
    queues = core.accumulator.topics.get(topic)
    return queues is not None and len(queues.queues) > (partition or 0)


def _append(core: ProducerCore, tp: TopicPartition, encoded: bytearray) -> ProducerBatch:
    """Queues a batch whose memory is already counted."""
    batch = ProducerBatch.from_bytes(tp, encoded, core.clock.monotonic(), len(encoded))
    try:
        core.accumulator.append_batch(tp, batch)
    except BaseException:
        core.buffers.give_back(None, len(encoded))
        raise
    return batch


def _encode(
    producer: BaseProducer, topic: str, data: pa.Table | pa.RecordBatch, partition: int | None
) -> Iterator[tuple[TopicPartition, bytearray]]:
    """Yields the encoded batches of all rows with their partitions. Encodes a batch only when it is requested."""
    core, ignore_keys = producer._core, producer._ignore_keys
    config = core.accumulator.config
    max_bytes = max(
        1, min(_MAX_BATCH_BYTES, config.max_request_bytes - _REQUEST_OVERHEAD_BYTES, core.config.buffer_memory // 2)
    )
    names = data.schema.names
    queues = core.accumulator.topics[topic].queues
    if partition is None and "partition" in names:
        _check_partitions(data.column(names.index("partition")), len(queues))
    by_rows = partition is None and ("partition" in names or ("key" in names and not ignore_keys))
    slice_bytes = max_bytes * _LONG_SLICE_BATCHES
    if by_rows:
        slice_bytes = min(max_bytes * min(len(queues), _SLICE_BATCHES), core.config.buffer_memory // 2)
    for rows in _slices(data, slice_bytes):
        shares: list[tuple[int | None, pa.RecordBatch]] = [(partition, rows)]
        if by_rows:
            shares = _by_partition(rows, len(queues), core.accumulator.next_sticky(topic), ignore_keys)
        for share_partition, share in shares:
            encoder = open_encoder(share, core.clock.time_ms())
            while True:
                encoded = encoder.encode_next(
                    default_timestamp=core.clock.time_ms(),
                    max_bytes=max_bytes,
                    codec=config.codec,
                    level=config.level,
                    spare=core.buffers.spare,
                )
                if encoded is None:
                    break
                if len(encoded) > config.max_request_bytes:
                    raise MessageSizeTooLargeError(
                        f"A row for topic {topic!r} is {len(encoded)} bytes when encoded, which is larger than "
                        f"max.request.size ({config.max_request_bytes} bytes)"
                    )
                chosen = core.accumulator.next_sticky(topic) if share_partition is None else share_partition
                yield queues[chosen].tp, encoded


def _check_partitions(column: pa.Array | pa.ChunkedArray, partition_count: int) -> None:
    """Checks column `partition` before the first row is sent."""
    if not pa.types.is_integer(column.type):
        raise IllegalArgumentError(f"Column 'partition' has type {column.type}: expected integers")
    lowest, highest = pc.min_max(column).as_py().values()
    if highest is not None and not 0 <= lowest <= highest < partition_count:
        invalid = lowest if lowest < 0 else highest
        raise IllegalArgumentError(
            f"Column 'partition' contains {invalid}, but the topic has {partition_count} partitions"
        )


def _slices(data: pa.Table | pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows as record batches of about `max_bytes` at most."""
    for chunk in data.to_batches() if isinstance(data, pa.Table) else [data]:
        if chunk.num_rows == 0:
            continue
        row_bytes = chunk.nbytes // chunk.num_rows + 16
        step = max(1, max_bytes // row_bytes)
        for start in range(0, chunk.num_rows, step):
            yield chunk.slice(start, step)


def _by_partition(
    rows: pa.RecordBatch, partition_count: int, fallback: int, ignore_keys: bool
) -> list[tuple[int | None, pa.RecordBatch]]:
    """Splits rows by partition: column `partition`, or else the hash of the key, or else `fallback`."""
    names = rows.schema.names
    partitions = keys = None
    if "partition" in names:
        column = rows.column(names.index("partition"))
        column = column.cast(pa.int32()).fill_null(-1)
        partitions = memoryview(column.buffers()[1])[4 * column.offset :]
    if "key" in names and not ignore_keys:
        column = rows.column(names.index("key"))
        if not pa.types.is_null(column.type):
            if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
                column = column.cast(pa.binary())
            validity, offsets, content = column.buffers()
            keys = (validity if column.null_count else None, offsets, content, column.offset)
    row_partitions = choose_partitions(rows.num_rows, partition_count, fallback, partitions, keys)
    order, groups = group_rows(row_partitions, partition_count)
    if len(groups) == 1:
        return [(groups[0][0], rows)]
    shares: list[tuple[int | None, pa.RecordBatch]] = []
    for partition, first, end in groups:
        indices = pa.Array.from_buffers(pa.int64(), end - first, [None, pa.py_buffer(order)], 0, first)
        shares.append((partition, rows.take(indices)))
    return shares
