"""Partitioners."""

from collections import Counter

import pytest

from headrace.client.producer.partitioners import (
    Murmur2Partitioner,
    RoundRobinPartitioner,
    choose,
    partitioner_for,
    weigh,
)
from headrace.common.errors import ConfigError
from headrace.common.ids import make_random


def test_shorter_queues_get_higher_weights() -> None:
    loads = weigh([(0, 0), (1, 3), (2, 1)])
    assert loads is not None
    assert loads.partitions == (0, 1, 2)
    assert loads.cumulative == (4, 5, 8)


@pytest.mark.parametrize("queued", [[], [(0, 5)], [(0, 2), (1, 2), (2, 2)]])
def test_equal_queues_have_no_weights(queued: list[tuple[int, int]]) -> None:
    assert weigh(queued) is None


def test_choice_follows_weights() -> None:
    random = make_random(1)
    loads = weigh([(0, 0), (1, 3), (2, 1)])
    chosen = Counter(choose(random, 3, [0, 1, 2], loads) for _ in range(8000))
    assert chosen[0] > chosen[2] > chosen[1] > 0
    assert abs(chosen[0] - 4000) < 400


def test_chooses_among_partitions_with_leader_without_weights() -> None:
    random = make_random(2)
    assert {choose(random, 4, [1, 3], None) for _ in range(100)} == {1, 3}
    assert {choose(random, 4, [], None) for _ in range(200)} == {0, 1, 2, 3}


def test_round_robin_skips_partitions_without_leader() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner(b"k", [0, 1, 2], [0, 2]) for _ in range(4)] == [0, 2, 0, 2]
    assert partitioner(None, [0, 1, 2], []) in (0, 1, 2)


def test_murmur2_equals_java() -> None:
    partitioner = Murmur2Partitioner()
    # From Kafka's own tests of Utils.murmur2: the hashes of "21", "foobar" and "a-little-bit-long-string".
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, value in hashes.items():
        assert partitioner(key, list(range(100)), []) == (value & 0x7FFFFFFF) % 100
    assert {partitioner(None, [0, 1], [0, 1]) for _ in range(4)} == {0, 1}


def test_partitioner_config_values() -> None:
    assert partitioner_for(None) is partitioner_for("murmur2") is partitioner_for("sticky") is None
    assert isinstance(partitioner_for("round_robin"), RoundRobinPartitioner)
    own = RoundRobinPartitioner()
    assert partitioner_for(own) is own
    with pytest.raises(ConfigError, match="partitioner='rond_robin'"):
        partitioner_for("rond_robin")
