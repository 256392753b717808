"""A follower as its leader sees it: how far it has fetched, and when it had last caught up.

A follower has caught up at the time of a fetch if its fetch offset reaches the leader's log end at that time. If it
reaches only the log end at the time of its previous fetch, it had caught up at the time of that previous fetch. So a
follower that fetches steadily stays in sync, although the leader's log end always moves on while a fetch is under way.

    leader's log end      100          180                  250
    fetches               offset 100   offset 100           offset 180
    caught up             now          no (before: first)   at the time of the second fetch

Only fetches of the current leader epoch count: the follower may have truncated its log in between.

Owned by the partition, and with it by the broker's loop.
"""

UNKNOWN_OFFSET = -1
"""The offset of a follower that has not fetched in this leader epoch."""
UNKNOWN_BROKER_EPOCH = -1
"""The epoch of a broker that has not sent it (Fetch below version 15)."""
NEVER_MS = -(2**62)


class RemoteReplica:
    """The state of one follower in one leader epoch."""

    __slots__ = (
        "_last_fetch_leader_end",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int):
        self.broker_id = broker_id
        self.log_end_offset = UNKNOWN_OFFSET
        """The offset of its last fetch: it has all records below it."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = NEVER_MS
        """When it had last caught up with the leader, in monotonic time."""
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        """The broker epoch of its last fetch (KIP-903)."""
        self._last_fetch_ms = NEVER_MS
        self._last_fetch_leader_end = UNKNOWN_OFFSET

    def __repr__(self) -> str:
        return (
            f"RemoteReplica({self.broker_id}, offsets {self.log_start_offset} to {self.log_end_offset}, caught up at "
            f"{self.last_caught_up_ms})"
        )

    def reset(self, is_in_sync: bool, now_ms: int) -> None:
        """Starts a leader epoch. An in-sync replica counts as caught up, so that it has time to fetch."""
        self.log_end_offset = self.log_start_offset = self._last_fetch_leader_end = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self._last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def fetched(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Notes a fetch that the leader has validated."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_leader_end = max(self._last_fetch_leader_end, leader_end_offset)
        self._last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Returns True if the follower has the leader's whole log, or had caught up within the last `max_lag_ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
