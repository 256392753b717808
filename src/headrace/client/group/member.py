"""The identity and the state of this consumer as a member of its group.

Owner: the loop. Any thread may read `identity`.

    UNJOINED    not a member: not subscribed, removed from the group, or left it after max.poll.interval.ms
    PREPARING   about to join: revoking partitions; still a member of the last generation, if there is one
    JOINING     JoinGroup is in flight: no commits, no heartbeats
    SYNCING     SyncGroup is in flight: a member of the new generation, with an unknown assignment
    STABLE      has an assignment (a listener may still be running)

Only `transition_to` changes the state. `generation` is -1 for a consumer that is not a member. It never joined, or the
group has removed it and may have assigned its partitions to others.
"""

import logging
from enum import Enum

from headrace.client import types
from headrace.client.group.consumer_protocol import NO_GENERATION
from headrace.client.types import ConsumerGroupMetadata

__all__ = ["Member", "MemberState"]

_logger = logging.getLogger(__name__)


class MemberState(Enum):
    """The state of a group member. The module docstring describes the states."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


_PREDECESSORS = {
    MemberState.UNJOINED: frozenset(MemberState),
    MemberState.PREPARING: frozenset(MemberState),
    MemberState.JOINING: frozenset((MemberState.PREPARING,)),
    MemberState.SYNCING: frozenset((MemberState.JOINING,)),
    MemberState.STABLE: frozenset((MemberState.SYNCING,)),
}


class Member:
    """Group id, member id, generation and state of this consumer."""

    def __init__(self, group_id: str, group_instance_id: str | None = None):
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.member_id = ""
        self.protocol = ""
        """The name of the assignor that the group uses."""
        self.is_leader = False
        self.was_member = False
        """True if it has joined since it subscribed. Otherwise the group cannot have removed it."""
        self.identity = ConsumerGroupMetadata(group_id, NO_GENERATION, "", group_instance_id)

    def __str__(self) -> str:
        return f"Group {self.group_id}, member {self.member_id or '(new)'}"

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    @property
    def may_heartbeat(self) -> bool:
        """True if the coordinator knows the member and holds none of its requests."""
        return self.is_member and self.state in (MemberState.PREPARING, MemberState.STABLE)

    @property
    def may_commit(self) -> bool:
        return self.may_heartbeat

    def transition_to(self, state: MemberState) -> None:
        if self.state not in _PREDECESSORS[state]:
            raise RuntimeError(f"{self}: illegal transition from {self.state.value} to {state.value}")
        if state is not self.state:
            _logger.debug("%s: state changed from %s to %s", self, self.state.value, state.value)
        self.state = state

    def metadata(self) -> ConsumerGroupMetadata:
        """Returns the identity with kafka-python's name of the state. Any thread may call it."""
        state = self.state
        if state is MemberState.STABLE:
            return self.identity._replace(state=types.MemberState.STABLE)
        is_joined = state is not MemberState.UNJOINED
        return self.identity._replace(state=types.MemberState.REBALANCING) if is_joined else self.identity

    def set_member_id(self, member_id: str) -> None:
        """Sets the member id that the coordinator expects in the second JoinGroup (KIP-394)."""
        self._set(NO_GENERATION, member_id)

    def joined(self, generation: int, member_id: str, protocol: str, is_leader: bool) -> None:
        self.transition_to(MemberState.SYNCING)
        self.protocol = protocol
        self.is_leader = is_leader
        self.was_member = True
        self._set(generation, member_id)

    def reset_generation(self, keep_id: bool = False) -> None:
        """Clears generation and, by default, member id: the group has removed this member."""
        self.is_leader = False
        self._set(NO_GENERATION, self.member_id if keep_id else "")

    def _set(self, generation: int, member_id: str) -> None:
        self.generation = generation
        self.member_id = member_id
        self.identity = ConsumerGroupMetadata(self.group_id, generation, member_id, self.group_instance_id)
