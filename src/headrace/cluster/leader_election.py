"""Who becomes leader: four ways to choose, each a function of what is known of one partition.

| election            | candidates, in the order of the assignment       | ISR afterwards                            |
|---------------------|--------------------------------------------------|-------------------------------------------|
| offline partition   | online and in the ISR; else, if unclean is       | those of it that are online; after an     |
|                     | allowed, any that is online                      | unclean election the leader alone         |
| reassign partition  | of the target replicas, online and in the ISR    | as before                                 |
| preferred replica   | the first replica, if online and in the ISR      | as before                                 |
| controlled shutdown | online, in the ISR, and not shutting down        | without brokers that are shutting down    |

Each returns the new leader and ISR, in a new leader epoch, or None if nobody can lead. An unclean leader may lack
records that others acknowledged: they are lost.
"""

from collections.abc import Set as AbstractSet
from enum import Enum

from headrace.cluster.znodes import Leadership, ReplicaAssignment


class Election(Enum):
    OFFLINE_PARTITION = "offline partition"
    UNCLEAN = "unclean"
    """As OFFLINE_PARTITION, with unclean leaders allowed whatever the topic says."""
    REASSIGN_PARTITION = "reassign partition"
    PREFERRED_REPLICA = "preferred replica"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


def elect_for_offline(
    state: Leadership, assignment: ReplicaAssignment, online: AbstractSet[int], *, unclean: bool
) -> Leadership | None:
    isr = tuple(one for one in state.isr if one in online)
    for candidate in assignment.replicas:
        if candidate in isr:
            return state.new_leader(candidate, isr)
    if unclean:
        for candidate in assignment.replicas:
            if candidate in online:
                return state.new_leader(candidate, (candidate,))
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
    """`online` includes the brokers that are shutting down."""
    isr = tuple(one for one in state.isr if one not in shutting_down)
    for candidate in assignment.replicas:
        if candidate in online and candidate in isr:
            return state.new_leader(candidate, isr)
    return None
