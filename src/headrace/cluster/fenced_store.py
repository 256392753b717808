"""The controller's write access to the coordination store.

Every write also checks the controller epoch, which fences a zombie controller: one that was replaced without noticing
it. After a resignation nothing is written any more, even if there is no other controller yet.

If the response to a write is lost, the nodes tell whether it was executed: a compare-and-set is recognized by its data
and the next version. A write that was not executed is sent again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from headrace.cluster import znodes
from headrace.cluster.bulk_reads import read_many
from headrace.cluster.store import (
    BadVersion,
    Check,
    ConnectionLoss,
    CoordinationStore,
    Create,
    Delete,
    NoNode,
    Operation,
    OperationResult,
    Set,
    Stat,
    StoreError,
)
from headrace.cluster.znodes import DamagedNode, Leadership
from headrace.common.errors import HeadraceError
from headrace.common.types import TopicPartition

_logger = logging.getLogger(__name__)

_ATTEMPTS = 3
"""How often a write is sent if the connection to the store is lost."""
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
        self._closed = False

    def close(self) -> None:
        """Makes all further writes fail with ControllerMoved."""
        self._closed = True

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Executes all operations or none. Raises ControllerMoved if another controller was elected. The `index` of any
        other error refers to `operations`."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._multi(operations)
            except ConnectionLoss as error:
                _logger.warning("Controller epoch %d: the response to a write was lost: %s", self.epoch, error)
                results = await self._find_results(operations)
                if results is not None:
                    return results
        return await self._multi(operations)

    async def _multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        if self._closed:
            raise ControllerMoved(f"the controller with epoch {self.epoch} has resigned")
        try:
            return (await self._store.multi([self._fence, *operations]))[1:]
        except StoreError as error:
            if isinstance(error, BadVersion) and error.path == znodes.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the controller with epoch {self.epoch} was replaced by a newer one") from None
            error.index -= 1
            raise

    async def _find_results(self, operations: Sequence[Operation]) -> list[OperationResult] | None:
        """Returns the results of a write whose response was lost; None if it was not executed.

        All operations are executed or none, so a write that was not executed contradicts at least one node.
        """

        async def read(operation: Operation) -> tuple[bytes, Stat] | None:
            try:
                return await self._store.get(operation.path)
            except NoNode:
                return None

        results: list[OperationResult] = []
        nodes = await read_many(range(len(operations)), lambda index: read(operations[index]))
        for index, operation in enumerate(operations):
            node = nodes[index]
            match operation:
                case Create() if node is not None and node[0] == operation.data:
                    results.append(operation.path)
                case Set() if node is not None and (node[0], node[1].version - 1) == (
                    operation.data,
                    operation.version,
                ):
                    results.append(node[1])
                case Delete() if node is None:
                    results.append(None)
                case Check():
                    results.append(None)
                case _:
                    return None
        return results

    async def delete_existing(self, paths: Iterable[str]) -> None:
        """Deletes nodes, in as few steps as possible. Somebody else may have deleted some of them."""
        pending = list(paths)
        while pending:
            batch = pending[:BATCH_OPERATIONS]
            try:
                await self.multi([Delete(path) for path in batch])
            except NoNode as error:
                del pending[error.index]
            else:
                del pending[: len(batch)]

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
        existing_partitions = await read_many(by_topic, self._read_partitions)
        for topic, tps in by_topic.items():
            existing = existing_partitions[topic]
            if existing is None:
                operations.append(Create(znodes.partitions_path(topic)))
            for tp in tps:
                if existing is None or str(tp.partition) not in existing:
                    operations.append(Create(znodes.partition_path(tp)))
                operations.append(Create(znodes.state_path(tp), znodes.encode_leadership(states[tp])))
        for batch in _batches(operations):
            await self.multi(batch)

    async def _read_partitions(self, topic: str) -> set[str] | None:
        try:
            return set(await self._store.children(znodes.partitions_path(topic)))
        except NoNode:
            return None

    async def read_leaderships(
        self, tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Leadership | DamagedNode | None]:
        """Reads leaders and ISRs. The result has None for a missing node, and the error for an unreadable one."""

        async def read(tp: TopicPartition) -> Leadership | DamagedNode | None:
            try:
                return await self.read_leadership(tp)
            except DamagedNode as error:
                return error

        return await read_many(tps, read)

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
                written[tp] = replace(state, partition_epoch=stat.version)
        return written


def _batches(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    remaining = iter(operations)
    while batch := list(islice(remaining, BATCH_OPERATIONS)):
        yield batch
