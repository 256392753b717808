"""Moves replicas of this broker between its log directories (KIP-113).

    AlterReplicaLogDirs → future log in the other directory → a mover copies the log, throttled → the future log
    replaces the log → the old files are deleted

- A partition belongs to one of `num.replica.alter.log.dirs.threads` movers. A mover is a task; it moves one partition
  after the other, and ends when it has none.
- The partition is used meanwhile, as leader or follower. The last bytes are copied, and the log is replaced, within one
  turn of the event loop, so no append can come in between.
- All moves together are limited to `replica.alter.log.dirs.io.max.bytes.per.second`.
- A move is cancelled by a move to another directory, or to the current one. It is resumed after a restart, and after
  the partition was stopped and started again.

`storage.log_copy` decides what is copied. Owned by the broker's loop.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar, cast

from headrace.broker.partition import Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.replication.fetcher_manager import fetcher_of
from headrace.broker.replication.throttle import ReplicationQuota
from headrace.cluster.metadata_image import MetadataImage
from headrace.common.background import WorkResult
from headrace.common.errors import (
    HeadraceError,
    KafkaStorageError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from headrace.common.types import TopicPartition
from headrace.storage.log_copy import LogCopy, Read, Simple, Truncate
from headrace.storage.truncation import TruncationResults

_logger = logging.getLogger(__name__)

_THROTTLED_SECONDS = 0.1
_SETTLE_SECONDS = 0.01
"""How often a mover looks if a sync of another thread has ended."""
_INLINE_BYTES = 64 * 1024
"""The end of a log is read on the loop: it was written just now, so the operating system has it in memory."""

T = TypeVar("T")


class LogDirMoves:
    """All moves of this broker. Call `update` when a partition has got a role or was removed; `close` at the end."""

    def __init__(
        self,
        replicas: ReplicaManager,
        image: MetadataImage,
        quota: ReplicationQuota,
        *,
        movers: int,
        max_bytes: int,
        backoff_ms: int,
    ):
        self._replicas = replicas
        self._logs = replicas.logs
        self._image = image
        self.quota = quota
        self._max_bytes = max_bytes
        self.backoff_seconds = backoff_ms / 1000
        self._movers = [_Mover(self, number) for number in range(max(1, movers))]
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of replicas that are being moved."""
        return sum(len(mover) for mover in self._movers)

    def alter(self, tp: TopicPartition, path: str) -> None:
        """Starts to move a replica to a log directory, unless it is there. Cancels a move to another directory.

        Raises ReplicaNotAvailableError if this broker has no such replica: it will be created in that directory.
        """
        futures = self._logs.futures
        directory = futures.find_directory(path)
        partition = self._replicas.get(tp.topic, tp.partition)
        if partition is not None and partition.log is None:
            raise KafkaStorageError(f"The log of partition {tp} is offline")
        target = futures.directory_of(tp)
        if partition is not None and target is not None and target is not directory:
            _logger.info("Partition %s: cancelling the move to log directory %s", tp, target)
            self.remove(tp)
            futures.delete(tp)
        if partition is None:
            futures.prefer(tp, directory)
            if self._image.partition(*tp) is None:
                raise UnknownTopicOrPartitionError(f"The cluster has no partition {tp}")
            raise ReplicaNotAvailableError(
                f"Broker {self._replicas.node_id} has no replica of partition {tp}. It would be created in {path}"
            )
        current = self._logs.directory_of(tp)
        if current is not directory and tp not in futures:
            futures.create(tp, directory)
            _logger.info("Partition %s: moving the replica from log directory %s to %s", tp, current, directory)
        self.update(partition)

    def update(self, partition: Partition) -> None:
        """Moves a partition if it has a future log, otherwise stops moving it."""
        tp = partition.tp
        is_served = self._replicas.get(tp.topic, tp.partition) is partition and partition.log is not None
        if is_served and tp in self._logs.futures and not self._closed:
            self._mover_of(tp).add(tp)
        else:
            self.remove(tp)

    def remove(self, tp: TopicPartition) -> None:
        """Stops moving a partition. Its future log stays."""
        self._mover_of(tp).remove(tp)

    def _mover_of(self, tp: TopicPartition) -> "_Mover":
        return self._movers[fetcher_of(tp, len(self._movers))]

    async def close(self) -> None:
        """Stops all moves. They are resumed at the next start."""
        self._closed = True
        for mover in self._movers:
            await mover.close()

    # ---- steps

    async def move(self, copy: LogCopy) -> float | None:
        """Executes the next step of a move. Returns the seconds to wait before the next one; None after the last."""
        if self.quota.is_exceeded:
            return _THROTTLED_SECONDS
        step = copy.next(self._max_bytes)
        while isinstance(step, Read) and step.slice.size <= _INLINE_BYTES:
            if not self._append(copy, step, step.slice.read()):
                return 0
            step = copy.next(_INLINE_BYTES)
        if isinstance(step, Read):
            slice_ = step.slice
            records = await self._in_background(lambda: slice_.read())
            self._append(copy, step, records)
            return 0
        if isinstance(step, Truncate):
            return await self._truncate(copy.tp, step)
        if step is Simple.STOP:
            return None
        if step is Simple.REPLACE:
            self._replace(copy.tp)
            return None
        if step is Simple.FLUSH:
            future = self._logs.futures.get(copy.tp)
            assert future is not None
            future.flush_in_background()
        return _SETTLE_SECONDS

    def _append(self, copy: LogCopy, step: Read, records: bytes) -> int:
        size = copy.append(step, records)
        if size:
            self.quota.record(size)
        return size

    async def _truncate(self, tp: TopicPartition, step: Truncate) -> float:
        _logger.info("Partition %s: truncating the future log to offset %d, as the log", tp, step.offset)
        done: asyncio.Future[TruncationResults] = asyncio.get_running_loop().create_future()

        def finish(results: TruncationResults) -> None:
            if not done.done():
                done.set_result(results)

        self._logs.futures.truncate(tp, step.offset, finish, fully=step.fully)
        error = (await done).get(tp)
        if error is not None:
            raise error
        return 0

    async def _in_background(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[WorkResult] = asyncio.get_running_loop().create_future()

        def finish(result: WorkResult) -> None:
            if not done.done():
                done.set_result(result)

        self._logs.runner.submit(work, finish)
        return cast(T, (await done).result())

    def _replace(self, tp: TopicPartition) -> None:
        partition = self._replicas.get(tp.topic, tp.partition)
        if partition is None or partition.log is not self._logs.get(tp):
            return
        source, log = self._logs.directory_of(tp), self._logs.futures.replace(tp)
        partition.log = log
        _logger.info(
            "Partition %s: the replica is now in log directory %s, up to offset %d; deleting it in %s",
            tp,
            log.directory.parent,
            log.log_end_offset,
            source,
        )

    def new_copy(self, tp: TopicPartition) -> LogCopy:
        return LogCopy(tp, self._logs.futures)


class _Mover:
    """Moves some of the partitions, one after the other."""

    def __init__(self, moves: LogDirMoves, number: int):
        self._moves = moves
        self._number = number
        self._copies: dict[TopicPartition, LogCopy] = {}
        self._delayed: dict[TopicPartition, float] = {}
        """The partitions that have failed, with the time of the next try."""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, tp: TopicPartition) -> None:
        if tp in self._copies:
            return
        self._copies[tp] = self._moves.new_copy(tp)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"log-dir-mover-{self._number}")

    def remove(self, tp: TopicPartition) -> None:
        self._copies.pop(tp, None)
        self._delayed.pop(tp, None)

    async def close(self) -> None:
        """Stops moving. An append or a truncation in progress is completed first."""
        self._copies.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._copies:
            now = asyncio.get_running_loop().time()
            tp = next((tp for tp in self._copies if self._delayed.get(tp, 0) <= now), None)
            if tp is None:
                await asyncio.sleep(max(_SETTLE_SECONDS, min(self._delayed.values()) - now))
                continue
            await asyncio.sleep(await self._move(tp, self._copies[tp]))

    async def _move(self, tp: TopicPartition, copy: LogCopy) -> float:
        """Executes a step. Returns the seconds to wait before the next one, of any partition."""
        try:
            seconds = await self._moves.move(copy)
        except (HeadraceError, OSError) as error:
            if tp not in self._delayed:  # log it once: it is tried again all the time
                _logger.error("Partition %s: cannot copy the replica to its new directory, will retry: %s", tp, error)
            self._retry_later(tp, copy)
            return 0
        except Exception:
            _logger.exception("Partition %s: copying the replica failed with an internal error, will retry", tp)
            self._retry_later(tp, copy)
            return 0
        if self._copies.get(tp) is copy:
            self._delayed.pop(tp, None)
            if seconds is None:
                self.remove(tp)
        return seconds or 0

    def _retry_later(self, tp: TopicPartition, copy: LogCopy) -> None:
        if self._copies.get(tp) is copy:
            self._delayed[tp] = asyncio.get_running_loop().time() + self._moves.backoff_seconds
