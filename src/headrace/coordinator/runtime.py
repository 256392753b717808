"""Runs one state machine (a shard) for each partition of an internal topic that this broker leads.

    write    operation(shard) ── Result(records, reply) ──► one batch appended ──► each record replayed by the shard
                   │ raises                                      │ fails                       │
                   ▼                                             ▼                             ▼ when it is committed
             the error goes to the caller, and no state has changed                     the reply goes to the caller

    load     every batch of the partition, in slices on the loop ──► replayed ──► `on_loaded`
    unload   waiting callers get NOT_COORDINATOR, timers are cancelled, the shard is dropped

An operation looks at the shard's durable state and may not change it; that is for `replay` alone, which sees the same
records live and on load. So a shard that was loaded is the shard that wrote. Appending and replaying happen in one step
of the loop: the next operation sees what the last one did. What is not committed yet is seen by operations too, but no
reply leaves before everything that it can have seen is committed.

Timers of a shard run operations as well, on the broker's timing wheel; they go with the shard.
Owned by the broker's loop. Does no I/O: the broker gives a `PartitionLog` for each partition.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from headrace.common.clock import Clock
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    HeadraceError,
    KafkaError,
    NotCoordinatorError,
    UnknownError,
)
from headrace.common.timing_wheel import Timer, TimerEntry
from headrace.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchBuilder,
    ControlType,
    Record,
    RecordBatch,
    decode_rows,
    encode_marker,
    read_marker,
)

__all__ = [
    "Committed",
    "KeyValue",
    "OperationResult",
    "PartitionLog",
    "ProducerInfo",
    "Result",
    "Runtime",
    "Shard",
    "ShardContext",
    "java_string_hash",
    "partition_for",
]

_logger = logging.getLogger(__name__)

T = TypeVar("T")


def java_string_hash(text: str) -> int:
    """What Java's `String.hashCode` gives: over UTF-16 code units, in 32 bits with a sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


_cached_hash = lru_cache(maxsize=4096)(java_string_hash)
_LONGEST_CACHED = 255
"""Characters: a client could have the cache keep 4096 names of 32 KB."""


def partition_for(name: str, partitions: int) -> int:
    """The partition of an internal topic that a group or a transactional id belongs to."""
    value = _cached_hash(name) if len(name) <= _LONGEST_CACHED else java_string_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


class KeyValue(NamedTuple):
    """A record to be written; without a value it takes back what the key stands for."""

    key: bytes
    value: bytes | None


class ProducerInfo(NamedTuple):
    """Of a batch that belongs to a transaction."""

    producer_id: int
    producer_epoch: int


Committed = Callable[[KafkaError | None], None]
"""Told once what became of an append: committed, or the error for those who wait for it."""


class Result(NamedTuple, Generic[T]):
    """What an operation comes to: records to write, and the reply for when they are committed."""

    records: Sequence[KeyValue]
    reply: T
    after: Committed | None = None
    """Called before the reply goes out, or instead of it if the append failed or the shard went away."""
    producer: ProducerInfo | None = None
    """Set if the records belong to a transaction, and count only when that is committed."""
    undo: Callable[[], None] | None = None
    """Called before `after` if nothing was written: takes back what the operation has changed in advance. What was
    written stays true, also if nobody learns in time that it is committed."""


class OperationResult(Generic[T]):
    """The reply of an operation, or the error that came instead."""

    __slots__ = ("_value", "error")

    def __init__(self, value: T | None = None, error: KafkaError | None = None):
        self._value = value
        self.error = error

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]


class Shard(Protocol):
    """A state machine for one partition. Synchronous; only `replay` and `replay_end` change durable state."""

    def replay(self, record: Record, producer: ProducerInfo | None) -> None: ...

    def replay_end(self, producer: ProducerInfo, committed: bool) -> None:
        """The end of a producer's transaction in this partition."""

    def on_loaded(self) -> None: ...

    def on_unloaded(self) -> None: ...


