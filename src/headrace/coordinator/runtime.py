"""Runs one state machine (a shard) for each partition of an internal topic that this broker leads.

    write    operation(shard) ── CoordinatorResult ──► one batch appended ──► the shard replays each record
                   │ raises                                 │ fails                     │
                   ▼                                        ▼                           ▼ when committed
             the caller gets the error; no state has changed              the caller gets the response

    load     the loop replays all batches of the partition, a slice at a time ──► `on_loaded`
    unload   pending callers get NOT_COORDINATOR, timers are cancelled, the shard is dropped

An operation reads the shard's durable state but must not change it. Only `replay` changes it, and it receives the same
records live and on load, so a loaded shard equals the shard that wrote the log. Append and replay happen in one step of
the event loop: the next operation sees the changes of the previous one. Operations also see records that are not
committed yet, but the runtime sends no response before everything the operation may have seen is committed.

A shard's timers also run operations, on the broker's timing wheel; unloading the shard cancels them.
Owned by the broker's event loop. Does no I/O: the broker provides a `PartitionLog` for each partition.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

from headrace.common.clock import Clock
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    HeadraceError,
    KafkaError,
    NotCoordinatorError,
    UnknownError,
)
from headrace.common.timing_wheel import Timer
from headrace.coordinator.result import (
    CommitCallback,
    CoordinatorRecord,
    CoordinatorResponse,
    CoordinatorResult,
    ProducerInfo,
)
from headrace.coordinator.shard import CoordinatorShard, ShardContext
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

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class PartitionLog(Protocol):
    """The log of a partition that this broker leads; implemented by the broker."""

    def start_offset(self) -> int: ...

    def end_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> list[RecordBatch]:
        """Returns whole batches, starting at an offset. Returns none only at the end of the log."""

    def append(self, batch: bytearray) -> int:
        """Appends a batch on behalf of the coordinator. Returns the offset of its last record. Raises KafkaError."""

    def is_committed(self, offset: int) -> bool: ...

    def when_committed(self, offset: int, done: CommitCallback) -> None:
        """Calls `done` when the offset is committed, on timeout, or when this broker stops leading the partition."""


S = TypeVar("S", bound=CoordinatorShard)


class _State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class _Partition(Generic[S]):
    """One partition: its log, its shard, and the callbacks that wait for commits."""

    def __init__(self, index: int, leader_epoch: int, log: PartitionLog, shard: S, context: ShardContext):
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = log
        self.shard = shard
        self.context = context
        self.state = _State.LOADING
        self.next_offset = log.start_offset()
        self.last_written = -1
        self.pending: dict[int, CommitCallback] = {}
        self._last_ticket = 0

    def wait(self, done: CommitCallback) -> CommitCallback:
        """Registers a callback, so that `unload` can fail it. Returns a wrapper that may be called late or
        twice; `done` is called once."""
        self._last_ticket += 1
        ticket = self._last_ticket
        self.pending[ticket] = done

        def once(error: KafkaError | None) -> None:
            if self.pending.pop(ticket, None) is not None:
                done(error)

        return once


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on this broker.

    `call_soon` runs a function in a later step of the event loop, so that loading does not block other work.
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
        self._partitions: dict[int, _Partition[S]] = {}

    # ---- loading and unloading

    def load(self, index: int, leader_epoch: int, log: PartitionLog) -> None:
        """Loads a partition that this broker now leads. Does nothing if the leader epoch is not newer."""
        known = self._partitions.get(index)
        if known is not None:
            if leader_epoch <= known.leader_epoch:
                return
            self.unload(index)
        self._open(index, leader_epoch, log)

    def _open(self, index: int, leader_epoch: int, log: PartitionLog) -> None:
        partition: _Partition[S]

        def run(operation: Callable[[], CoordinatorResult[None]]) -> None:
            self._write(partition, lambda _: operation(), partial(_log_timer_failure, self.topic, index))

        context = ShardContext(index, self._clock, self._timer, run)
        partition = _Partition(index, leader_epoch, log, self._make_shard(context), context)
        self._partitions[index] = partition
        self._load_slice(partition)

    def unload(self, index: int, leader_epoch: int | None = None) -> None:
        """Unloads a partition that this broker no longer leads. Ignored if a newer leader epoch was loaded since."""
        partition = self._partitions.get(index)
        if partition is None or (leader_epoch is not None and leader_epoch < partition.leader_epoch):
            return
        del self._partitions[index]
        was_active = partition.state is _State.ACTIVE
        partition.state = _State.CLOSED
        partition.context.cancel_all()
        error = NotCoordinatorError(f"This broker no longer leads {self.topic}-{index}")
        for done in list(partition.pending.values()):
            done(error)
        partition.pending.clear()
        if was_active:
            partition.shard.on_unloaded()
        partition.context.cancel_all()

    def close(self) -> None:
        for index in list(self._partitions):
            self.unload(index)

    def _load_slice(self, partition: _Partition[S]) -> None:
        if partition.state is not _State.LOADING:
            return
        try:
            done = self._replay_slice(partition)
        except Exception as error:
            partition.state = _State.FAILED
            where = self.topic, partition.index
            if isinstance(error, HeadraceError):
                _logger.error(
                    "Failed to load coordinator %s-%d; its groups or transactions are unavailable: %s", *where, error
                )
            else:
                _logger.exception(
                    "Failed to load coordinator %s-%d; its groups or transactions are unavailable", *where
                )
            return
        if not done:
            self._call_soon(partial(self._load_slice, partition))
            return
        partition.state = _State.ACTIVE
        partition.last_written = partition.next_offset - 1
        partition.shard.on_loaded()
        if partition.next_offset:
            _logger.info("Loaded coordinator %s-%d up to offset %d", self.topic, partition.index, partition.next_offset)

    def _replay_slice(self, partition: _Partition[S]) -> bool:
        """Replays some batches. Returns True if no batches are left."""
        if partition.next_offset >= partition.log.end_offset():
            return True
        batches = partition.log.read(partition.next_offset, self._load_bytes)
        if not batches:
            return True
        for batch in batches:
            if batch.next_offset > partition.next_offset:
                _replay_batch(partition.shard, batch, partition.next_offset)
                partition.next_offset = batch.next_offset
        return partition.next_offset >= partition.log.end_offset()

    # ---- reading

    def __contains__(self, index: int) -> bool:
        return index in self._partitions

    def indexes(self) -> list[int]:
        """Returns the partitions that this broker leads, loaded or not."""
        return sorted(self._partitions)

    def shards(self) -> list[S]:
        """Returns the loaded shards."""
        return [partition.shard for partition in self._partitions.values() if partition.state is _State.ACTIVE]

    def is_loading(self) -> bool:
        return any(partition.state is _State.LOADING for partition in self._partitions.values())

    def leader_epoch(self, index: int) -> int:
        """Returns the coordinator epoch: the leader epoch of the partition."""
        return self._active(index).leader_epoch

    def shard(self, index: int) -> S:
        """Returns a shard, for operations that only read. Raises the error for the client if it is not active."""
        return self._active(index).shard

    def _active(self, index: int) -> _Partition[S]:
        partition = self._partitions.get(index)
        if partition is None:
            raise NotCoordinatorError(f"This broker does not lead {self.topic}-{index}")
        if partition.state is _State.LOADING:
            raise CoordinatorLoadInProgressError(f"{self.topic}-{index} is still loading")
        if partition.state is not _State.ACTIVE:
            raise CoordinatorNotAvailableError(f"{self.topic}-{index} failed to load; see the broker's log")
        return partition

    def read(self, index: int, operation: Callable[[S], T], done: Callable[[CoordinatorResponse[T]], None]) -> None:
        """Runs an operation that writes nothing. Calls `done` when everything it may have seen is committed, usually at
        once."""
        self.write(index, lambda shard: CoordinatorResult((), operation(shard)), done)

    # ---- writing

    def write(
        self, index: int, operation: Callable[[S], CoordinatorResult[T]], done: Callable[[CoordinatorResponse[T]], None]
    ) -> None:
        """Runs an operation. Calls `done` with its response when its records are committed, or with the error."""
        try:
            partition = self._active(index)
        except KafkaError as error:
            done(CoordinatorResponse(error=error))
            return
        self._write(partition, operation, done)

    async def call(self, index: int, operation: Callable[[S], CoordinatorResult[T]]) -> T:
        """Runs an operation and awaits its response. Cancelling the caller does not stop a started operation."""
        future: asyncio.Future[CoordinatorResponse[T]] = asyncio.get_running_loop().create_future()

        def done(response: CoordinatorResponse[T]) -> None:
            if not future.done():
                future.set_result(response)

        self.write(index, operation, done)
        return (await future).result()

    def _write(
        self,
        partition: _Partition[S],
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[CoordinatorResponse[T]], None],
    ) -> None:
        if partition.state is not _State.ACTIVE:
            done(
                CoordinatorResponse(
                    error=NotCoordinatorError(f"This broker no longer leads {self.topic}-{partition.index}")
                )
            )
            return
        try:
            result = operation(partition.shard)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            done(CoordinatorResponse(error=self._as_kafka_error(error, partition, "Operation on")))
            return
        if result.records:
            try:
                batch = _encode(result.records, result.producer, self._clock.time_ms())
                partition.last_written = partition.log.append(batch)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                failure = self._as_kafka_error(error, partition, "Append to")
                if result.undo is not None:
                    result.undo()
                if result.on_completion is not None:
                    result.on_completion(failure)
                done(CoordinatorResponse(error=failure))
                return
            try:
                for record in result.records:
                    partition.shard.replay(Record(record.key, record.value, self._clock.time_ms()), result.producer)
            except Exception:
                _logger.exception(
                    "Failed to replay a record just written to %s-%d; reloading the coordinator",
                    self.topic,
                    partition.index,
                )
                self._reload(partition)  # the log is authoritative
                failure = UnknownError(f"The broker failed after it had written to {self.topic}-{partition.index}")
                if result.on_completion is not None:
                    result.on_completion(failure)
                done(CoordinatorResponse(error=failure))
                return

        def finish(error: KafkaError | None) -> None:
            if result.on_completion is not None:
                result.on_completion(error)
            done(CoordinatorResponse(error=error) if error is not None else CoordinatorResponse(result.response))

        self._when_committed(partition, finish)

    def end_transaction(
        self,
        index: int,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        done: Callable[[CoordinatorResponse[None]], None],
    ) -> None:
        """Appends the marker that ends a producer's transaction in the partition."""
        try:
            partition = self._active(index)
            marker = encode_marker(
                ControlType.COMMIT if committed else ControlType.ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self._clock.time_ms(),
            )
            partition.last_written = partition.log.append(marker)
        except KafkaError as error:
            done(CoordinatorResponse(error=error))
            return
        partition.shard.replay_end(producer, committed)
        self._when_committed(partition, lambda error: done(CoordinatorResponse(error=error)))

    def _when_committed(self, partition: _Partition[S], done: CommitCallback) -> None:
        offset = partition.last_written
        if partition.log.is_committed(offset):
            done(None)
        else:
            partition.log.when_committed(offset, partition.wait(done))

    def _reload(self, partition: _Partition[S]) -> None:
        self.unload(partition.index)
        self._open(partition.index, partition.leader_epoch, partition.log)

    def _as_kafka_error(self, error: Exception, partition: _Partition[S], operation: str) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        _logger.error("%s %s-%d failed", operation, self.topic, partition.index, exc_info=error)
        return UnknownError(f"{operation} {self.topic}-{partition.index} failed: {error}")


def _encode(records: Sequence[CoordinatorRecord], producer: ProducerInfo | None, timestamp_ms: int) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer.producer_id if producer is not None else NO_PRODUCER_ID,
        producer_epoch=producer.producer_epoch if producer is not None else NO_PRODUCER_EPOCH,
        transactional=producer is not None,
    )
    for key, value in records:
        builder.append(key, value, timestamp_ms)
    return builder.build()


def _replay_batch(shard: CoordinatorShard, batch: RecordBatch, min_offset: int) -> None:
    if batch.count == 0:  # compaction keeps only the header
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


def _log_timer_failure(topic: str, index: int, response: CoordinatorResponse[None]) -> None:
    if response.error is not None and not isinstance(response.error, NotCoordinatorError):
        _logger.warning("Coordinator %s-%d: a timer's operation failed: %s", topic, index, response.error)
