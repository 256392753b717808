"""The store as the controller writes to it: every change is tied to the controller's epoch, so that one that was
replaced, and does not know it yet, changes nothing."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from headrace.cluster import znodes
from headrace.cluster.store import (
    BadVersion,
    Check,
    CoordinationStore,
    Create,
    NoNode,
    Operation,
    OperationResult,
    Set,
    Stat,
    StoreError,
)
from headrace.cluster.znodes import Leadership
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

BATCH_OPERATIONS = 1000
"""How many operations go into one step: ZooKeeper takes a megabyte at most."""


class ControllerMoved(HeadraceError):
    """Another broker has become controller."""


class FencedStore:
    def __init__(self, store: CoordinationStore, epoch: int, epoch_version: int):
        self._store = store
        self.epoch = epoch
        self._fence = Check(znodes.CONTROLLER_EPOCH, epoch_version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All operations, or none; raises ControllerMoved if another controller was elected. The `index` of another
        error is that in `operations`."""
        try:
            return (await self._store.multi([self._fence, *operations]))[1:]
        except StoreError as error:
            if isinstance(error, BadVersion) and error.path == znodes.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the controller of epoch {self.epoch} was replaced") from None
            error.index -= 1
            raise

    async def read_leadership(self, tp: TopicPartition) -> Leadership | None:
        try:
            data, stat = await self._store.get(znodes.state_path(tp))
        except NoNode:
            return None
        return znodes.decode_leadership(tp, data, stat.version)

    async def create_leaderships(self, states: Mapping[TopicPartition, Leadership]) -> None:
        """Writes the first leader and ISR of partitions, as many as possible in one step."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for tp in states:
            by_topic.setdefault(tp.topic, []).append(tp)
        operations: list[Operation] = []
        for topic, tps in by_topic.items():
            there: set[str] = set()
            try:
                there.update(await self._store.children(znodes.partitions_path(topic)))
            except NoNode:
                operations.append(Create(znodes.partitions_path(topic)))
            for tp in tps:
                if str(tp.partition) not in there:
                    operations.append(Create(znodes.partition_path(tp)))
                operations.append(Create(znodes.state_path(tp), znodes.encode_leadership(states[tp])))
        for batch in _batches(operations):
            await self.multi(batch)

    async def update_leaderships(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        """Compare-and-set of leaders and ISRs; `partition_epoch` says what each was when it was read. Returns the new
        ones, with their new partition epochs; who is missing was changed by another, or is gone."""
        done: dict[TopicPartition, Leadership] = {}
        waiting = dict(states)
        while waiting:
            tps = list(islice(waiting, BATCH_OPERATIONS))
            operations = [
                Set(znodes.state_path(tp), znodes.encode_leadership(states[tp]), states[tp].partition_epoch)
                for tp in tps
            ]
            try:
                results = await self.multi(operations)
            except (BadVersion, NoNode) as error:
                _logger.info("the state of %s was changed by another", tps[error.index])
                del waiting[tps[error.index]]
                continue
            for tp, stat in zip(tps, results, strict=True):
                assert isinstance(stat, Stat)
                state = waiting.pop(tp)
                done[tp] = Leadership(state.leader, state.leader_epoch, state.isr, state.controller_epoch, stat.version)
        return done


def _batches(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    remaining = iter(operations)
    while batch := list(islice(remaining, BATCH_OPERATIONS)):
        yield batch
