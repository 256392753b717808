"""One assigned partition of a consumer: its position, and the state of fetching.

The states are librdkafka's. `_SUCCESSORS` lists the legal transitions, and only `_transition` changes the state:

    NONE           assigned; the offset to start at is not known
    OFFSET_QUERY   an offset must be looked up (the committed offset, or an offset by timestamp)
    OFFSET_WAIT    the request for the offset is in flight
    VALIDATE_WAIT  the leader changed; the position is being validated against its log (KIP-320)
    ACTIVE         records are fetched and returned
    STOPPING       about to be revoked: no fetches and no records, but the position can be read and committed
    STOPPED        no longer assigned; the final state

`version` grows whenever fetching continues elsewhere (a seek, a reset, a revoked partition). A request keeps the
version it was sent under. Its response is dropped if the version has changed.

Three offsets follow one another: `processed` <= `position` <= `fetch_offset`.

- Records below `fetch_offset` were fetched.
- Records below `position` were returned to the user.
- Records below `processed` were returned before the last poll began, so the user has processed them. An automatic
  commit may commit `processed` at any time.

There is no lock here: the lock of the SubscriptionState that owns the partition guards all of it.
"""

from enum import Enum
from typing import Final, NamedTuple

from headrace.common.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
UNKNOWN_OFFSET: Final = -1
NO_EPOCH: Final = -1


class FetchState(Enum):
    """The state of fetching from one partition. The module docstring describes the states."""

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
_STOP_STATES = frozenset((FetchState.STOPPING, FetchState.STOPPED))
_SUCCESSORS: dict[FetchState, frozenset[FetchState]] = {
    FetchState.NONE: frozenset((FetchState.OFFSET_QUERY, FetchState.ACTIVE)) | _STOP_STATES,
    FetchState.OFFSET_QUERY: frozenset((FetchState.OFFSET_QUERY, FetchState.OFFSET_WAIT, FetchState.ACTIVE))
    | _STOP_STATES,
    FetchState.OFFSET_WAIT: frozenset((FetchState.OFFSET_QUERY, FetchState.ACTIVE)) | _STOP_STATES,
    FetchState.VALIDATE_WAIT: frozenset((FetchState.OFFSET_QUERY, FetchState.ACTIVE)) | _STOP_STATES,
    FetchState.ACTIVE: _RUNNING - {FetchState.OFFSET_WAIT} | _STOP_STATES,
    FetchState.STOPPING: frozenset((FetchState.STOPPED,)),
    FetchState.STOPPED: frozenset(),
}


_ACTIVE = FetchState.ACTIVE


class OffsetQuery(NamedTuple):
    """The offset to look up before a partition can be fetched."""

    kind: str
    """`committed`, `time` or `tail`."""
    timestamp: int = 0
    """For `time`: milliseconds, or EARLIEST or LATEST. A timestamp after the last record counts as LATEST."""
    tail: int = 0
    """For `tail`: the number of offsets before the end."""

    def __str__(self) -> str:
        if self.kind == "time":
            return {EARLIEST: "earliest", LATEST: "latest"}.get(self.timestamp, f"time {self.timestamp}")
        return f"{self.tail} offsets before the end" if self.kind == "tail" else self.kind


COMMITTED_OFFSET = OffsetQuery("committed")
EARLIEST_OFFSET = OffsetQuery("time", EARLIEST)
LATEST_OFFSET = OffsetQuery("time", LATEST)


