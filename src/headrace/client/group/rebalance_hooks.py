"""The interface through which the group membership calls the consumer.

Owner: the loop. The task of `ConsumerCoordinator` calls every method and awaits every coroutine.
"""

from typing import Protocol

from headrace.common.types import TopicPartition


class RebalanceHooks(Protocol):
    """Implemented by `ConsumerCore`. `revoked`, `assigned` and `lost` run the user's rebalance listener, if there is
    one, in the thread that polls (or await it in the asyncio consumer). The user's poll raises the errors of a
    listener.

    The order in a rebalance is: `SubscriptionState.start_revoking` stops the partitions; `at_poll`; an automatic commit
    of the processed records; `revoked`; the smaller assignment takes effect; JoinGroup and SyncGroup; with the
    cooperative protocol the same steps once more; the new assignment takes effect; `assigned`. If the group has removed
    the member, `lost` is called instead of `revoked`, and nothing is committed.
    """

    async def at_poll(self) -> None:
        """Waits until the user is in a poll that has not returned records yet.

        Only then may partitions be revoked: the records of earlier polls count as processed, so their offsets may be
        committed. Heartbeats continue during the wait. Returns immediately while the consumer is being closed.
        """

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions are about to be revoked; their offsets may still be committed. Never called with no partitions."""

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions were added. Called after each rebalance, even if there are none."""

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions were lost and may have other owners: nothing can be committed. Never called with no partitions."""

    def failed(self, error: Exception) -> None:
        """The member cannot continue (not authorized, fenced, ...). The next poll raises the error, then it tries
        again."""
