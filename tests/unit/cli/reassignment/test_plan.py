from collections import Counter

import pytest

from headrace.cli.common.tool import Failure
from headrace.cli.reassignment.plan import Move, moves_of, propose, throttled_replicas
from headrace.client.admin.types import OngoingReassignment
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition


def test_proposes_an_even_distribution() -> None:
    current = {
        **{TopicPartition("a", index): (1, 2) for index in range(6)},
        **{TopicPartition("b", index): (1,) for index in range(3)},
    }
    proposed = propose(current, dict.fromkeys([2, 3, 4]), make_random(1))
    assert list(proposed) == sorted(current)
    assert {len(set(replicas)) for tp, replicas in proposed.items() if tp.topic == "a"} == {2}
    replicas = Counter(broker for replicas in proposed.values() for broker in replicas)
    leaders = Counter(replicas[0] for replicas in proposed.values())
    assert (replicas, leaders) == ({2: 5, 3: 5, 4: 5}, {2: 3, 3: 3, 4: 3})


def test_proposes_replicas_on_different_racks() -> None:
    current = {TopicPartition("a", index): (1, 2) for index in range(8)}
    racks: dict[int, str | None] = {1: "x", 2: "x", 3: "y", 4: "y"}
    proposed = propose(current, racks, make_random(1))
    assert all({racks[broker] for broker in replicas} == {"x", "y"} for replicas in proposed.values())


def test_refuses_what_cannot_be_assigned() -> None:
    current = {TopicPartition("a", 0): (1, 2)}
    with pytest.raises(Failure, match="Not all brokers have rack information: 2, 3 have none"):
        propose(current, {1: "x", 2: None, 3: None}, make_random(1))
    with pytest.raises(Failure, match="Topic a has 2 replicas of each partition, more than the 1 brokers"):
        propose(current, {1: None}, make_random(1))


def test_moves_continue_reassignments_in_progress() -> None:
    a, b, c = (TopicPartition("t", index) for index in range(3))
    ongoing = {a: OngoingReassignment((3, 4, 1, 2), (3, 4), (1, 2)), b: OngoingReassignment((4, 1), (4,), (1,))}
    current = {a: (3, 4, 1, 2), c: (1, 2)}
    moves = moves_of({a: (5, 1), c: (2, 3)}, current, ongoing)
    assert moves == {a: Move((1, 2), (5,), (5, 1)), b: Move((1,), (4,), (4,)), c: Move((1, 2), (3,), (2, 3))}
    assert throttled_replicas(moves) == {"t": ("0:1,0:2,1:1,2:1,2:2", "0:5,1:4,2:3")}


def test_reordered_replicas_are_no_move() -> None:
    tp = TopicPartition("t", 0)
    moves = moves_of({tp: (2, 1)}, {tp: (1, 2)}, {})
    assert moves == {tp: Move((1, 2), (), (2, 1))}
    assert throttled_replicas(moves) == {"t": ("0:1,0:2", "")}
