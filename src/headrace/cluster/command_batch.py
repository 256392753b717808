"""Collects what a step of the controller has to tell brokers, and sends each broker one command of each kind.

To each broker: LeaderAndIsr, then UpdateMetadata, then StopReplica, so that a broker knows of a partition before others
are sent there, and others know that it is gone before it is.
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
    """`on_answer` gets every answer, with the broker and the command that it is for."""

    def __init__(
        self,
        context: ControllerContext,
        channel: BrokerChannel,
        on_answer: Callable[[int, Command, CommandResult], None],
    ):
        self._context = context
        self._channel = channel
        self._on_answer = on_answer
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._metadata_to: set[int] = set()
        self._full_to: set[int] = set()
        self._closed = False

    def close(self) -> None:
        """Nothing is sent any more."""
        self._closed = True

    def leader_and_isr(self, broker_ids: Iterable[int], tp: TopicPartition, *, is_new: bool = False) -> None:
        """Tells brokers the leader and ISR that the partition has when the batch is sent, and every broker of it."""
        for broker_id in broker_ids:
            wanted = self._leader_and_isr.setdefault(broker_id, {})
            wanted[tp] = wanted.get(tp, False) or is_new
        self.metadata([tp])

    def stop_replica(self, broker_id: int, tp: TopicPartition, *, delete: bool) -> None:
        wanted = self._stop_replica.setdefault(broker_id, {})
        wanted[tp] = wanted.get(tp, False) or delete

    def metadata(self, tps: Iterable[TopicPartition] = ()) -> None:
        """Tells every broker who is alive, and how these partitions are."""
        self._metadata.update(dict.fromkeys(tps))
        self._metadata_to.update(self._context.brokers)

    def full_metadata(self, broker_ids: Iterable[int]) -> None:
        """Tells brokers everything, for those that know nothing yet."""
        self._full_to.update(broker_ids)

    def send(self) -> None:
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
        changed = [self._describe(tp) for tp in metadata if context.has_partition(tp)]
        everything = [self._describe(tp) for tp in context.partitions()] if full_to else []
        for broker_id in sorted((metadata_to | full_to) & context.brokers.keys()):
            is_full = broker_id in full_to
            self._send_metadata(broker_id, everything if is_full else changed, is_full)
        for broker_id in sorted(stop_replica.keys() & context.brokers.keys()):
            self._send_stop_replica(broker_id, stop_replica[broker_id])

    def _describe(self, tp: TopicPartition) -> PartitionState:
        return self._context.describe(tp, deleting=self._context.is_to_delete(tp))

    def _send_leader_and_isr(self, broker_id: int, wanted: dict[TopicPartition, bool]) -> None:
        context = self._context
        states = [
            context.describe(tp, is_new=is_new)
            for tp, is_new in wanted.items()
            if tp in context.leaderships and context.has_partition(tp)
        ]
        if states:
            epoch = context.brokers[broker_id].epoch
            self._send(broker_id, LeaderAndIsr(context.controller_id, context.epoch, epoch, states))

    def _send_metadata(self, broker_id: int, states: list[PartitionState], is_full: bool) -> None:
        context = self._context
        brokers = [context.brokers[one] for one in sorted(context.brokers)]
        epoch = context.brokers[broker_id].epoch
        self._send(
            broker_id, UpdateMetadata(context.controller_id, context.epoch, epoch, brokers, states, full=is_full)
        )

    def _send_stop_replica(self, broker_id: int, wanted: dict[TopicPartition, bool]) -> None:
        context = self._context
        partitions = []
        for tp, delete in wanted.items():
            state = context.leaderships.get(tp)
            deleted = context.is_to_delete(tp)
            leader_epoch = EPOCH_DURING_DELETE if deleted or state is None else state.leader_epoch
            partitions.append(ReplicaToStop(tp, leader_epoch, delete))
        epoch = context.brokers[broker_id].epoch
        self._send(broker_id, StopReplica(context.controller_id, context.epoch, epoch, partitions))

    def _send(self, broker_id: int, command: Command) -> None:
        self._channel.send(broker_id, command, lambda result: self._on_answer(broker_id, command, result))
