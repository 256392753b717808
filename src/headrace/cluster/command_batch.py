"""Collects the commands of one controller event, and sends each broker at most one command of each kind.

The order is:

1. LeaderAndIsr: a broker serves a partition before the other brokers learn of it.
2. UpdateMetadata.
3. StopReplica: the other brokers learn of a replica's removal before it stops.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from headrace.cluster.bulk_reads import give_way
from headrace.cluster.commands import (
    EPOCH_DURING_DELETE,
    BrokerChannel,
    Command,
    CommandResult,
    LeaderAndIsr,
    PartitionState,
    ReplicaToStop,
    StopReplica,
    UpdateMetadata,
)
from headrace.cluster.controller_context import ControllerContext
from headrace.common.types import TopicPartition


class CommandBatch:
    """The pending commands of a controller. `on_result` receives each broker's result with its command."""

    def __init__(
        self,
        context: ControllerContext,
        channel: BrokerChannel,
        on_result: Callable[[int, Command, CommandResult], None],
    ):
        self._context = context
        self._channel = channel
        self._on_command_result = on_result
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._metadata_to: set[int] = set()
        self._full_to: set[int] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Discards all commands from now on: `send` does nothing."""
        self._closed = True

    def add_leader_and_isr(self, broker_ids: Iterable[int], tp: TopicPartition, *, is_new: bool = False) -> None:
        """Sends these brokers the partition's leader and ISR as of `send`, and its metadata to all brokers."""
        for broker_id in broker_ids:
            partitions = self._leader_and_isr.setdefault(broker_id, {})
            partitions[tp] = partitions.get(tp, False) or is_new
        self.add_update_metadata([tp])

    def add_stop_replica(self, broker_id: int, tp: TopicPartition, *, delete: bool) -> None:
        partitions = self._stop_replica.setdefault(broker_id, {})
        partitions[tp] = partitions.get(tp, False) or delete

    def add_update_metadata(self, tps: Iterable[TopicPartition] = ()) -> None:
        """Sends every broker the live brokers and the state of these partitions."""
        self._metadata.update(dict.fromkeys(tps))
        self._metadata_to.update(self._context.brokers)

    def add_full_metadata(self, broker_ids: Iterable[int]) -> None:
        """Sends brokers the state of all partitions, for brokers that have no metadata yet."""
        self._full_to.update(broker_ids)

    async def send(self) -> None:
        """Sends all collected commands and empties the batch.

        Gives way to the event loop while it builds the commands for many partitions. Nothing is sent after `close`.
        """
        context = self._context
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, {}
        stop_replica, self._stop_replica = self._stop_replica, {}
        metadata, self._metadata = self._metadata, {}
        metadata_to, self._metadata_to = self._metadata_to, set()
        full_to, self._full_to = self._full_to, set()
        if self._closed:
            return
        known_states: dict[TopicPartition, PartitionState] = {}
        for broker_id in sorted(leader_and_isr.keys() & context.brokers.keys()):
            await self._send_leader_and_isr(broker_id, leader_and_isr[broker_id], known_states)
        changed_partitions = await self._describe([tp for tp in metadata if context.has_partition(tp)], known_states)
        all_partitions = await self._describe(list(context.partitions()), known_states) if full_to else []
        for broker_id in sorted((metadata_to | full_to) & context.brokers.keys()):
            if broker_id in full_to:
                # A broker takes topics that are missing for deleted, but a damaged topic still exists.
                self._send_metadata(broker_id, all_partitions, is_full=not context.damaged_topics)
            else:
                self._send_metadata(broker_id, changed_partitions, is_full=False)
        for broker_id in sorted(stop_replica.keys() & context.brokers.keys()):
            self._send_stop_replica(broker_id, stop_replica[broker_id])

    async def _describe(
        self, tps: list[TopicPartition], known_states: dict[TopicPartition, PartitionState]
    ) -> list[PartitionState]:
        context = self._context
        states: list[PartitionState] = []
        for count, tp in enumerate(tps, 1):
            if context.is_queued_for_deletion(tp):
                states.append(context.partition_state(tp, deleting=True))
            else:
                states.append(self._state_of(tp, known_states))
            await give_way(count)
        return states

    def _state_of(self, tp: TopicPartition, known_states: dict[TopicPartition, PartitionState]) -> PartitionState:
        state = known_states.get(tp)
        if state is None:
            state = known_states[tp] = self._context.partition_state(tp)
        return state

    async def _send_leader_and_isr(
        self,
        broker_id: int,
        partitions: dict[TopicPartition, bool],
        known_states: dict[TopicPartition, PartitionState],
    ) -> None:
        context = self._context
        states: list[PartitionState] = []
        for count, (tp, is_new) in enumerate(partitions.items(), 1):
            if tp in context.leaderships and context.has_partition(tp):
                state = self._state_of(tp, known_states)
                states.append(replace(state, is_new=True) if is_new else state)
            await give_way(count)
        if states:
            epoch = context.brokers[broker_id].epoch
            self._send(broker_id, LeaderAndIsr(context.controller_id, context.epoch, epoch, states))

    def _send_metadata(self, broker_id: int, states: list[PartitionState], *, is_full: bool) -> None:
        context = self._context
        brokers = [context.brokers[live_id] for live_id in sorted(context.brokers)]
        epoch = context.brokers[broker_id].epoch
        self._send(
            broker_id, UpdateMetadata(context.controller_id, context.epoch, epoch, brokers, states, full=is_full)
        )

    def _send_stop_replica(self, broker_id: int, partitions: dict[TopicPartition, bool]) -> None:
        context = self._context
        replicas = []
        for tp, delete in partitions.items():
            state = context.leaderships.get(tp)
            is_deleted = context.is_queued_for_deletion(tp)
            leader_epoch = EPOCH_DURING_DELETE if is_deleted or state is None else state.leader_epoch
            replicas.append(ReplicaToStop(tp, leader_epoch, delete))
        epoch = context.brokers[broker_id].epoch
        self._send(broker_id, StopReplica(context.controller_id, context.epoch, epoch, replicas))

    def _send(self, broker_id: int, command: Command) -> None:
        if self._closed:
            return  # the controller resigned while the commands were built
        self._channel.send(broker_id, command, lambda result: self._on_command_result(broker_id, command, result))
