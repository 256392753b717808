"""The calls from `ConsumerCoordinator` to the consumer during a rebalance.

Owner: the loop. Only the task of `ConsumerCoordinator` calls these methods.
"""

from typing import Protocol

from headrace.common.types import TopicPartition


class RebalanceHooks(Protocol):
    """The consumer's side of a rebalance, implemented by `ConsumerCore`.

    `revoked`, `assigned` and `lost` call the user's rebalance listener, if there is one, in the polling thread (the
    asyncio consumer awaits it). If the listener raises, the user's `poll` raises the error.

    Order of a rebalance:
    1. `SubscriptionState.start_revoking` stops fetching the partitions to revoke.
    2. `wait_for_poll`.
    3. An automatic commit of the processed records.
    4. `revoked`. Then the partitions are removed from the assignment.
    5. JoinGroup and SyncGroup. With the cooperative protocol, steps 1 to 4 follow for partitions that the new
       assignment lacks.
    6. The new assignment takes effect, then `assigned`.

    If the group has removed the member, `lost` replaces `revoked`, and nothing is committed.
    """

    async def wait_for_poll(self) -> None:
        """Waits until the user is inside `poll`, before it returns records.

        Partitions are revoked only at that point: the records of earlier polls count as processed, so their offsets
        may be committed. Heartbeats continue during the wait. Returns immediately while the consumer is being closed.
        """

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Called before partitions are revoked. Their offsets may still be committed. `tps` is never empty."""

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Called after each rebalance with the added partitions. `tps` may be empty."""

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        """Called when partitions were lost: other members may own them, so nothing can be committed. `tps` is never
        empty."""

    def failed(self, error: Exception) -> None:
        """Called when the member cannot join (not authorized, fenced, ...). The next poll raises the error. Then the
        member tries again."""
