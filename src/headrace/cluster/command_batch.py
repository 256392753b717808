"""Collects the commands of one controller event, and sends each broker at most one command of each kind.

The order is:

1. LeaderAndIsr: a broker serves a partition before the other brokers learn of it.
2. UpdateMetadata.
3. StopReplica: the other brokers learn of a replica's removal before it stops.
"""

from collections.abc import Callable, Iterable

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

    def send(self) -> None:
        """Sends all collected commands and empties the batch."""
        context = self._context
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, {}
        stop_replica, self._stop_replica = self._stop_replica, {}
        metadata, self._metadata = self._metadata, {}
        metadata_to, self._metadata_to = self._metadata_to, set()
        full_to, self._full_to = self._full_to, set()
        if self._closed:
            return
        for broker_id in sorted(leader_and_isr.keys() & context.brokers.keys()):
            self._send_leader_and_isr(broker_id, leader_and_isr[broker_id])
        changed_partitions = [self._describe(tp) for tp in metadata if context.has_partition(tp)]
        all_partitions = [self._describe(tp) for tp in context.partitions()] if full_to else []
        for broker_id in sorted((metadata_to | full_to) & context.brokers.keys()):
            if broker_id in full_to:
                # A broker takes topics that are missing for deleted, but a damaged topic still exists.
                self._send_metadata(broker_id, all_partitions, is_full=not context.damaged_topics)
            else:
                self._send_metadata(broker_id, changed_partitions, is_full=False)
        for broker_id in sorted(stop_replica.keys() & context.brokers.keys()):
            self._send_stop_replica(broker_id, stop_replica[broker_id])

    def _describe(self, tp: TopicPartition) -> PartitionState:
        return self._context.partition_state(tp, deleting=self._context.is_queued_for_deletion(tp))

    def _send_leader_and_isr(self, broker_id: int, partitions: dict[TopicPartition, bool]) -> None:
        context = self._context
        states = [
            context.partition_state(tp, is_new=is_new)
            for tp, is_new in partitions.items()
            if tp in context.leaderships and context.has_partition(tp)
        ]
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
        self._channel.send(broker_id, command, lambda result: self._on_command_result(broker_id, command, result))
