"""One assigned partition of a consumer: where it reads, and in which state its reading is.

The states are librdkafka's. Each state lists what may follow it, and only `_transition` changes it:

    NONE           assigned, and nothing is known about where to begin
    OFFSET_QUERY   an offset has to be looked up (the committed one, or one by time)
    OFFSET_WAIT    the question is on its way
    VALIDATE_WAIT  the leader changed: it is being asked whether its log still has what was read (KIP-320)
    ACTIVE         fetched from, records are handed out
    STOPPING       about to be taken away: no fetch, no record, but the position can still be read and committed
    STOPPED        no longer assigned; the end

`version` grows whenever reading goes on elsewhere than it would have (a seek, a reset, the end of the assignment). A
request keeps the version that it was sent under, and its reply is dropped if that is no longer the partition's.

Three offsets run behind one another: `processed` <= `position` <= `fetch_offset`. Records below `fetch_offset` were
fetched, those below `position` were handed to the user, those below `processed` were handed out before the last poll
began, so the user is done with them: that is what an automatic commit may commit at any time.

Not a lock in sight: all of it is guarded by the lock of the SubscriptionState that owns it.
"""

from enum import Enum
from typing import Final, NamedTuple

from headrace.common.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
UNKNOWN_OFFSET: Final = -1
NO_EPOCH: Final = -1


class FetchState(Enum):
    NONE = "none"
    OFFSET_QUERY = "offset query"
    OFFSET_WAIT = "offset wait"
    VALIDATE_WAIT = "validate wait"
    ACTIVE = "active"
    STOPPING = "stopping"
    STOPPED = "stopped"


_RUNNING = frozenset(
    (
        FetchState.OFFSET_QUERY,
        FetchState.OFFSET_WAIT,
        FetchState.VALIDATE_WAIT,
        FetchState.ACTIVE,
    )
)
_ENDS = frozenset((FetchState.STOPPING, FetchState.STOPPED))
_FOLLOWERS: dict[FetchState, frozenset[FetchState]] = {
    FetchState.NONE: frozenset((FetchState.OFFSET_QUERY, FetchState.ACTIVE)) | _ENDS,
    FetchState.OFFSET_QUERY: frozenset((FetchState.OFFSET_QUERY, FetchState.OFFSET_WAIT, FetchState.ACTIVE)) | _ENDS,
    FetchState.OFFSET_WAIT: frozenset((FetchState.OFFSET_QUERY, FetchState.ACTIVE)) | _ENDS,
    FetchState.VALIDATE_WAIT: frozenset((FetchState.OFFSET_QUERY, FetchState.ACTIVE)) | _ENDS,
    FetchState.ACTIVE: _RUNNING - {FetchState.OFFSET_WAIT} | _ENDS,
    FetchState.STOPPING: frozenset((FetchState.STOPPED,)),
    FetchState.STOPPED: frozenset(),
}


_ACTIVE = FetchState.ACTIVE


class OffsetQuery(NamedTuple):
    """What has to be looked up before a partition can be read."""

    kind: str
    """`committed`, `time` or `tail`."""
    timestamp: int = 0
    """For `time`: milliseconds, or EARLIEST or LATEST. A time behind the last record counts as LATEST."""
    tail: int = 0
    """For `tail`: so many records before the end."""

    def __str__(self) -> str:
        if self.kind == "time":
            return {EARLIEST: "earliest", LATEST: "latest"}.get(self.timestamp, f"time {self.timestamp}")
        return f"the last {self.tail}" if self.kind == "tail" else self.kind


COMMITTED_OFFSET = OffsetQuery("committed")
EARLIEST_OFFSET = OffsetQuery("time", EARLIEST)
LATEST_OFFSET = OffsetQuery("time", LATEST)