class PartitionState:
    """The position and fetch state of one partition. Callers hold the lock of the SubscriptionState."""

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
        """The offset of the next record to return to the user."""
        self.position_epoch = NO_EPOCH
        """The leader epoch of the last record returned to the user."""
        self.processed = UNKNOWN_OFFSET
        self.processed_epoch = NO_EPOCH
        self.fetch_offset = UNKNOWN_OFFSET
        """The offset of the next record to fetch."""
        self.leader_epoch = NO_EPOCH
        """The epoch of the leader that the position was validated against."""
        self.paused = False
        self.high_watermark = UNKNOWN_OFFSET
        self.last_stable_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.preferred_replica = -1
        """The preferred read replica (KIP-392), -1 for none. It is valid until `preferred_until`."""
        self.preferred_until = 0.0
        self.retry_at = 0.0
        """The time of the next attempt after an error, on the monotonic clock."""
        self.failures = 0
        self.eof_offset = UNKNOWN_OFFSET
        """The offset at which the end of the partition was last reported."""

    def __repr__(self) -> str:
        return f"PartitionState({self.tp}, {self.state.value}, position {self.position}, version {self.version})"

    def _transition(self, state: FetchState) -> None:
        if state not in _SUCCESSORS[self.state]:
            raise RuntimeError(f"partition {self.tp}: illegal transition from {self.state.value} to {state.value}")
        self.state = state

    @property
    def has_position(self) -> bool:
        return self.position >= 0

    @property
    def is_stopped(self) -> bool:
        return self.state in _STOP_STATES

    @property
    def is_fetchable(self) -> bool:
        """True if records may be fetched."""
        return self.state is FetchState.ACTIVE and not self.paused

    def query_offset(self, query: OffsetQuery) -> None:
        """Requests that the position be looked up."""
        self._transition(FetchState.OFFSET_QUERY)
        self.version += 1
        self.query = query
        self.position = self.fetch_offset = self.processed = UNKNOWN_OFFSET
        self.position_epoch = self.processed_epoch = NO_EPOCH
        self._clear_failures()

    def query_sent(self) -> None:
        """Notes that the request for the offset was sent."""
        self._transition(FetchState.OFFSET_WAIT)

    def retry_query(self, retry_at: float) -> None:
        """Schedules another attempt after a failed query."""
        self._transition(FetchState.OFFSET_QUERY)
        self.failures += 1
        self.retry_at = retry_at

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Moves the position. `epoch` is the leader epoch of the record before it, if known."""
        self._transition(FetchState.ACTIVE)
        self.version += 1
        self.query = None
        self.position = self.fetch_offset = self.processed = offset
        self.position_epoch = self.processed_epoch = epoch
        # The leader may have truncated this epoch: if the epoch is known, validate the position.
        self.leader_epoch = NO_EPOCH
        self._clear_failures()

    def _clear_failures(self) -> None:
        self.eof_offset = UNKNOWN_OFFSET
        self.failures = 0
        self.retry_at = 0.0

    def validate(self) -> None:
        """Drops the records fetched beyond the position and starts to validate the position."""
        self._transition(FetchState.VALIDATE_WAIT)
        self.version += 1
        self.fetch_offset = self.position

    def validated(self, leader_epoch: int) -> None:
        """Notes that the leader of this epoch has all records up to the position."""
        if self.state is FetchState.VALIDATE_WAIT:
            self._transition(FetchState.ACTIVE)
        self.leader_epoch = leader_epoch
        self.failures = 0

    def rewind(self) -> None:
        """Drops the records fetched beyond the position, so that they are fetched again."""
        self.version += 1
        self.fetch_offset = self.position
        self.eof_offset = UNKNOWN_OFFSET

    def fetched(self, next_offset: int) -> None:
        """Notes that records below `next_offset` were put into the buffer."""
        self.fetch_offset = next_offset
        self.failures = 0

    def consumed(self, next_offset: int, epoch: int) -> None:
        """Notes that records below `next_offset` were returned to the user."""
        self.position = next_offset
        self.position_epoch = epoch

    def advance(self, version: int, next_offset: int) -> bool:
        """Moves the position by one record, and marks the records before it as processed. Returns False if the record
        must not be returned: after a seek, a pause or a revocation. The hottest path of iteration."""
        if self.version != version or self.state is not _ACTIVE or self.paused:
            return False
        self.processed = self.position
        self.position = next_offset
        return True

    def begin_stop(self) -> None:
        """Stops fetching from a partition that is about to be revoked."""
        if not self.is_stopped:
            self._transition(FetchState.STOPPING)
            self.version += 1

    def stop(self) -> None:
        """Ends the assignment."""
        if self.state is not FetchState.STOPPED:
            self._transition(FetchState.STOPPED)
            self.version += 1

    def back_off(self, retry_at: float) -> None:
        """Schedules another attempt after a failed fetch."""
        self.failures += 1
        self.retry_at = retry_at

    def set_preferred_replica(self, replica: int, until: float) -> None:
        self.preferred_replica = replica
        self.preferred_until = until

    def clear_preferred_replica(self) -> None:
        self.preferred_replica = -1

    def reached_end(self, read_committed: bool) -> bool:
        """Returns True if the end of the partition is reached, once for each offset."""
        end = self.end_offset(read_committed)
        if not 0 <= end <= self.fetch_offset or self.eof_offset == self.fetch_offset:
            return False
        self.eof_offset = self.fetch_offset
        return True

    def end_offset(self, read_committed: bool) -> int:
        """Returns the last stable offset or the high watermark, or -1 before the first response."""
        return self.last_stable_offset if read_committed else self.high_watermark
