"""Who this consumer is in its group, and where it is on its way into it.

Owner: the loop; `identity` may be read by any thread.

    OUT         not a member: not subscribed, or expelled, or gone for not polling
    PREPARING   about to join: what must be given up is given up; still a member of the last generation, if of any
    JOINING     JoinGroup is under way: no commits, no heartbeats
    SYNCING     SyncGroup is under way: of the new generation, but what it will read is not known yet
    STABLE      has an assignment (and maybe a listener is being told)

Only `move` changes the state. `generation` is -1 for who is not a member: it was never one, or the coordinator has
gone on without it, and what it still has may be read by others.
"""

import logging
from enum import Enum

from headrace.client.group.consumer_protocol import NO_GENERATION
from headrace.client.types import ConsumerGroupMetadata

__all__ = ["Member", "MemberState"]

_logger = logging.getLogger(__name__)


class MemberState(Enum):
    OUT = "out"
    PREPARING = "preparing"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


_PREDECESSORS = {
    MemberState.OUT: frozenset(MemberState),
    MemberState.PREPARING: frozenset(MemberState),
    MemberState.JOINING: frozenset((MemberState.PREPARING,)),
    MemberState.SYNCING: frozenset((MemberState.JOINING,)),
    MemberState.STABLE: frozenset((MemberState.SYNCING,)),
}


class Member:
    def __init__(self, group_id: str, group_instance_id: str | None = None):
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.state = MemberState.OUT
        self.generation = NO_GENERATION
        self.member_id = ""
        self.protocol = ""
        """The name of the assignor that the group has chosen."""
        self.is_leader = False
        self.was_member = False
        """Whether it has ever joined since it subscribed: who has not cannot have been thrown out."""
        self.identity = ConsumerGroupMetadata(group_id, NO_GENERATION, "", group_instance_id)

    def __str__(self) -> str:
        return f"group {self.group_id}: member {self.member_id or '(new)'}"

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    @property
    def may_beat(self) -> bool:
        """Heartbeats make sense: the coordinator knows the member and does not hold a request of its."""
        return self.is_member and self.state in (MemberState.PREPARING, MemberState.STABLE)

    @property
    def may_commit(self) -> bool:
        return self.may_beat

    def move(self, state: MemberState) -> None:
        if self.state not in _PREDECESSORS[state]:
            raise RuntimeError(f"{self} cannot go from {self.state.value} to {state.value}")
        if state is not self.state:
            _logger.debug("%s: %s after %s", self, state.value, self.state.value)
        self.state = state

    def named(self, member_id: str) -> None:
        """The coordinator has given an id and wants to see it again in a second JoinGroup (KIP-394)."""
        self._set(NO_GENERATION, member_id)

    def joined(self, generation: int, member_id: str, protocol: str, is_leader: bool) -> None:
        self.move(MemberState.SYNCING)
        self.protocol = protocol
        self.is_leader = is_leader
        self.was_member = True
        self._set(generation, member_id)

    def expelled(self, keep_id: bool = False) -> None:
        """The group has gone on without this member."""
        self.is_leader = False
        self._set(NO_GENERATION, self.member_id if keep_id else "")

    def _set(self, generation: int, member_id: str) -> None:
        self.generation = generation
        self.member_id = member_id
        self.identity = ConsumerGroupMetadata(self.group_id, generation, member_id, self.group_instance_id)
