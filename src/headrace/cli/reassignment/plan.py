"""Plans of reassignments. Pure: facts about the cluster in, plans out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli.common.tool import Failure
from headrace.cli.reassignment.files import Assignment
from headrace.common.assignment import assign_replicas
from headrace.common.ids import Random
from headrace.common.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.admin.types import OngoingReassignment


def propose(
    current: Assignment, brokers: Mapping[int, str | None], random: Random
) -> dict[TopicPartition, tuple[int, ...]]:
    """Distributes topics over brokers as the controller distributes new topics.

    Each topic keeps the number of replicas of its first partition. `brokers` has the rack of each broker, or None.
    Raises a Failure.
    """
    without_rack = sorted(broker for broker, rack in brokers.items() if rack is None)
    if without_rack and len(without_rack) < len(brokers):
        raise Failure(
            f"Not all brokers have rack information: {', '.join(map(str, without_rack))} have none. Add "
            "--disable-rack-aware to ignore racks"
        )
    partitions: dict[str, list[TopicPartition]] = {}
    for tp in sorted(current):
        partitions.setdefault(tp.topic, []).append(tp)
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic, tps in partitions.items():
        factor = len(current[tps[0]])
        if factor > len(brokers):
            raise Failure(
                f"Topic {topic} has {factor} replicas of each partition, more than the {len(brokers)} brokers of "
                "--broker-list that are running"
            )
        assigned = assign_replicas(brokers, len(tps), factor, random)
        proposed.update({TopicPartition(topic, index): replicas for index, replicas in assigned.items()})
    return proposed


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one partition."""

    sources: tuple[int, ...]
    """Its replicas before the move. Any of them may be or become the leader."""
    destinations: tuple[int, ...]
    """The replicas that are added."""
    targets: tuple[int, ...]
    """Its replicas after the move."""


def moves_of(
    targets: Assignment, current: Assignment, ongoing: Mapping[TopicPartition, "OngoingReassignment"]
) -> dict[TopicPartition, Move]:
    """Returns the moves to the new replicas, and those that are in progress already."""
    moves = {
        tp: Move(
            tuple(replica for replica in state.replicas if replica not in state.adding_replicas),
            state.adding_replicas,
            tuple(replica for replica in state.replicas if replica not in state.removing_replicas),
        )
        for tp, state in ongoing.items()
    }
    for tp, replicas in targets.items():
        sources = moves[tp].sources if tp in moves else current[tp]
        moves[tp] = Move(sources, tuple(replica for replica in replicas if replica not in sources), replicas)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, str]]:
    """Returns the lists of throttled replicas by topic: those of leaders and those of followers."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for tp, move in sorted(moves.items()):
        leaders.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in sorted(move.sources))
        followers.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker}" for broker in sorted(move.destinations))
    return {topic: (",".join(leaders[topic]), ",".join(followers[topic])) for topic in leaders}
