"""The controller's write access to the coordination store. Every write also checks the controller epoch, which fences a
zombie controller: one that was replaced without noticing it."""

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
"""Maximum number of operations in one `multi`: ZooKeeper accepts at most 1 MB."""


class ControllerMoved(HeadraceError):
    """Another broker has become the controller."""


class FencedStore:
    """Writes to the store that fail with ControllerMoved once another controller was elected."""

    def __init__(self, store: CoordinationStore, epoch: int, epoch_version: int):
        self._store = store
        self.epoch = epoch
        self._fence = Check(znodes.CONTROLLER_EPOCH, epoch_version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Executes all operations or none. Raises ControllerMoved if another controller was elected. The `index` of any
        other error refers to `operations`."""
        try:
            return (await self._store.multi([self._fence, *operations]))[1:]
        except StoreError as error:
            if isinstance(error, BadVersion) and error.path == znodes.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the controller with epoch {self.epoch} was replaced by a newer one") from None
            error.index -= 1
            raise

    async def read_leadership(self, tp: TopicPartition) -> Leadership | None:
        try:
            data, stat = await self._store.get(znodes.state_path(tp))
        except NoNode:
            return None
        return znodes.decode_leadership(tp, data, stat.version)

    async def create_leaderships(self, states: Mapping[TopicPartition, Leadership]) -> None:
        """Writes the first leader and ISR of partitions, in as few steps as possible."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for tp in states:
            by_topic.setdefault(tp.topic, []).append(tp)
        operations: list[Operation] = []
        for topic, tps in by_topic.items():
            existing: set[str] = set()
            try:
                existing.update(await self._store.children(znodes.partitions_path(topic)))
            except NoNode:
                operations.append(Create(znodes.partitions_path(topic)))
            for tp in tps:
                if str(tp.partition) not in existing:
                    operations.append(Create(znodes.partition_path(tp)))
                operations.append(Create(znodes.state_path(tp), znodes.encode_leadership(states[tp])))
        for batch in _batches(operations):
            await self.multi(batch)

    async def update_leaderships(self, states: Mapping[TopicPartition, Leadership]) -> dict[TopicPartition, Leadership]:
        """Writes leaders and ISRs by compare-and-set on `partition_epoch`.

        Returns the written states with their new partition epochs. A partition that is missing in the result was
        changed concurrently or deleted.
        """
        written: dict[TopicPartition, Leadership] = {}
        pending = dict(states)
        while pending:
            tps = list(islice(pending, BATCH_OPERATIONS))
            operations = [
                Set(znodes.state_path(tp), znodes.encode_leadership(states[tp]), states[tp].partition_epoch)
                for tp in tps
            ]
            try:
                results = await self.multi(operations)
            except (BadVersion, NoNode) as error:
                _logger.info(
                    "Partition %s: leader and ISR were changed concurrently, update not applied", tps[error.index]
                )
                del pending[tps[error.index]]
                continue
            for tp, stat in zip(tps, results, strict=True):
                assert isinstance(stat, Stat)
                state = pending.pop(tp)
                written[tp] = Leadership(
                    state.leader, state.leader_epoch, state.isr, state.controller_epoch, stat.version
                )
        return written


def _batches(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    remaining = iter(operations)
    while batch := list(islice(remaining, BATCH_OPERATIONS)):
        yield batch
