"""Truth tables of the four election strategies."""

import itertools

import pytest

from headrace.cluster.commands import RECOVERED, RECOVERING
from headrace.cluster.leader_election import (
    elect_for_offline,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_preferred,
)
from headrace.cluster.znodes import Leadership, ReplicaAssignment

ASSIGNMENT = ReplicaAssignment((1, 2, 3))


def state(leader: int, *isr: int) -> Leadership:
    return Leadership(leader, 4, isr, 9, 7)


@pytest.mark.parametrize(
    ("isr", "online", "unclean", "leader", "new_isr"),
    [
        ((1, 2, 3), {2, 3}, False, 2, (2, 3)),
        ((3, 1, 2), {2, 3}, False, 2, (3, 2)),
        ((1, 3), {2, 3}, False, 3, (3,)),
        ((1, 3), {2, 3}, True, 3, (3,)),
        ((1,), {2, 3}, False, None, None),
        ((1,), {2, 3}, True, 2, (2,)),
        ((1,), {3}, True, 3, (3,)),
        ((1, 2, 3), set(), False, None, None),
        ((1, 2, 3), set(), True, None, None),
        ((1, 2, 3), {1, 2, 3}, False, 1, (1, 2, 3)),
        # A broker without a replica is never elected.
        ((1,), {9}, True, None, None),
    ],
)
def test_offline_partition_election(
    isr: tuple[int, ...], online: set[int], unclean: bool, leader: int | None, new_isr: tuple[int, ...] | None
) -> None:
    chosen = elect_for_offline(state(1, *isr), ASSIGNMENT, online, unclean=unclean)
    if leader is None:
        assert chosen is None
    else:
        assert chosen == Leadership(leader, 5, new_isr or (), 9, 7, RECOVERED if leader in isr else RECOVERING)


@pytest.mark.parametrize(
    ("isr", "online", "leader"),
    [
        ((1, 2, 3, 4), {1, 2, 3, 4}, 3),
        ((1, 2, 4), {1, 2, 3, 4}, 4),
        ((1, 2, 3, 4), {1, 2, 4}, 4),
        ((1, 2), {1, 2, 3, 4}, None),
        ((1, 2, 3), {1, 2}, None),
    ],
)
def test_reassignment_election(isr: tuple[int, ...], online: set[int], leader: int | None) -> None:
    assignment = ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    chosen = elect_for_reassignment(state(1, *isr), assignment, online)
    assert chosen == (None if leader is None else Leadership(leader, 5, isr, 9, 7))


@pytest.mark.parametrize(
    ("isr", "online", "leader"),
    [
        ((1, 2, 3), {1, 2, 3}, 1),
        ((3, 2, 1), {1}, 1),
        ((2, 3), {1, 2, 3}, None),
        ((1, 2, 3), {2, 3}, None),
    ],
)
def test_preferred_replica_election(isr: tuple[int, ...], online: set[int], leader: int | None) -> None:
    chosen = elect_preferred(state(2, *isr), ASSIGNMENT, online)
    assert chosen == (None if leader is None else Leadership(leader, 5, isr, 9, 7))
    assert elect_preferred(state(2, *isr), ReplicaAssignment(()), online) is None


@pytest.mark.parametrize(
    ("isr", "online", "shutting_down", "leader", "new_isr"),
    [
        ((1, 2, 3), {1, 2, 3}, {1}, 2, (2, 3)),
        ((1, 2, 3), {1, 2, 3}, {1, 2}, 3, (3,)),
        ((1, 2, 3), {1, 3}, {1}, 3, (2, 3)),
        ((1,), {1, 2, 3}, {1}, None, None),
        ((1, 2), {1, 3}, {1}, None, None),
        ((1, 2, 3), {1, 2, 3}, {1, 2, 3}, None, None),
    ],
)
def test_controlled_shutdown_election(
    isr: tuple[int, ...],
    online: set[int],
    shutting_down: set[int],
    leader: int | None,
    new_isr: tuple[int, ...] | None,
) -> None:
    chosen = elect_for_shutdown(state(1, *isr), ASSIGNMENT, online, shutting_down)
    assert chosen == (None if leader is None else Leadership(leader, 5, new_isr or (), 9, 7))


def test_all_combinations_of_three_replicas() -> None:
    subsets = [set(one) for size in range(4) for one in itertools.combinations((1, 2, 3), size)]
    for isr, online, down in itertools.product(subsets, subsets, subsets):
        before = state(1, *sorted(isr))
        clean = elect_for_offline(before, ASSIGNMENT, online, unclean=False)
        unclean = elect_for_offline(before, ASSIGNMENT, online, unclean=True)
        assert (clean is not None) == bool(isr & online)
        assert (unclean is not None) == bool(online)
        for chosen in (
            clean,
            unclean,
            elect_preferred(before, ASSIGNMENT, online),
            elect_for_shutdown(before, ASSIGNMENT, online, down),
            elect_for_reassignment(before, ASSIGNMENT, online),
        ):
            if chosen is not None:
                assert chosen.leader in online
                assert chosen.leader in chosen.isr
                assert chosen.leader_epoch == before.leader_epoch + 1
                assert set(chosen.isr) <= isr or chosen is unclean
