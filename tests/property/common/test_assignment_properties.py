from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.common.assignment import assign_replicas
from headrace.common.ids import make_random

SIZES = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.lists(st.integers(0, 1000), min_size=count, max_size=count, unique=True),
        st.integers(1, count),
        st.integers(1, 40),
        st.integers(0, 2**32),
    )
)


@settings(deadline=None)
@given(SIZES)
def test_replicas_are_distributed_evenly(sizes: tuple[list[int], int, int, int]) -> None:
    ids, factor, partitions, seed = sizes
    assigned = assign_replicas(dict.fromkeys(ids), partitions, factor, make_random(seed))
    assert sorted(assigned) == list(range(partitions))
    assert all(len(set(replicas)) == factor and set(replicas) <= set(ids) for replicas in assigned.values())
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[one] for one in ids) <= 1
    load = Counter(replica for replicas in assigned.values() for replica in replicas)
    # Complete rounds are even; an incomplete round adds at most one per replica.
    assert max(load.values()) - min(load[one] for one in ids) <= factor
    again = assign_replicas(dict.fromkeys(reversed(ids)), partitions, factor, make_random(seed))
    assert again == assigned


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.data())
def test_replicas_are_distributed_across_racks(racks: list[str], data: st.DataObject) -> None:
    brokers = dict(enumerate(racks))
    factor = data.draw(st.integers(1, len(brokers)))
    partitions = data.draw(st.integers(1, 30))
    assigned = assign_replicas(brokers, partitions, factor, make_random(data.draw(st.integers(0, 2**32))))
    for replicas in assigned.values():
        assert len(set(replicas)) == factor
        used = Counter(racks[one] for one in replicas)
        assert len(used) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[one] for one in brokers) <= 1


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 20), st.integers(1, 20), st.data())
def test_added_partitions_continue_round_robin(count: int, first: int, added: int, data: st.DataObject) -> None:
    brokers = dict.fromkeys(range(count))
    factor = data.draw(st.integers(1, count))
    start = data.draw(st.integers(0, count - 1))
    more = assign_replicas(brokers, added, factor, make_random(1), first_partition=first, start_index=start)
    assert sorted(more) == list(range(first, first + added))
    leaders = [more[index][0] for index in sorted(more)]
    assert all((second - former) % count == 1 % count for former, second in pairwise(leaders))
