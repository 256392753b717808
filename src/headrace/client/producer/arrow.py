"""Arrow tables to topics: rows to partitions, partitions to batches, and one future for all.

    table ─▶ slices ─▶ partition of each row (`_rows`) ─▶ take ─▶ `records.arrow.encode_arrow` ─▶ accumulator ─▶ sender

No Python object is made for a row. Batches are as large as a request may be, whatever `batch.size` says: the rows are
there already, so nothing waits for a batch to fill. Runs in the thread that sends.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from headrace.client.errors import IllegalArgumentError
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer._rows import choose_rows, group_rows
from headrace.client.producer._send import SendPath
from headrace.client.producer.core import ProducerCore
from headrace.common.errors import MessageSizeTooLargeError
from headrace.common.extras import requires_extra
from headrace.common.types import TopicPartition
from headrace.records import RecordBatch
from headrace.records.arrow import encode_arrow

with requires_extra("arrow"):
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["ArrowFuture", "ArrowMetadata", "OffsetRange"]

_LARGEST_BATCH = 1_000_000
"""Below what brokers take by default (message.max.bytes, 1048588)."""
_REQUEST_ROOM = 1024
_SLICE_BATCHES = 8
"""A slice with keys is so many batches long at most, so that each partition's share of it is not too small."""


class OffsetRange(NamedTuple):
    """Rows that went to one partition one behind the other. `base_offset` is -1 if it is not known, as with acks=0."""

    partition: int
    base_offset: int
    rows: int


class ArrowMetadata(NamedTuple):
    """Where the rows of a table went. Within a partition they are in their order."""

    topic: str
    rows: int
    ranges: tuple[OffsetRange, ...]


class ArrowFuture:
    """What becomes of a table. As a record's future; `get` raises the first error if any batch failed, or if sending
    ended before the last row."""

    def __init__(self, topic: str, rows: int, batches: list[ProducerBatch], stopped_by: Exception | None = None):
        """`stopped_by` is why the batches are not the whole table."""
        self._topic = topic
        self._rows = rows
        self._batches = batches
        self._stopped_by = stopped_by
        self._done = 0
        """So many of them have their answer; a look from another thread may set it back, which costs time only."""

    def _leaves(self) -> Iterator[ProducerBatch]:
        """The batches, with those that were split replaced by their parts."""
        for batch in self._batches:
            yield from _parts_of(batch)

    def _pending(self) -> ProducerBatch | None:
        """The first that has no answer yet."""
        for index in range(self._done, len(self._batches)):
            for leaf in _parts_of(self._batches[index]):
                if not leaf.is_done:
                    return leaf
            self._done = index + 1
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
        """Where the rows are; None as long as that is not known, or if some are not."""
        return ArrowMetadata(self._topic, self._rows, self.acknowledged) if self.succeeded() else None

    @property
    def acknowledged(self) -> tuple[OffsetRange, ...]:
        """What has been acknowledged so far, also if other rows failed."""
        return tuple(
            OffsetRange(batch.tp.partition, batch.base_offset, len(batch))
            for batch in self._leaves()
            if batch.is_done and batch.error is None
        )

    def get(self, timeout: float | None = None) -> ArrowMetadata:
        """Waits until all rows are acknowledged; for `timeout` seconds, and raises KafkaTimeoutError then."""
        done = threading.Event()
        self.add_done(lambda *_: done.set())
        if not done.wait(timeout):
            pending = self._pending()
            if pending is not None:
                pending.future().get(0)
        return self._result()

    def _result(self) -> ArrowMetadata:
        error = self.exception
        if error is not None:
            raise error
        value = self.value
        assert value is not None
        return value

    def add_done(self, function: Callable[[BaseException | None, ArrowMetadata | None], Any]) -> "ArrowFuture":
        """Calls `function(error, metadata)` when all rows have their answer."""

        def look(*_: Any) -> None:
            pending = self._pending()
            if pending is None:
                function(self.exception, self.value)
            else:
                pending.future().add_done(look)

        look()
        return self

    def add_callback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "ArrowFuture":
        return self.add_done(lambda error, value: None if error is not None else function(*args, value, **kwargs))

    def add_errback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "ArrowFuture":
        return self.add_done(lambda error, _: None if error is None else function(*args, error, **kwargs))

    def __await__(self) -> Generator[Any, None, ArrowMetadata]:
        while (pending := self._pending()) is not None:
            try:
                yield from pending.future().__await__()
            except Exception:  # noqa: BLE001 - told below, when all is known
                continue
        return self._result()


