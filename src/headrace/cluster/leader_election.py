"""Leader election strategies: pure functions of one partition's state.

| election            | candidates, in assignment order                  | ISR after the election                    |
|---------------------|--------------------------------------------------|-------------------------------------------|
| offline partition   | online and in the ISR; if none and unclean       | its online members; after an unclean      |
|                     | election is enabled: any online replica          | election only the leader                  |
| reassign partition  | target replicas, online and in the ISR           | unchanged                                 |
| preferred replica   | the first replica, if online and in the ISR      | unchanged                                 |
| controlled shutdown | online, in the ISR, and not shutting down        | without brokers that are shutting down    |

Each function returns the new leader and ISR with a new leader epoch, or None if no replica is eligible. An unclean
leader may lack acknowledged records; those are lost. Its leader recovery state is RECOVERING (KIP-704) until it reports
that it has recovered.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import Enum

from headrace.cluster.commands import RECOVERING
from headrace.cluster.znodes import Leadership, ReplicaAssignment


class Election(Enum):
    """The strategy of an election."""

    OFFLINE_PARTITION = "offline partition"
    UNCLEAN = "unclean"
    """Like OFFLINE_PARTITION, but unclean leaders are allowed regardless of the topic's config."""
    REASSIGN_PARTITION = "reassign partition"
    PREFERRED_REPLICA = "preferred replica"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


def elect_for_offline(
    state: Leadership, assignment: ReplicaAssignment, online: AbstractSet[int], *, unclean: bool
) -> Leadership | None:
    isr = tuple(replica for replica in state.isr if replica in online)
    for candidate in assignment.replicas:
        if candidate in isr:
            return state.new_leader(candidate, isr)
    if unclean:
        for candidate in assignment.replicas:
            if candidate in online:
                return replace(state.new_leader(candidate, (candidate,)), leader_recovery_state=RECOVERING)
    return None


def elect_for_reassignment(
    state: Leadership, assignment: ReplicaAssignment, online: AbstractSet[int]
) -> Leadership | None:
    for candidate in assignment.target:
        if candidate in online and candidate in state.isr:
            return state.new_leader(candidate)
    return None


def elect_preferred(state: Leadership, assignment: ReplicaAssignment, online: AbstractSet[int]) -> Leadership | None:
    if not assignment.replicas:
        return None
    preferred = assignment.replicas[0]
    return state.new_leader(preferred) if preferred in online and preferred in state.isr else None


def elect_for_shutdown(
    state: Leadership, assignment: ReplicaAssignment, online: AbstractSet[int], shutting_down: AbstractSet[int]
) -> Leadership | None:
    """Elects a leader that is not shutting down. `online` includes brokers that are shutting down."""
    isr = tuple(replica for replica in state.isr if replica not in shutting_down)
    for candidate in assignment.replicas:
        if candidate in online and candidate in isr:
            return state.new_leader(candidate, isr)
    return None
