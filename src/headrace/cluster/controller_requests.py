"""Requests of brokers to the active controller: ElectLeaders, AlterPartition (ISR changes), ControlledShutdown,
AllocateProducerIds."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headrace.cluster.bulk_reads import give_way
from headrace.cluster.commands import NO_LEADER, RECOVERED, RECOVERING
from headrace.cluster.controller_context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from headrace.cluster.controller_term import ControllerTerm
from headrace.cluster.leader_election import Election
from headrace.cluster.metadata_image import is_other_topic
from headrace.cluster.producer_id_manager import allocate_block
from headrace.cluster.znodes import Leadership, ProducerIdBlock
from headrace.common.errors import (
    ElectionNotNeededError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    KafkaError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import Uuid
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

UNCHECKED_EPOCH = -1
"""The broker epoch of an ISR member whose leader does not know it."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A leader's proposed ISR. Valid only if leader epoch and partition epoch are current."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()
    """The broker epochs of the ISR's members, in the same order (KIP-903); -1, or no epochs at all: not checked."""
    leader_recovery_state: int = RECOVERED
    topic_id: Uuid | None = None
    """The topic id that the leader knows; None: not checked."""


async def elect_leaders(
    term: ControllerTerm, election: Election, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    context = term.context
    candidates = list(context.partitions()) if partitions is None else list(dict.fromkeys(partitions))
    results: dict[TopicPartition, KafkaError | None] = {}
    needed: list[TopicPartition] = []
    for count, tp in enumerate(candidates, 1):
        await give_way(count)
        error = _reason_for_no_election(context, election, tp)
        if error is None:
            needed.append(tp)
            results[tp] = None
        elif partitions is not None:
            results[tp] = error
    results |= await term.partitions.handle_state_changes(needed, PartitionStatus.ONLINE, election)
    return results


def _reason_for_no_election(context: ControllerContext, election: Election, tp: TopicPartition) -> KafkaError | None:
    if not context.has_partition(tp):
        return UnknownTopicOrPartitionError(f"Partition {tp} does not exist.")
    if context.is_queued_for_deletion(tp):
        return InvalidTopicError(f"Topic '{tp.topic}' is marked for deletion.")
    state = context.leaderships.get(tp)
    leader = NO_LEADER if state is None else state.leader
    if election is Election.PREFERRED_REPLICA:
        if leader == context.assignment(tp).replicas[0]:
            return ElectionNotNeededError(
                f"Leader election not needed: the preferred replica of {tp} is already the leader."
            )
    elif context.is_replica_online(leader, tp):
        return ElectionNotNeededError(f"Leader election not needed: {tp} has leader {leader}.")
    return None


async def alter_isr(
    term: ControllerTerm, broker_id: int, broker_epoch: int, changes: Mapping[TopicPartition, IsrChange]
) -> dict[TopicPartition, Leadership | KafkaError]:
    context = term.context
    _check_broker_epoch(context, broker_id, broker_epoch)
    results: dict[TopicPartition, Leadership | KafkaError] = {}
    updates: dict[TopicPartition, Leadership] = {}
    for tp, change in changes.items():
        state = context.leaderships.get(tp)
        try:
            if state is None or not context.has_partition(tp) or context.is_queued_for_deletion(tp):
                raise UnknownTopicOrPartitionError(f"Partition {tp} does not exist.")
            _check_isr_change(context, tp, broker_id, state, change)
        except KafkaError as error:
            results[tp] = error
            continue
        if _is_applied(state, change):
            results[tp] = state
        else:
            updates[tp] = replace(
                state,
                isr=change.isr,
                leader_recovery_state=change.leader_recovery_state,
                controller_epoch=context.epoch,
            )
    written = await term.fenced.update_leaderships(updates)
    for tp in updates:
        if tp in written:
            results[tp] = context.leaderships[tp] = written[tp]
        else:
            results[tp] = InvalidUpdateVersionError(f"Leader and ISR of {tp} were changed concurrently.")
            for changed in await term.partitions.refresh([tp]):
                # The leader waits for the newer state.
                term.batch.add_leader_and_isr([broker_id], changed)
    if written:
        term.batch.add_update_metadata(written)
    return results


def _check_broker_epoch(context: ControllerContext, broker_id: int, broker_epoch: int) -> None:
    broker = context.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        current = "none" if broker is None else broker.epoch
        raise StaleBrokerEpochError(
            f"Broker {broker_id} sent epoch {broker_epoch}, but its current epoch is {current}."
        )


def _check_isr_change(
    context: ControllerContext, tp: TopicPartition, broker_id: int, state: Leadership, change: IsrChange
) -> None:
    """Raises the error of an invalid change. The order of the checks is Kafka's."""
    if change.topic_id is not None and is_other_topic(context.topics[tp.topic].topic_id, change.topic_id):
        raise UnknownTopicIdError(
            f"Topic '{tp.topic}' has id {context.topics[tp.topic].topic_id}, not {change.topic_id}."
        )
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        # This controller has not seen the leader's state: it was probably replaced.
        raise NotControllerError(
            f"The leader of {tp} has leader epoch {change.leader_epoch} and partition epoch {change.partition_epoch}; "
            f"this controller knows only {state.leader_epoch} and {state.partition_epoch}."
        )
    if change.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpochError(
            f"Leader epoch {change.leader_epoch} of {tp} is old, the current one is {state.leader_epoch}."
        )
    if state.leader != broker_id:
        raise InvalidRequestError(f"Broker {broker_id} is not the leader of {tp}, broker {state.leader} is.")
    if _is_applied(state, change):
        return  # a retry after a lost response
    if change.partition_epoch != state.partition_epoch:
        raise InvalidUpdateVersionError(
            f"Partition epoch {change.partition_epoch} of {tp} is not the current one, {state.partition_epoch}."
        )
    _check_isr(context, tp, broker_id, change)
    if change.leader_recovery_state == RECOVERING and (len(change.isr) > 1 or state.leader_recovery_state == RECOVERED):
        raise InvalidRequestError(
            f"Partition {tp} cannot change to leader recovery state RECOVERING with ISR {list(change.isr)}."
        )
    ineligible = _ineligible_replicas(context, tp, state, change)
    if ineligible:
        raise IneligibleReplicaError(
            f"The ISR of {tp} cannot be {list(change.isr)}: brokers {ineligible} are offline or have restarted."
        )


def _is_applied(state: Leadership, change: IsrChange) -> bool:
    return set(change.isr) == set(state.isr) and change.leader_recovery_state == state.leader_recovery_state


def _check_isr(context: ControllerContext, tp: TopicPartition, broker_id: int, change: IsrChange) -> None:
    isr = set(change.isr)
    if (
        broker_id not in isr
        or len(isr) != len(change.isr)
        or not isr <= set(context.assignment(tp).replicas)
        or len(change.broker_epochs) not in (0, len(change.isr))
    ):
        raise InvalidRequestError(
            f"Invalid ISR {list(change.isr)} for {tp} with leader {broker_id}: it must contain the leader, "
            f"no duplicates, only assigned replicas, and all or no broker epochs."
        )


def _ineligible_replicas(
    context: ControllerContext, tp: TopicPartition, state: Leadership, change: IsrChange
) -> list[int]:
    """Returns the members of a proposed ISR that are offline, or have restarted since the leader learned their epoch.

    A restarted broker may have lost records that it had acknowledged to the leader before (KIP-903).
    """
    epochs = change.broker_epochs or (UNCHECKED_EPOCH,) * len(change.isr)
    ineligible: list[int] = []
    for replica, epoch in zip(change.isr, epochs, strict=True):
        broker = context.brokers.get(replica)
        joins = replica not in state.isr
        if (joins and not context.is_replica_online(replica, tp)) or (
            epoch != UNCHECKED_EPOCH and (broker is None or broker.epoch != epoch)
        ):
            ineligible.append(replica)
    return ineligible


async def controlled_shutdown(term: ControllerTerm, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
    context = term.context
    _check_broker_epoch(context, broker_id, broker_epoch)
    _logger.info("Controlled shutdown of broker %d: moving its leaderships to other brokers", broker_id)
    context.shutting_down.add(broker_id)
    replicated = [
        tp
        for tp, _ in context.replicas_on([broker_id])
        if len(context.assignment(tp).replicas) > 1
        and tp in context.leaderships
        and not context.is_queued_for_deletion(tp)
    ]
    led = [tp for tp in replicated if context.leaderships[tp].leader == broker_id]
    followed = [tp for tp in replicated if context.leaderships[tp].leader != broker_id]
    await term.partitions.handle_state_changes(led, PartitionStatus.ONLINE, Election.CONTROLLED_SHUTDOWN)
    await term.batch.send()  # new leaders first: until then their partitions are not available
    await term.replicas.handle_state_changes([Replica(tp, broker_id) for tp in followed], ReplicaStatus.OFFLINE)
    remaining = {tp for tp in replicated if context.leaderships[tp].leader == broker_id}
    _logger.info(
        "Controlled shutdown of broker %d: moved %d leaderships, %d remain because no other replica is in sync",
        broker_id,
        len(led) - len(remaining),
        len(remaining),
    )
    return remaining


async def allocate_producer_ids(term: ControllerTerm, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
    _check_broker_epoch(term.context, broker_id, broker_epoch)
    return await allocate_block(term.store, broker_id)
