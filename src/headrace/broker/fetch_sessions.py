"""Fetch sessions (KIP-227): a consumer that fetches the same partitions again and again names them once.

The first request of a session lists every partition; later ones list only what changed, and replies hold only the
partitions that have something new. The broker keeps what was listed, in an order that rotates: a partition that had
data goes to the end, so that under a limit of bytes all get their turn.

    session id 0, epoch -1     no session wanted (or the end of one, if an id is given)
    session id 0, epoch  0     a new session is wanted
    session id n, epoch  0     the old one ends, a new one is wanted
    session id n, epoch  k     the k-th request of session n; the next must be k + 1 (behind 2^31 - 1 comes 1)

A full cache takes a new session only at the cost of another: of one that has not been used for a while, or of one that
is smaller than the new one and has had its time. Owned by the broker's loop.
"""

from collections.abc import Iterable

from headrace.common.clock import Clock
from headrace.common.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from headrace.common.ids import Random, Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
MIN_EVICTION_MS = 120_000

_LAST_EPOCH = 2**31 - 1


class FetchedPartition:
    """A partition that somebody fetches, with what the last reply of its session said about it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: Uuid,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ):
        self.topic = topic
        """None while the id is not one of a topic here."""
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    @property
    def key(self) -> tuple[str | Uuid, int]:
        """A client names its topics either by id or by name, for a whole session."""
        return (self.topic_id if self.topic_id.int else (self.topic or ""), self.partition)

    def update(self, other: "FetchedPartition") -> None:
        """Takes what a later request of the session says."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.topic = other.topic or self.topic


class FetchSession:
    """What one consumer fetches."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "uses_topic_ids")

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now_ms: int):
        self.id = session_id
        self.epoch = 1
        """Of the next request."""
        self.privileged = privileged
        """Whether it is a follower's, which goes before a consumer's."""
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[tuple[str | Uuid, int], FetchedPartition] = {}
        self.created_ms = self.last_used_ms = now_ms

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch >= _LAST_EPOCH else self.epoch + 1

    def change(self, fetched: Iterable[FetchedPartition], forgotten: Iterable[tuple[str | Uuid, int]]) -> None:
        for partition in fetched:
            known = self.partitions.get(partition.key)
            if known is None:
                self.partitions[partition.key] = partition
            else:
                known.update(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def rotate(self, served: Iterable[FetchedPartition]) -> None:
        """Puts the partitions that had data behind the others."""
        for partition in served:
            if self.partitions.pop(partition.key, None) is not None:
                self.partitions[partition.key] = partition


class FetchSessionCache:
    def __init__(self, slots: int, clock: Clock, random: Random):
        self.slots = slots
        self.evictions = 0
        self._clock = clock
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """The one that was used longest ago comes first."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def use(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        """The session that a request continues. Raises the error that the client gets if it cannot."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session_id} is at epoch {session.epoch}, the request is of {epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} changed between topic names and topic ids")
        session.next_epoch()
        session.last_used_ms = self._now_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def create(self, partitions: list[FetchedPartition], privileged: bool, uses_topic_ids: bool) -> FetchSession | None:
        """A new session, or None if there is no room for it."""
        if not self._make_room(len(partitions), privileged):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, privileged, uses_topic_ids, self._now_ms())
        session.change(partitions, ())
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _make_room(self, size: int, privileged: bool) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False  # there are no slots
        now_ms = self._now_ms()
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > MIN_EVICTION_MS:
            return self._evict(oldest)
        had_their_time = (
            session
            for session in self._sessions.values()
            if (privileged and not session.privileged) or now_ms - session.created_ms > MIN_EVICTION_MS
        )
        weakest = min(had_their_time, key=lambda session: (session.privileged, len(session.partitions)), default=None)
        if weakest is None or (weakest.privileged, len(weakest.partitions)) >= (privileged, size):
            return False
        return self._evict(weakest)

    def _evict(self, session: FetchSession) -> bool:
        del self._sessions[session.id]
        self.evictions += 1
        return True