class PartitionLog(Protocol):
    """What the broker gives for a partition that it leads."""

    def start_offset(self) -> int: ...

    def end_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> list[RecordBatch]:
        """Whole batches from an offset on; none only at the end."""

    def append(self, batch: bytearray) -> int:
        """Appends as a coordinator does; returns the offset of the last record. Raises KafkaError."""

    def is_committed(self, offset: int) -> bool: ...

    def when_committed(self, offset: int, done: Committed) -> None:
        """Calls back when it is committed, when time is up, or when the broker leads the partition no more."""


class ShardContext:
    """What a shard has of the world: the clock, and timers of its own, each under a key."""

    def __init__(self, index: int, clock: Clock, timer: Timer, run: Callable[[Callable[[], "Result[None]"]], None]):
        self.index = index
        self._clock = clock
        self._timer = timer
        self._run = run
        self._entries: dict[Hashable, TimerEntry] = {}

    def now_ms(self) -> int:
        """Wall time, for what is written down."""
        return self._clock.time_ms()

    def steady_ms(self) -> int:
        """Steady time, for what expires."""
        return round(self._clock.monotonic() * 1000)

    def schedule(self, key: Hashable, delay_ms: int, operation: Callable[[], "Result[None]"]) -> None:
        """Runs an operation later, in place of what was scheduled under the key."""
        self.cancel(key)

        def due() -> None:
            self._entries.pop(key, None)
            self._run(operation)

        self._entries[key] = self._timer.add(delay_ms, due)

    def cancel(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.cancel()

    def scheduled(self) -> set[Hashable]:
        """The keys of the timers that are set."""
        return set(self._entries)

    def cancel_all(self) -> None:
        for entry in self._entries.values():
            entry.cancel()
        self._entries.clear()


S = TypeVar("S", bound=Shard)


class _State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class _Slot(Generic[S]):
    """One partition: its log, its shard, and who waits for commits."""

    def __init__(self, index: int, leader_epoch: int, log: PartitionLog, shard: S, context: ShardContext):
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = log
        self.shard = shard
        self.context = context
        self.state = _State.LOADING
        self.next_offset = log.start_offset()
        self.last_written = -1
        self.waiting: dict[int, Committed] = {}
        self._tickets = 0

    def wait(self, done: Committed) -> Committed:
        """Remembers who waits, so that closing can tell them; the returned callback may come late, or twice."""
        self._tickets += 1
        ticket = self._tickets
        self.waiting[ticket] = done

        def once(error: KafkaError | None) -> None:
            if self.waiting.pop(ticket, None) is not None:
                done(error)

        return once


class Runtime(Generic[S]):
    """All shards of one internal topic on this broker.

    `call_soon` runs a function in a later step of the loop: loading gives way to other work between slices.
    """

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[ShardContext], S],
        clock: Clock,
        timer: Timer,
        call_soon: Callable[[Callable[[], None]], object],
        load_bytes: int = 256 * 1024,
    ):
        self.topic = topic
        self._make_shard = make_shard
        self._clock = clock
        self._timer = timer
        self._call_soon = call_soon
        self._load_bytes = load_bytes
        self._slots: dict[int, _Slot[S]] = {}

    # ---- coming and going

    def load(self, index: int, leader_epoch: int, log: PartitionLog) -> None:
        """This broker leads the partition now. An epoch that is known already, or older, changes nothing."""
        known = self._slots.get(index)
        if known is not None:
            if leader_epoch <= known.leader_epoch:
                return
            self.unload(index)
        self._open(index, leader_epoch, log)

    def _open(self, index: int, leader_epoch: int, log: PartitionLog) -> None:
        slot: _Slot[S]

        def run(operation: Callable[[], Result[None]]) -> None:
            self._write(slot, lambda _: operation(), _log_failure)

        context = ShardContext(index, self._clock, self._timer, run)
        slot = _Slot(index, leader_epoch, log, self._make_shard(context), context)
        self._slots[index] = slot
        self._load_slice(slot)

    def unload(self, index: int, leader_epoch: int | None = None) -> None:
        """This broker leads the partition no more; with an epoch, only if it was not made leader again since."""
        slot = self._slots.get(index)
        if slot is None or (leader_epoch is not None and leader_epoch < slot.leader_epoch):
            return
        del self._slots[index]
        was_active = slot.state is _State.ACTIVE
        slot.state = _State.CLOSED
        slot.context.cancel_all()
        error = NotCoordinatorError(f"this broker leads {self.topic}-{index} no more")
        for done in list(slot.waiting.values()):
            done(error)
        slot.waiting.clear()
        if was_active:
            slot.shard.on_unloaded()
        slot.context.cancel_all()

    def close(self) -> None:
        for index in list(self._slots):
            self.unload(index)

    def _load_slice(self, slot: _Slot[S]) -> None:
        if slot.state is not _State.LOADING:
            return
        try:
            done = self._replay_slice(slot)
        except Exception as error:
            slot.state = _State.FAILED
            if isinstance(error, HeadraceError):
                _logger.error("cannot load %s-%d: %s", self.topic, slot.index, error)
            else:
                _logger.exception("cannot load %s-%d", self.topic, slot.index)
            return
        if not done:
            self._call_soon(partial(self._load_slice, slot))
            return
        slot.state = _State.ACTIVE
        slot.last_written = slot.next_offset - 1
        slot.shard.on_loaded()
        if slot.next_offset:
            _logger.info("loaded %s-%d up to offset %d", self.topic, slot.index, slot.next_offset)

    def _replay_slice(self, slot: _Slot[S]) -> bool:
        """Replays some batches; returns whether that were the last ones."""
        if slot.next_offset >= slot.log.end_offset():
            return True
        batches = slot.log.read(slot.next_offset, self._load_bytes)
        if not batches:
            return True
        for batch in batches:
            if batch.next_offset > slot.next_offset:
                _replay_batch(slot.shard, batch, slot.next_offset)
                slot.next_offset = batch.next_offset
        return slot.next_offset >= slot.log.end_offset()

    # ---- asking

    def __contains__(self, index: int) -> bool:
        return index in self._slots

    def indexes(self) -> list[int]:
        """The partitions that are led here, loaded or not."""
        return sorted(self._slots)

    def shards(self) -> list[S]:
        """Those that are loaded."""
        return [slot.shard for slot in self._slots.values() if slot.state is _State.ACTIVE]

    def is_loading(self) -> bool:
        return any(slot.state is _State.LOADING for slot in self._slots.values())

    def leader_epoch(self, index: int) -> int:
        """The coordinator's epoch for what belongs to the partition."""
        return self._active(index).leader_epoch

    def shard(self, index: int) -> S:
        """For operations that write nothing; raises what a client gets that asks here for the partition."""
        return self._active(index).shard

    def _active(self, index: int) -> _Slot[S]:
        slot = self._slots.get(index)
        if slot is None:
            raise NotCoordinatorError(f"this broker does not lead {self.topic}-{index}")
        if slot.state is _State.LOADING:
            raise CoordinatorLoadInProgressError(f"{self.topic}-{index} is being loaded")
        if slot.state is not _State.ACTIVE:
            raise CoordinatorNotAvailableError(f"{self.topic}-{index} could not be loaded")
        return slot

    def read(self, index: int, operation: Callable[[S], T], done: Callable[[OperationResult[T]], None]) -> None:
        """Asks the shard; the answer comes when everything that it can have seen is committed, mostly at once."""
        self.write(index, lambda shard: Result((), operation(shard)), done)

    # ---- writing

    def write(
        self, index: int, operation: Callable[[S], Result[T]], done: Callable[[OperationResult[T]], None]
    ) -> None:
        """Runs an operation; `done` gets its reply when its records are committed, or the error."""
        try:
            slot = self._active(index)
        except KafkaError as error:
            done(OperationResult(error=error))
            return
        self._write(slot, operation, done)

    async def call(self, index: int, operation: Callable[[S], Result[T]]) -> T:
        """`write` for coroutines. An operation that was begun goes on if the caller is cancelled."""
        future: asyncio.Future[OperationResult[T]] = asyncio.get_running_loop().create_future()

        def done(outcome: OperationResult[T]) -> None:
            if not future.done():
                future.set_result(outcome)

        self.write(index, operation, done)
        return (await future).result()

    def _write(
        self, slot: _Slot[S], operation: Callable[[S], Result[T]], done: Callable[[OperationResult[T]], None]
    ) -> None:
        if slot.state is not _State.ACTIVE:
            done(OperationResult(error=NotCoordinatorError(f"this broker leads {self.topic}-{slot.index} no more")))
            return
        try:
            result = operation(slot.shard)
        except Exception as error:  # noqa: BLE001 - passed on
            done(OperationResult(error=self._as_kafka_error(error, slot, "an operation on")))
            return
        if result.records:
            try:
                batch = _encode(result.records, result.producer, self._clock.time_ms())
                slot.last_written = slot.log.append(batch)
            except Exception as error:  # noqa: BLE001 - passed on
                failure = self._as_kafka_error(error, slot, "an append to")
                if result.undo is not None:
                    result.undo()
                if result.after is not None:
                    result.after(failure)
                done(OperationResult(error=failure))
                return
            try:
                for record in result.records:
                    slot.shard.replay(Record(record.key, record.value, self._clock.time_ms()), result.producer)
            except Exception:
                _logger.exception("a record just written to %s-%d cannot be replayed", self.topic, slot.index)
                self._reload(slot)  # what is in the log is the truth
                failure = UnknownError("the broker failed after it had written")
                if result.after is not None:
                    result.after(failure)
                done(OperationResult(error=failure))
                return

        def finish(error: KafkaError | None) -> None:
            if result.after is not None:
                result.after(error)
            done(OperationResult(error=error) if error is not None else OperationResult(result.reply))

        self._when_committed(slot, finish)

    def end_transaction(
        self,
        index: int,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        done: Callable[[OperationResult[None]], None],
    ) -> None:
        """Writes the marker that ends a producer's transaction in the partition."""
        try:
            slot = self._active(index)
            marker = encode_marker(
                ControlType.COMMIT if committed else ControlType.ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self._clock.time_ms(),
            )
            slot.last_written = slot.log.append(marker)
        except KafkaError as error:
            done(OperationResult(error=error))
            return
        slot.shard.replay_end(producer, committed)
        self._when_committed(slot, lambda error: done(OperationResult(error=error)))

    def _when_committed(self, slot: _Slot[S], done: Committed) -> None:
        offset = slot.last_written
        if slot.log.is_committed(offset):
            done(None)
        else:
            slot.log.when_committed(offset, slot.wait(done))

    def _reload(self, slot: _Slot[S]) -> None:
        self.unload(slot.index)
        self._open(slot.index, slot.leader_epoch, slot.log)

    def _as_kafka_error(self, error: Exception, slot: _Slot[S], what: str) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        _logger.error("%s %s-%d failed", what, self.topic, slot.index, exc_info=error)
        return UnknownError(f"{what} {self.topic}-{slot.index} failed: {error}")


def _encode(records: Sequence[KeyValue], producer: ProducerInfo | None, timestamp_ms: int) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer.producer_id if producer is not None else NO_PRODUCER_ID,
        producer_epoch=producer.producer_epoch if producer is not None else NO_PRODUCER_EPOCH,
        transactional=producer is not None,
    )
    for key, value in records:
        builder.append(key, value, timestamp_ms)
    return builder.build()


def _replay_batch(shard: Shard, batch: RecordBatch, min_offset: int) -> None:
    if batch.count == 0:  # compaction left the header
        return
    producer = None
    if batch.is_transactional:
        producer = ProducerInfo(batch.producer_id, batch.producer_epoch)
    records = batch.records()
    if batch.is_control:
        marker = read_marker(records)
        if marker is not None and producer is not None:
            shard.replay_end(producer, marker.control_type is ControlType.COMMIT)
        return
    for record in decode_rows(records, min_offset):
        shard.replay(record, producer)


def _log_failure(outcome: OperationResult[None]) -> None:
    if outcome.error is not None and not isinstance(outcome.error, NotCoordinatorError):
        _logger.warning("what a coordinator's timer was to do failed: %s", outcome.error)
