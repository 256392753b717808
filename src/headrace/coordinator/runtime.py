"""Runs one state machine (a shard) for each partition of an internal topic that this broker leads.

    write    operation(shard) ── CoordinatorResult ──► one batch appended ──► the shard replays each record
                   │ raises                                 │ fails                     │
                   ▼                                        ▼                           ▼ when committed
             the caller gets the error; no state has changed              the caller gets the response

    load     the loop replays all batches of the partition, a slice at a time ──► `on_loaded`
    unload   pending callers get NOT_COORDINATOR, timers are cancelled, the shard is dropped

Rules:
- An operation reads the shard's durable state but must not change it. Only `replay` changes it.
- `replay` receives the same records live and on load, so a loaded shard equals the shard that wrote the log.
- Append and replay happen in one step of the event loop. The next operation sees the changes of the previous one.
- Operations also see uncommitted records. The runtime sends no response until all of these records are committed.
- A shard's timers also run operations, on the broker's timing wheel. Unloading the shard cancels them.

Owned by the broker's event loop. Does no I/O: the broker provides a `PartitionLog` for each partition.
"""

import asyncio
import logging
from collections import deque
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
    """The log of a partition that this broker leads. The broker implements it."""

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


class _PartitionCoordinator(Generic[S]):
    """The coordinator of one partition: its log, its shard, and the callbacks that wait for commits."""

    def __init__(self, partition: int, leader_epoch: int, log: PartitionLog, shard: S, context: ShardContext):
        self.partition = partition
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
        """Registers a callback, so that `unload` can fail it.

        Returns a wrapper that may be called late or twice. `done` is called once.
        """
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
        self._coordinators: dict[int, _PartitionCoordinator[S]] = {}
        self._loading: deque[_PartitionCoordinator[S]] = deque()
        """The partitions that are not completely loaded. After a failover there may be many of them."""

    # ---- loading and unloading

    def load(self, partition: int, leader_epoch: int, log: PartitionLog) -> None:
        """Loads a partition that this broker now leads.

        A partition that is loaded already only gets the new leader epoch: this broker has led it all the time, so its
        state is current.
        """
        current = self._coordinators.get(partition)
        if current is not None:
            if leader_epoch <= current.leader_epoch:
                return
            if current.state is not _State.FAILED:
                current.leader_epoch = leader_epoch
                return
            self.unload(partition)
        self._open(partition, leader_epoch, log)

    def _open(self, partition: int, leader_epoch: int, log: PartitionLog) -> None:
        coordinator: _PartitionCoordinator[S]

        def run(operation: Callable[[], CoordinatorResult[None]]) -> None:
            self._write(coordinator, lambda _: operation(), partial(_log_timer_failure, self.topic, partition))

        context = ShardContext(partition, self._clock, self._timer, run)
        coordinator = _PartitionCoordinator(partition, leader_epoch, log, self._make_shard(context), context)
        self._coordinators[partition] = coordinator
        if self._loading or not self._load_slice(coordinator):
            self._loading.append(coordinator)
            if len(self._loading) == 1:
                self._call_soon(self._load_next)

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unloads a partition that this broker no longer leads. Ignored if a newer leader epoch was loaded since."""
        coordinator = self._coordinators.get(partition)
        if coordinator is None or (leader_epoch is not None and leader_epoch < coordinator.leader_epoch):
            return
        del self._coordinators[partition]
        was_active = coordinator.state is _State.ACTIVE
        coordinator.state = _State.CLOSED
        coordinator.context.cancel_all()
        error = NotCoordinatorError(f"This broker no longer leads {self.topic}-{partition}")
        for done in list(coordinator.pending.values()):
            done(error)
        coordinator.pending.clear()
        if was_active:
            coordinator.shard.on_unloaded()
        coordinator.context.cancel_all()

    def close(self) -> None:
        for partition in list(self._coordinators):
            self.unload(partition)

    def _load_next(self) -> None:
        """Loads a slice of the first partition. One slice in each step of the loop, so that others have their turns."""
        if self._load_slice(self._loading[0]):
            self._loading.popleft()
        if self._loading:
            self._call_soon(self._load_next)

    def _load_slice(self, coordinator: _PartitionCoordinator[S]) -> bool:
        """Replays some batches. Returns True if the coordinator is loaded, or does not have to be loaded any more."""
        if coordinator.state is not _State.LOADING:
            return True
        try:
            if not self._replay_slice(coordinator):
                return False
        except Exception as error:
            coordinator.state = _State.FAILED
            topic_partition = self.topic, coordinator.partition
            if isinstance(error, HeadraceError):
                _logger.error(
                    "Failed to load coordinator %s-%d; its groups or transactions are unavailable: %s",
                    *topic_partition,
                    error,
                )
            else:
                _logger.exception(
                    "Failed to load coordinator %s-%d; its groups or transactions are unavailable", *topic_partition
                )
            return True
        coordinator.state = _State.ACTIVE
        coordinator.last_written = coordinator.next_offset - 1
        coordinator.shard.on_loaded()
        if coordinator.next_offset:
            _logger.info(
                "Loaded coordinator %s-%d up to offset %d", self.topic, coordinator.partition, coordinator.next_offset
            )
        return True

    def _replay_slice(self, coordinator: _PartitionCoordinator[S]) -> bool:
        """Replays some batches. Returns True if no batches are left."""
        if coordinator.next_offset >= coordinator.log.end_offset():
            return True
        batches = coordinator.log.read(coordinator.next_offset, self._load_bytes)
        if not batches:
            return True
        for batch in batches:
            if batch.next_offset > coordinator.next_offset:
                _replay_batch(coordinator.shard, batch, coordinator.next_offset)
                coordinator.next_offset = batch.next_offset
        return coordinator.next_offset >= coordinator.log.end_offset()

    # ---- reading

    def __contains__(self, partition: int) -> bool:
        return partition in self._coordinators

    def partitions(self) -> list[int]:
        """Returns the partitions that this broker leads, loaded or not."""
        return sorted(self._coordinators)

    def shards(self) -> list[S]:
        """Returns the loaded shards."""
        return [coordinator.shard for coordinator in self._coordinators.values() if coordinator.state is _State.ACTIVE]

    def is_loading(self) -> bool:
        return any(coordinator.state is _State.LOADING for coordinator in self._coordinators.values())

    def leader_epoch(self, partition: int) -> int:
        """Returns the coordinator epoch: the leader epoch of the partition."""
        return self._active(partition).leader_epoch

    def shard(self, partition: int) -> S:
        """Returns a shard, for operations that only read. Raises the error for the client if it is not active."""
        return self._active(partition).shard

    def _active(self, partition: int) -> _PartitionCoordinator[S]:
        coordinator = self._coordinators.get(partition)
        if coordinator is None:
            raise NotCoordinatorError(f"This broker does not lead {self.topic}-{partition}")
        if coordinator.state is _State.LOADING:
            raise CoordinatorLoadInProgressError(f"{self.topic}-{partition} is still loading")
        if coordinator.state is not _State.ACTIVE:
            raise CoordinatorNotAvailableError(f"{self.topic}-{partition} failed to load; see the broker's log")
        return coordinator

    def read(self, partition: int, operation: Callable[[S], T], done: Callable[[CoordinatorResponse[T]], None]) -> None:
        """Runs an operation that writes nothing. Calls `done` when all records that it may have read are committed."""
        self.write(partition, lambda shard: CoordinatorResult((), operation(shard)), done)

    # ---- writing

    def write(
        self,
        partition: int,
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[CoordinatorResponse[T]], None],
    ) -> None:
        """Runs an operation. Calls `done` with its response when its records are committed, or with the error."""
        try:
            coordinator = self._active(partition)
        except KafkaError as error:
            done(CoordinatorResponse(error=error))
            return
        self._write(coordinator, operation, done)

    async def call(self, partition: int, operation: Callable[[S], CoordinatorResult[T]]) -> T:
        """Runs an operation and awaits its response. Cancelling the caller does not stop a started operation."""
        future: asyncio.Future[CoordinatorResponse[T]] = asyncio.get_running_loop().create_future()

        def done(response: CoordinatorResponse[T]) -> None:
            if not future.done():
                future.set_result(response)

        self.write(partition, operation, done)
        return (await future).result()

    def _write(
        self,
        coordinator: _PartitionCoordinator[S],
        operation: Callable[[S], CoordinatorResult[T]],
        done: Callable[[CoordinatorResponse[T]], None],
    ) -> None:
        if coordinator.state is not _State.ACTIVE:
            done(
                CoordinatorResponse(
                    error=NotCoordinatorError(f"This broker no longer leads {self.topic}-{coordinator.partition}")
                )
            )
            return
        try:
            result = operation(coordinator.shard)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            done(CoordinatorResponse(error=self._as_kafka_error(error, coordinator, "Operation on")))
            return
        if result.records:
            try:
                batch = _encode(result.records, result.producer, self._clock.time_ms())
                coordinator.last_written = coordinator.log.append(batch)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                failure = self._as_kafka_error(error, coordinator, "Append to")
                if result.undo is not None:
                    result.undo()
                if result.on_completion is not None:
                    result.on_completion(failure)
                done(CoordinatorResponse(error=failure))
                return
            try:
                for record in result.records:
                    coordinator.shard.replay(Record(record.key, record.value, self._clock.time_ms()), result.producer)
            except Exception:
                _logger.exception(
                    "Failed to replay a record just written to %s-%d; reloading the coordinator",
                    self.topic,
                    coordinator.partition,
                )
                self._reload(coordinator)  # the log is authoritative
                failure = UnknownError(
                    f"The broker failed after it had written to {self.topic}-{coordinator.partition}"
                )
                if result.on_completion is not None:
                    result.on_completion(failure)
                done(CoordinatorResponse(error=failure))
                return

        def finish(error: KafkaError | None) -> None:
            if result.on_completion is not None:
                result.on_completion(error)
            done(CoordinatorResponse(error=error) if error is not None else CoordinatorResponse(result.response))

        self._when_committed(coordinator, finish)

    def end_transaction(
        self,
        partition: int,
        producer: ProducerInfo,
        committed: bool,
        coordinator_epoch: int,
        done: Callable[[CoordinatorResponse[None]], None],
    ) -> None:
        """Appends the marker that ends a producer's transaction in the partition."""
        try:
            coordinator = self._active(partition)
            marker = encode_marker(
                ControlType.COMMIT if committed else ControlType.ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self._clock.time_ms(),
            )
            coordinator.last_written = coordinator.log.append(marker)
        except KafkaError as error:
            done(CoordinatorResponse(error=error))
            return
        coordinator.shard.replay_end(producer, committed)
        self._when_committed(coordinator, lambda error: done(CoordinatorResponse(error=error)))

    def _when_committed(self, coordinator: _PartitionCoordinator[S], done: CommitCallback) -> None:
        offset = coordinator.last_written
        if coordinator.log.is_committed(offset):
            done(None)
        else:
            coordinator.log.when_committed(offset, coordinator.wait(done))

    def _reload(self, coordinator: _PartitionCoordinator[S]) -> None:
        self.unload(coordinator.partition)
        self._open(coordinator.partition, coordinator.leader_epoch, coordinator.log)

    def _as_kafka_error(self, error: Exception, coordinator: _PartitionCoordinator[S], operation: str) -> KafkaError:
        if isinstance(error, KafkaError):
            return error
        _logger.error("%s %s-%d failed", operation, self.topic, coordinator.partition, exc_info=error)
        return UnknownError(f"{operation} {self.topic}-{coordinator.partition} failed: {error}")


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


def _log_timer_failure(topic: str, partition: int, response: CoordinatorResponse[None]) -> None:
    if response.error is not None and not isinstance(response.error, NotCoordinatorError):
        _logger.warning("Coordinator %s-%d: a timer's operation failed: %s", topic, partition, response.error)