def _parts_of(batch: ProducerBatch) -> Iterator[ProducerBatch]:
    parts = batch.parts
    if parts is None:
        yield batch
        return
    for part in parts:
        yield from _parts_of(part)


def send_arrow(
    path: SendPath,
    core: ProducerCore,
    topic: str,
    data: pa.Table | pa.RecordBatch,
    partition: int | None,
    wait_for_topic: Callable[[str, int, float], None],
    wait_for_room: Callable[[int, float], object],
) -> ArrowFuture:
    """For the blocking producer: `wait_for_*` block until a deadline."""
    _check(path, core, data, partition)
    deadline = core.clock.monotonic() + core.settings.max_block_ms / 1000
    while not _is_known(core, topic, partition):
        wait_for_topic(topic, -1 if partition is None else partition, deadline)
    batches: list[ProducerBatch] = []
    try:
        for tp, encoded in _encode(path, core, topic, data, partition):
            if not core.buffers.take_over(len(encoded)):
                wait_for_room(len(encoded), core.clock.monotonic() + core.settings.max_block_ms / 1000)
            batches.append(_append(core, tp, encoded))
    except Exception as error:
        if not batches:
            raise
        return _stopped(core, topic, data, batches, error)
    return ArrowFuture(topic, data.num_rows, batches)


async def send_arrow_async(
    path: SendPath, core: ProducerCore, topic: str, data: pa.Table | pa.RecordBatch, partition: int | None
) -> ArrowFuture:
    _check(path, core, data, partition)
    deadline = core.clock.monotonic() + core.settings.max_block_ms / 1000
    while not _is_known(core, topic, partition):
        left_ms = max(0.0, (deadline - core.clock.monotonic()) * 1000)
        await core.wait_for_metadata(topic, -1 if partition is None else partition, left_ms)
    batches: list[ProducerBatch] = []
    try:
        for tp, encoded in _encode(path, core, topic, data, partition):
            if not core.buffers.take_over(len(encoded)):
                await core.wait_for_room(len(encoded), core.settings.max_block_ms / 1000, False)
            batches.append(_append(core, tp, encoded))
            await asyncio.sleep(0)
    except Exception as error:
        if not batches:
            raise
        return _stopped(core, topic, data, batches, error)
    return ArrowFuture(topic, data.num_rows, batches)


def _stopped(
    core: ProducerCore, topic: str, data: pa.Table | pa.RecordBatch, batches: list[ProducerBatch], error: Exception
) -> ArrowFuture:
    """Some rows were sent, so an error alone would not tell what became of them: the future does."""
    core.spoil(error)
    return ArrowFuture(topic, data.num_rows, batches, error)


def _check(path: SendPath, core: ProducerCore, data: Any, partition: int | None) -> None:
    if path._gate is not None:
        path._gate()
    if core.fatal_error is not None:
        raise core.fatal_error
    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise TypeError(f"send_arrow takes a pyarrow Table or RecordBatch, not {type(data).__name__}")
    if partition is not None and partition < 0:
        raise IllegalArgumentError(f"a partition is at least 0, not {partition}")


def _is_known(core: ProducerCore, topic: str, partition: int | None) -> bool:
    queues = core.accumulator.topics.get(topic)
    return queues is not None and len(queues.queues) > (partition or 0)


def _append(core: ProducerCore, tp: TopicPartition, encoded: bytearray) -> ProducerBatch:
    """Queues a batch whose memory is counted."""
    batch = ProducerBatch.from_bytes(tp, encoded, core.clock.monotonic(), len(encoded))
    try:
        core.accumulator.append_batch(tp, batch)
    except BaseException:
        core.buffers.give_back(None, len(encoded))
        raise
    return batch


