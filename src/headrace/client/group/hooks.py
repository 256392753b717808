"""What group membership asks of the consumer it belongs to.

Owner: the loop. Every method is called, and every coroutine awaited, by the task of `Membership`.
"""

from collections.abc import Mapping
from typing import Protocol

from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition


class RebalanceHooks(Protocol):
    """Implemented by the consumer. `revoked`, `assigned` and `lost` run the user's listener, if there is one, in the
    thread that polls (blocking face) or await it (asyncio face); what a listener raises comes out of the user's poll.

    The order around a rebalance is: `at_poll`, then (if auto-commit is on) a commit of `consumed`, `revoked`, the
    smaller assignment, [join and sync], `revoked` once more under the cooperative protocol, the new assignment,
    `assigned`. After a member was expelled it is `lost` in place of `revoked`, without a commit.
    """

    async def at_poll(self) -> None:
        """Waits until the user is in a poll (or comes to the next one).

        Only there may partitions be taken away: what earlier polls handed out counts as processed from then on, and
        its offsets may be committed. The poll hands out nothing until the rebalance has gone through or its time is
        up. Heartbeats go on during the wait.
        """

    async def revoked(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions are about to go to others; offsets may still be committed. Never called with none."""

    async def assigned(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions that came; called after each rebalance, also with none."""

    async def lost(self, tps: frozenset[TopicPartition]) -> None:
        """Partitions that others may have already: nothing of them can be committed. Never called with none."""

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """The position of each assigned partition that has one, as of what the user has been given."""

    def failed(self, error: Exception) -> None:
        """The member cannot go on (not authorized, fenced, ...): the next poll raises this, and then it tries again."""