class PartitionState:
    """See the module. Attributes may be read by who holds the lock; what changes where reading goes has a method."""

    __slots__ = (
        "eof_offset",
        "failures",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "paused",
        "position",
        "position_epoch",
        "preferred_replica",
        "preferred_until",
        "processed",
        "processed_epoch",
        "query",
        "retry_at",
        "state",
        "tp",
        "version",
    )

    def __init__(self, tp: TopicPartition):
        self.tp = tp
        self.state = FetchState.NONE
        self.version = 0
        self.query: OffsetQuery | None = None
        self.position = UNKNOWN_OFFSET
        """The offset of the next record for the user."""
        self.position_epoch = NO_EPOCH
        """The leader epoch of the last record that the user got."""
        self.processed = UNKNOWN_OFFSET
        self.processed_epoch = NO_EPOCH
        self.fetch_offset = UNKNOWN_OFFSET
        """The offset of the next record to fetch."""
        self.leader_epoch = NO_EPOCH
        """The epoch of the leader that the position is known to be right for."""
        self.paused = False
        self.high_watermark = UNKNOWN_OFFSET
        self.last_stable_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.preferred_replica = -1
        """The broker to fetch from instead of the leader (KIP-392), -1 for none; good until `preferred_until`."""
        self.preferred_until = 0.0
        self.retry_at = 0.0
        """When to try again after an error, on the monotonic clock."""
        self.failures = 0
        self.eof_offset = UNKNOWN_OFFSET
        """Where the end of the partition was last reported."""

    def __repr__(self) -> str:
        return f"PartitionState({self.tp}, {self.state.value}, position {self.position}, version {self.version})"

    def _transition(self, state: FetchState) -> None:
        if state not in _FOLLOWERS[self.state]:
            raise RuntimeError(f"{self.tp} cannot go from {self.state.value} to {state.value}")
        self.state = state

    @property
    def has_position(self) -> bool:
        return self.position >= 0

    @property
    def is_stopped(self) -> bool:
        return self.state in _ENDS

    @property
    def is_fetchable(self) -> bool:
        """Records may be asked for."""
        return self.state is FetchState.ACTIVE and not self.paused

    def query_offset(self, query: OffsetQuery) -> None:
        """The next offset has to be looked up."""
        self._transition(FetchState.OFFSET_QUERY)
        self.version += 1
        self.query = query
        self.position = self.fetch_offset = self.processed = UNKNOWN_OFFSET
        self.position_epoch = self.processed_epoch = NO_EPOCH
        self._forget_troubles()

    def query_sent(self) -> None:
        """The question has been sent."""
        self._transition(FetchState.OFFSET_WAIT)

    def retry_query(self, retry_at: float) -> None:
        """The question failed in a way that may pass."""
        self._transition(FetchState.OFFSET_QUERY)
        self.failures += 1
        self.retry_at = retry_at

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Reading goes on at an offset; `epoch` is that of the record before it, if it is known."""
        self._transition(FetchState.ACTIVE)
        self.version += 1
        self.query = None
        self.position = self.fetch_offset = self.processed = offset
        self.position_epoch = self.processed_epoch = epoch
        # The epoch may be one that the present leader cut off: with an epoch to ask about, it is asked.
        self.leader_epoch = NO_EPOCH
        self._forget_troubles()

    def _forget_troubles(self) -> None:
        self.eof_offset = UNKNOWN_OFFSET
        self.failures = 0
        self.retry_at = 0.0

    def validate(self) -> None:
        """What was fetched but not handed out is dropped; the position is to be checked."""
        self._transition(FetchState.VALIDATE_WAIT)
        self.version += 1
        self.fetch_offset = self.position

    def validated(self, leader_epoch: int) -> None:
        """The leader of this epoch has everything up to the position."""
        if self.state is FetchState.VALIDATE_WAIT:
            self._transition(FetchState.ACTIVE)
        self.leader_epoch = leader_epoch
        self.failures = 0

    def rewind(self) -> None:
        """What was fetched but not handed out is dropped, and fetched again when it is wanted."""
        self.version += 1
        self.fetch_offset = self.position
        self.eof_offset = UNKNOWN_OFFSET

    def fetched(self, next_offset: int) -> None:
        """A reply was put into the buffer."""
        self.fetch_offset = next_offset
        self.failures = 0

    def consumed(self, next_offset: int, epoch: int) -> None:
        """Records were handed to the user."""
        self.position = next_offset
        self.position_epoch = epoch

    def advance(self, version: int, next_offset: int) -> bool:
        """One more record is handed to the user, who is done with those before it; False if it is not wanted any more:
        the user seeks or pauses, or the partition goes. The hottest path of iteration."""
        if self.version != version or self.state is not _ACTIVE or self.paused:
            return False
        self.processed = self.position
        self.position = next_offset
        return True

    def begin_stop(self) -> None:
        if not self.is_stopped:
            self._transition(FetchState.STOPPING)
            self.version += 1

    def stop(self) -> None:
        if self.state is not FetchState.STOPPED:
            self._transition(FetchState.STOPPED)
            self.version += 1

    def back_off(self, retry_at: float) -> None:
        """Fetching failed in a way that may pass."""
        self.failures += 1
        self.retry_at = retry_at

    def set_preferred_replica(self, replica: int, until: float) -> None:
        self.preferred_replica = replica
        self.preferred_until = until

    def clear_preferred_replica(self) -> None:
        self.preferred_replica = -1

    def reached_end(self, read_committed: bool) -> bool:
        """Whether everything there is has been fetched, if that has not been told for this offset before."""
        end = self.end_offset(read_committed)
        if not 0 <= end <= self.fetch_offset or self.eof_offset == self.fetch_offset:
            return False
        self.eof_offset = self.fetch_offset
        return True

    def end_offset(self, read_committed: bool) -> int:
        """How far a reader gets: the last stable offset or the high watermark, -1 while no reply told."""
        return self.last_stable_offset if read_committed else self.high_watermark
