"""Transactions over three brokers: the leader that does an append fails at that append, for each append of two
transactions, in each of three ways. A surviving client retries and completes its transactions exactly once.

The leaders are those of the coordinator's log, of the group's log and of two partitions. See `transaction_cluster`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from tests.support.coordinator.transaction_cluster import (
    ADDS_ITSELF,
    OFFSETS,
    TARGETS,
    Cluster,
    Died,
    Failure,
)

from headrace.broker.transaction_verification import Operation
from headrace.common.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from headrace.coordinator.result import ProducerInfo
from headrace.net.errors import KafkaConnectionError

RETRIABLE = (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
KINDS = list(Failure)
ALL_FAILURES = "HEADRACE_MODEL_EXAMPLES" in os.environ
"""Each kind of failure at each append, as in `make soak`."""
VERIFIES = 11
LATE_MS = 6_000
"""Longer than a deposed leader waits for its replicas."""
COMMITTED = [[b"first", b"second"], [b"first", b"second"], 9]
ABORTED = [[b"first"], [b"first"], 5]


class Client:
    """Runs two transactions. Retries each request until it gets a response."""

    def __init__(self, cluster: Cluster, version: int) -> None:
        self.cluster = cluster
        self.version = version
        self.producer = ProducerInfo(-1, -1)
        self._produce = ADDS_ITSELF if version else VERIFIES
        self._operation = Operation.ADD if version else Operation.VERIFY_ABORTABLE

    async def run(self, commit: bool) -> None:
        await self._ask(self._init)
        await self._transaction(b"first", 5, True)
        await self._transaction(b"second", 9, commit)

    async def _init(self) -> None:
        self.producer = await self.cluster.init()

    async def _transaction(self, value: bytes, offset: int, commit: bool) -> None:
        cluster, producer, version = self.cluster, self.producer, self.version
        sequence = 1 if value == b"second" and not version else 0
        if not version:
            await self._ask(lambda: cluster.add(producer, *TARGETS))
        for tp in TARGETS:
            await self._ask(lambda tp=tp: cluster.write(producer, tp, sequence, value, self._produce))
        if not version:
            await self._ask(lambda: cluster.add(producer, OFFSETS))
        await self._ask(lambda: cluster.commit_offset(producer, offset, self._operation))
        await self._ask(lambda: self._end(commit))

    async def _end(self, commit: bool) -> None:
        self.producer = await self.cluster.end(self.producer, commit, self.version)

    async def _ask(self, step: Callable[[], Awaitable[object]]) -> None:
        for _ in range(100):
            try:
                await step()
            except RETRIABLE:
                await self.cluster.pass_time(100)
            except Died:
                await self.cluster.settle()
            else:
                return
        raise AssertionError("a request never succeeds")


def run(version: int, commit: bool, *failures: tuple[int, Failure], wake_late: bool = False) -> Cluster:
    async def main() -> Cluster:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # Died, in callbacks
        cluster = Cluster(*failures)
        await cluster.settle()
        await Client(cluster, version).run(commit)
        if wake_late and cluster.zombies:
            await cluster.pass_time(LATE_MS)
        cluster.wake_zombies()
        for _ in range(10):
            await cluster.pass_time(1_000)
            if str(cluster.state).startswith("Complete"):
                break
        return cluster

    return asyncio.run(main())


def check(cluster: Cluster, commit: bool, context: object) -> None:
    outcome = [*(cluster.committed_values(tp) for tp in TARGETS), cluster.committed_offset()]
    assert outcome == (COMMITTED if commit else ABORTED), context
    assert cluster.state == ("CompleteCommit" if commit else "CompleteAbort"), context


@pytest.mark.parametrize(("version", "commit"), [(0, True), (2, True), (2, False)])
def test_fail_over_at_every_append(version: int, commit: bool) -> None:
    undisturbed = run(version, commit)
    check(undisturbed, commit, "undisturbed")
    for number in range(1, undisturbed.appends + 1):
        for failure in Failure if ALL_FAILURES else [KINDS[(number + commit) % 3]]:
            cluster = run(version, commit, (number, failure), wake_late=number % 2 == 0)
            check(cluster, commit, (number, failure))
            assert not cluster.failures


@pytest.mark.parametrize("version", [0, 2])
def test_two_fail_overs(version: int) -> None:
    for first in range(3, 24, 2 if ALL_FAILURES else 9):
        for second in (1, 2, 3, 5):
            failures = (first, KINDS[first % 3]), (second, KINDS[second % 3])
            check(run(version, True, *failures), True, failures)