def _encode(
    path: SendPath, core: ProducerCore, topic: str, data: pa.Table | pa.RecordBatch, partition: int | None
) -> Iterator[tuple[TopicPartition, bytearray]]:
    settings = core.accumulator.settings
    max_bytes = max(
        1, min(_LARGEST_BATCH, settings.max_request_bytes - _REQUEST_ROOM, core.settings.buffer_memory // 2)
    )
    names = data.schema.names
    if "value" not in names:
        raise IllegalArgumentError(f"the data needs a column 'value', it has {names}")
    queues = core.accumulator.topics[topic].queues
    if partition is None and "partition" in names:
        _check_partitions(data.column(names.index("partition")), len(queues))
    by_rows = partition is None and ("partition" in names or ("key" in names and not path._ignore_keys))
    largest = min(
        max_bytes * min(len(queues), _SLICE_BATCHES) if by_rows else max_bytes, core.settings.buffer_memory // 2
    )
    for rows in _slices(data, largest):
        now_ms = core.clock.time_ms()
        fallback = partition if partition is not None else core.accumulator.next_sticky(topic)
        shares = _by_partition(rows, len(queues), fallback, path._ignore_keys) if by_rows else [(fallback, rows)]
        for number, share in shares:
            encoded = encode_arrow(
                share,
                timestamp=now_ms,
                max_bytes=max_bytes,
                codec=settings.codec,
                level=settings.level,
                spare=core.buffers.spare,
            )
            for each in encoded:
                if len(each) > settings.max_request_bytes:
                    raise MessageSizeTooLargeError(
                        f"a row of {len(each)} bytes is larger than max.request.size, {settings.max_request_bytes}"
                    )
                RecordBatch(each).patch_base_offset(0)  # brokers look at offsets within a compressed batch
                yield queues[number].tp, each


def _check_partitions(column: pa.Array | pa.ChunkedArray, partition_count: int) -> None:
    """Before the first row is sent."""
    if not pa.types.is_integer(column.type):
        raise IllegalArgumentError(f"column 'partition' holds {column.type}; expected integers")
    lowest, highest = pc.min_max(column).as_py().values()
    if highest is not None and not 0 <= lowest <= highest < partition_count:
        wrong = lowest if lowest < 0 else highest
        raise IllegalArgumentError(f"column 'partition' has {wrong}; the topic has {partition_count} partitions")


def _slices(data: pa.Table | pa.RecordBatch, largest_bytes: int) -> Iterator[pa.RecordBatch]:
    """Record batches of at most about so many bytes."""
    for chunk in data.to_batches() if isinstance(data, pa.Table) else [data]:
        if chunk.num_rows == 0:
            continue
        per_row = chunk.nbytes // chunk.num_rows + 16
        step = max(1, largest_bytes // per_row)
        for start in range(0, chunk.num_rows, step):
            yield chunk.slice(start, step)


def _by_partition(
    rows: pa.RecordBatch, partition_count: int, fallback: int, ignore_keys: bool
) -> list[tuple[int, pa.RecordBatch]]:
    names = rows.schema.names
    given = keys = None
    if "partition" in names:
        column = rows.column(names.index("partition"))
        column = column.cast(pa.int32()).fill_null(-1)
        given = memoryview(column.buffers()[1])[4 * column.offset :]
    if "key" in names and not ignore_keys:
        column = rows.column(names.index("key"))
        if not pa.types.is_null(column.type):
            if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
                column = column.cast(pa.binary())
            validity, offsets, content = column.buffers()
            keys = (validity if column.null_count else None, offsets, content, column.offset)
    chosen = choose_rows(rows.num_rows, partition_count, fallback, given, keys)
    order, groups = group_rows(chosen, partition_count)
    if len(groups) == 1:
        return [(groups[0][0], rows)]
    found = []
    for number, first, end in groups:
        picked = pa.Array.from_buffers(pa.int64(), end - first, [None, pa.py_buffer(order)], 0, first)
        found.append((number, rows.take(picked)))
    return found
