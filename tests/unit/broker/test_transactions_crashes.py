"""A broker that dies after every single append of a transaction, once and twice: the transaction ends as decided.

The appends are those of the coordinator (producer, partitions, decision, completion), of the producer to two
partitions, of offsets to a group, and the three markers. A surviving client retries and completes its transaction. A
client that dies with the broker leaves all or nothing: the decision, or an abort after the timeout.
"""

from collections.abc import Callable
from itertools import count

import pytest
from tests.support.coordinator.transaction_world import ADDS_ITSELF, OFFSETS, TARGETS, TIMEOUT_MS, Died, World

from headrace.common.errors import ConcurrentTransactionsError
from headrace.coordinator.result import ProducerInfo

VERIFIES = 11
"""A Produce version that only verifies that the partition was added."""
FIRST_TRANSACTION = {0: 11, 2: 12}
"""The number of appends until the first transaction of a client is complete, by its version."""


class Client:
    """Runs two transactions, of which the second is checked. Retries each request until it gets a response."""

    def __init__(self, world: World, version: int, commit: bool) -> None:
        self.world = world
        self.version = version
        self.commit = commit
        self.producer = ProducerInfo(-1, -1)
        self._produce = ADDS_ITSELF if version else VERIFIES

    def run(self, lives: bool) -> None:
        """Returns when all is done, or when the client has died with the broker."""
        try:
            self._ask(self._init, True)
            self._transaction(b"first", 5, True, True)
            self._transaction(b"second", 9, self.commit, lives)
        except Died:
            restart(self.world)

    def _init(self) -> None:
        self.producer = self.world.init()

    def _transaction(self, value: bytes, offset: int, commit: bool, lives: bool) -> None:
        world, producer, version = self.world, self.producer, self.version
        sequence = 1 if value == b"second" and not version else 0
        steps: list[Callable[[], object]] = []
        if not version:
            steps.append(lambda: world.add(producer, *TARGETS))
        for tp in TARGETS:
            steps.append(lambda tp=tp: world.write(producer, tp, sequence, value, self._produce))
        steps.append(lambda: world.add(producer, OFFSETS, version=version))
        steps.append(lambda: world.commit_offset(producer, offset))
        steps.append(lambda: self._end(commit))
        for step in steps:
            self._ask(step, lives)

    def _end(self, commit: bool) -> None:
        self.producer = self.world.end(self.producer, commit, self.version)

    def _ask(self, step: Callable[[], object], lives: bool) -> object:
        for _ in range(20):
            try:
                return step()
            except ConcurrentTransactionsError:
                self.pass_time(100)
            except Died:
                if not lives:
                    raise
                restart(self.world)
        raise AssertionError("the last transaction does not come to its end")

    def pass_time(self, ms: int) -> None:
        try:
            self.world.pass_time(ms)
        except Died:
            restart(self.world)

    def settle(self) -> None:
        """Lets enough time pass to abort an open transaction; the broker may die once more."""
        for _ in range(2):
            self.pass_time(TIMEOUT_MS + 20_000)


def restart(world: World) -> None:
    while True:
        try:
            world.start()
        except Died:
            continue
        return


def outcome(world: World) -> list[object]:
    assert all(world.is_stable(tp) for tp in TARGETS)
    return [*(world.committed_values(tp) for tp in TARGETS), world.committed_offset()]


COMMITTED = [[b"first", b"second"], [b"first", b"second"], 9]
ABORTED = [[b"first"], [b"first"], 5]


def run(version: int, commit: bool, *deaths: int, lives: bool = True, groups_load_last: bool = False) -> World:
    world = World(deaths, groups_load_last)
    client = Client(world, version, commit)
    client.run(lives)
    client.settle()
    return world


def count_appends(version: int, commit: bool) -> int:
    world = run(version, commit)
    assert outcome(world) == (COMMITTED if commit else ABORTED)
    return world.appends


@pytest.mark.parametrize("groups_load_last", [False, True])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_surviving_client_completes_its_transaction(version: int, commit: bool, groups_load_last: bool) -> None:
    for first in range(1, count_appends(version, commit) + 1):
        for second in count() if first > FIRST_TRANSACTION[version] else (0,):  # 0: the broker dies once
            deaths = (first, second) if second else (first,)
            world = run(version, commit, *deaths, groups_load_last=groups_load_last)
            assert outcome(world) == (COMMITTED if commit else ABORTED), deaths
            assert world.state == ("CompleteCommit" if commit else "CompleteAbort"), deaths
            if world.deaths:
                break  # the transaction was complete before


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_dying_client_leaves_all_or_nothing(version: int, commit: bool) -> None:
    decisions = []
    for first in range(FIRST_TRANSACTION[version] + 1, count_appends(version, commit) + 1):
        world = run(version, commit, first, lives=False)
        assert outcome(world) in (COMMITTED, ABORTED), first
        assert world.state in ("CompleteCommit", "CompleteAbort"), first
        decisions.append(outcome(world) == COMMITTED)
    # Nothing is visible until the decision is written, everything after it: three markers and the completion follow.
    assert decisions == [False] * (len(decisions) - 5) + [commit] * 5
