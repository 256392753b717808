"""Fetches of very many partitions: they are read in turns, and an append does not wait until all are checked."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.broker.fetch_sessions import FetchedPartition
from headrace.broker.fetching import FetchLimits, Reads
from headrace.broker.partition import Partition
from headrace.broker.purgatory import DelayedOperation
from headrace.broker.replica_manager import ReplicaManager
from headrace.broker.yielding import InTurns, parts
from headrace.storage.log import FetchIsolation

LONG_FETCH = 500
"""A fetch of more partitions is a long one."""

Position = tuple[bool, int, int, int] | None
"""What a reader can see of a partition: leadership, leader epoch, log start and readable end."""


def _position(partition: Partition | None, isolation: FetchIsolation) -> Position:
    log = partition.log if partition is not None else None
    if partition is None or log is None:
        return None
    return partition.is_leader, partition.leader_epoch, log.log_start_offset, log.readable_end(isolation)


class LongReads(Reads):
    """The outcome of reading very many partitions, and the position of each when it was read."""

    __slots__ = ("positions",)

    def __init__(self, max_bytes: int):
        super().__init__(max_bytes)
        self.positions: list[Position] = []


def read_in_turns(
    replicas: ReplicaManager,
    fetched: Sequence[FetchedPartition],
    limits: FetchLimits,
    turn_is_over: Callable[[], bool],
    *,
    is_first: bool = True,
) -> InTurns[LongReads]:
    """Reads partitions like `read_partitions`, but gives way in between."""
    reads = LongReads(limits.max_bytes)
    for part in parts(fetched):
        reads.add(replicas, part, limits, is_first=is_first)
        reads.positions += [_position(read.partition, limits.isolation) for read in reads.partitions[-len(part) :]]
        if turn_is_over():
            yield
    return reads


class DelayedLongFetch(DelayedOperation):
    """Completes in the cases of `DelayedFetch`. An event only starts a check of all partitions, in turns.

    While a check runs, further events cause one more check after it, however many there are.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        reads: LongReads,
        limits: FetchLimits,
        turn_is_over: Callable[[], bool],
        run: Callable[[InTurns[Any]], object],
        on_done: Callable[[Reads | None], object],
    ):
        """`run` runs work in turns. `on_done` gets the last read, or None if the partitions have to be read again."""
        super().__init__(limits.max_wait_ms)
        self._replicas = replicas
        self._limits = limits
        self._turn_is_over = turn_is_over
        self._run = run
        self._on_done = on_done
        self._fetched = [read.fetched for read in reads.partitions]
        self._partitions = [read.partition for read in reads.partitions]
        self._positions = reads.positions
        self._reads = reads if not reads.size else None
        """The last read, as long as nothing has changed."""
        self._is_checking = False
        self._check_again = False

    def keys(self) -> list[Partition]:
        return [partition for partition in self._partitions if partition is not None]

    def try_complete(self) -> bool:
        self._check_again = True
        if not self._is_checking:
            self._is_checking = True
            self._run(self._check())
        return self.completed

    def _check(self) -> InTurns[None]:
        while self._check_again and not self.completed:
            self._check_again = False
            if not (yield from self._has_changed()):
                continue
            self._reads = None
            reads = yield from read_in_turns(
                self._replicas, self._fetched, self._limits, self._turn_is_over, is_first=False
            )
            self._positions = reads.positions
            if not self.completed and (reads.size >= self._limits.min_bytes or reads.urgent):
                self._reads = reads
                self.force_complete()
        self._is_checking = False

    def _has_changed(self) -> InTurns[bool]:
        positions: list[Position] = []
        for part in parts(self._partitions):
            positions += [_position(partition, self._limits.isolation) for partition in part]
            if self._turn_is_over():
                yield
        return positions != self._positions

    def on_complete(self) -> None:
        self._on_done(self._reads)
