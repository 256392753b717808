"""The attacks of the benchmark, in the order of its table."""

from bench.hostile.attack import Attack
from bench.hostile.long_lists import FetchPartitions
from bench.hostile.topic_creation import UnknownTopics

ATTACKS: list[Attack] = [
    FetchPartitions(1_000_000),
    FetchPartitions(100_000),
    UnknownTopics(),
]
