"""What group membership asks of the consumer it belongs to.

Owner: the loop. Every method is called, and every coroutine awaited, by the task of `ConsumerCoordinator`.
"""

from typing import Protocol

from headrace.common.types import TopicPartition


class RebalanceHooks(Protocol):
    """Implemented by the consumer. `revoked`, `assigned` and `lost` run the user's listener, if there is one, in the
    thread that polls (blocking face) or await it (asyncio face); what a listener raises comes out of the user's poll.

    The order around a rebalance is: the partitions are stopped (`SubscriptionState.start_revoking`), `at_poll`, then
    (if auto-commit is on) a commit of what the user is done with, `revoked`, the smaller assignment, [join and sync],
    the same once more under the cooperative protocol, the new assignment, `assigned`. After a member was expelled it is
    `lost` in place of `revoked`, without a commit.
    """

    async def at_poll(self) -> None:
        """Waits until the user is in a poll that has handed out nothing yet, or comes to the next one.

        Only there may partitions be taken away: what earlier polls handed out counts as processed, and its offsets may
        be committed. Heartbeats go on during the wait. Returns at once while the consumer is being closed.
        """

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions are about to go to others; offsets may still be committed. Never called with none."""

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions that came; called after each rebalance, also with none."""

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions that others may have already: nothing of them can be committed. Never called with none."""

    def failed(self, error: Exception) -> None:
        """The member cannot go on (not authorized, fenced, ...): the next poll raises this, and then it tries again."""
