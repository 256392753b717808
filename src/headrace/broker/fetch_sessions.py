"""Fetch sessions (KIP-227): a consumer that fetches the same partitions repeatedly names them once.

The first request of a session lists every partition. Later requests list only changes, and responses have only the
partitions with new data or a new high watermark. The broker keeps the partitions in an order that rotates: a partition
that returned data moves to the end, so that all are served under a byte limit.

    session id 0, epoch -1     no session (or the end of one, if an id is given)
    session id 0, epoch  0     a new session
    session id n, epoch  0     session n ends, a new one starts
    session id n, epoch  k     the k-th request of session n; the next is k + 1 (1 follows 2^31 - 1)

A full cache creates a session only if it can evict another session:

- a session that was not used for a while, or
- a session that is smaller than the new one and has existed for a minimum time.

All sessions together have at most `MAX_PARTITIONS` partitions: the largest session is evicted if there are more. A
client whose session is gone creates another one, or fetches without a session.

Owned by the broker's loop.
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
MAX_PARTITIONS = 1_000_000

_LAST_EPOCH = 2**31 - 1


class FetchedPartition:
    """A partition of a fetch, with the offsets that the last response of its session had for it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "is_denied",
        "last_fetched_epoch",
        "log_start_offset",
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
        log_start_offset: int = -1,
    ):
        self.topic = topic
        """None if this broker has no topic with the id."""
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        """The log start offset of a follower."""
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.is_denied = False
        """True if the client may not read the partition. Each request of a session decides it again."""

    @property
    def key(self) -> tuple[str | Uuid, int]:
        """Identifies the partition in its session: a session uses either topic ids or topic names."""
        return (self.topic_id if self.topic_id.int else (self.topic or ""), self.partition)

    def update(self, later: "FetchedPartition") -> None:
        """Applies a later request of the session."""
        self.fetch_offset = later.fetch_offset
        self.max_bytes = later.max_bytes
        self.current_leader_epoch = later.current_leader_epoch
        self.last_fetched_epoch = later.last_fetched_epoch
        self.log_start_offset = later.log_start_offset
        self.topic = later.topic or self.topic


class FetchSession:
    """The partitions that one consumer fetches."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "uses_topic_ids")

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now_ms: int):
        self.id = session_id
        self.epoch = 1
        """The epoch of the next request."""
        self.privileged = privileged
        """True for a follower's session, which can evict a consumer's."""
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[tuple[str | Uuid, int], FetchedPartition] = {}
        self.created_ms = self.last_used_ms = now_ms

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch >= _LAST_EPOCH else self.epoch + 1

    def change(self, fetched: Iterable[FetchedPartition], forgotten: Iterable[tuple[str | Uuid, int]]) -> None:
        for partition in fetched:
            existing = self.partitions.get(partition.key)
            if existing is None:
                self.partitions[partition.key] = partition
            else:
                existing.update(partition)
        for key in forgotten:
            self.partitions.pop(key, None)

    def rotate(self, served: Iterable[FetchedPartition]) -> None:
        """Moves the partitions that returned data to the end."""
        for partition in served:
            if self.partitions.pop(partition.key, None) is not None:
                self.partitions[partition.key] = partition


class FetchSessionCache:
    """All fetch sessions of this broker, at most `slots`."""

    def __init__(self, slots: int, clock: Clock, random: Random):
        self.slots = slots
        self.evictions = 0
        self._clock = clock
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """In the order of their last use, the oldest first."""
        self.partitions = 0
        """The number of partitions of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def use(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        """Returns the session that a request continues. Raises the error for the client."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError(f"Fetch session {session_id} does not exist")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError(
                f"Fetch session {session_id} expects epoch {session.epoch}, the request has epoch {epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(
                f"Fetch session {session_id} must not change between topic names and topic ids"
            )
        session.next_epoch()
        session.last_used_ms = self._now_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def create(self, size: int, privileged: bool, uses_topic_ids: bool) -> FetchSession | None:
        """Creates a session to which the caller adds `size` partitions with `change`.

        Returns None if the cache is full and no other session can be evicted.
        """
        if size > MAX_PARTITIONS or not self._make_room(size, privileged):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, privileged, uses_topic_ids, self._now_ms())
        self._sessions[session_id] = session
        return session

    def change(
        self,
        session: FetchSession,
        fetched: Iterable[FetchedPartition],
        forgotten: Iterable[tuple[str | Uuid, int]],
    ) -> None:
        """Changes the partitions of a session. The largest session is evicted if there are too many partitions."""
        before = len(session.partitions)
        session.change(fetched, forgotten)
        if self._sessions.get(session.id) is session:
            self.partitions += len(session.partitions) - before
        if self.partitions > MAX_PARTITIONS:
            self._evict(max(self._sessions.values(), key=lambda session: len(session.partitions)))

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)

    def _make_room(self, size: int, privileged: bool) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False  # the cache has no slots
        now_ms = self._now_ms()
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > MIN_EVICTION_MS:
            return self._evict(oldest)
        evictable = (
            session
            for session in self._sessions.values()
            if (privileged and not session.privileged) or now_ms - session.created_ms > MIN_EVICTION_MS
        )
        weakest = min(evictable, key=lambda session: (session.privileged, len(session.partitions)), default=None)
        if weakest is None or (weakest.privileged, len(weakest.partitions)) >= (privileged, size):
            return False
        return self._evict(weakest)

    def _evict(self, session: FetchSession) -> bool:
        self.remove(session.id)
        self.evictions += 1
        return True
