import pytest

from headrace.common.assignment import alternate_racks, assign_replicas
from headrace.common.errors import InvalidPartitionsError, InvalidReplicationFactorError
from headrace.common.ids import make_random


def brokers(count: int, racks: str = "") -> dict[int, str | None]:
    return {one: racks[one] if racks else None for one in range(count)}


def test_matches_example_in_kafka_documentation() -> None:
    assigned = assign_replicas(brokers(5), 10, 3, make_random(1), start_index=0)
    assert assigned == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_alternates_racks() -> None:
    assert alternate_racks({0: "1", 1: "3", 2: "3", 3: "2", 4: "2", 5: "1"}) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({0: "a", 1: "a", 2: "a", 3: "b"}) == [0, 3, 1, 2]


def test_matches_rack_example_in_kafka_documentation() -> None:
    assigned = assign_replicas(brokers(6, "133221"), 7, 3, make_random(1), start_index=0)
    assert assigned == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_added_partitions_continue_round_robin() -> None:
    whole = assign_replicas(brokers(3), 9, 2, make_random(1), start_index=1)
    first = assign_replicas(brokers(3), 3, 2, make_random(1), start_index=1)
    assert all(whole[index] == first[index] for index in first)
    more = assign_replicas(brokers(3), 2, 2, make_random(1), first_partition=3, start_index=1)
    assert sorted(more) == [3, 4]


def test_ignores_racks_unless_all_brokers_have_one() -> None:
    assert assign_replicas({0: "a", 1: "a", 2: None}, 1, 2, make_random(1), start_index=0) == {0: (0, 1)}


def test_single_broker() -> None:
    assert assign_replicas(brokers(1), 3, 1, make_random(1)) == {0: (0,), 1: (0,), 2: (0,)}


def test_rejects_invalid_counts() -> None:
    with pytest.raises(InvalidPartitionsError):
        assign_replicas(brokers(1), 0, 1, make_random(1))
    with pytest.raises(InvalidReplicationFactorError):
        assign_replicas(brokers(1), 1, 0, make_random(1))
    with pytest.raises(InvalidReplicationFactorError):
        assign_replicas(brokers(1), 1, 2, make_random(1))
    with pytest.raises(InvalidReplicationFactorError, match=r"only 0 broker\(s\) are registered"):
        assign_replicas({}, 1, 1, make_random(1))
