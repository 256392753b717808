"""The assignors of kafka-python and aiokafka compared with Headrace's: range and round robin return the same
assignments; the sticky assignors understand the user data of Headrace's members, and are not better.
"""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.client.other_assignors import Given, as_aiokafka, as_kafka_python
from tests.support.coordinator.group_cases import changes, random_members, random_topics, subscribed_topics, with_owned

from headrace.client.group.assignors import Topics, make_assignors
from headrace.client.group.consumer_protocol import Subscription
from headrace.common.types import TopicPartition

seeds = st.integers(0, 2**32)
few = settings(max_examples=40, deadline=None)


def assign(name: str, topics: Topics, members: dict[str, Subscription]) -> Given:
    return make_assignors(name)[0].assign(topics, members)


def sets(made: Given) -> dict[str, set[TopicPartition]]:
    return {member: set(tps) for member, tps in made.items()}


def dynamic(members: dict[str, Subscription]) -> dict[str, Subscription]:
    """Neither project sorts static members as Kafka does."""
    return {member: Subscription(each.topics) for member, each in members.items()}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@few
@given(seed=seeds)
def test_same_assignment_as_python_clients(name: str, equal: bool, seed: int) -> None:
    chance = random.Random(seed)
    topics = random_topics(chance)
    members = dynamic(random_members(chance, topics, equal))
    topics = subscribed_topics(topics, members)
    ours = sets(assign(name, topics, members))
    assert ours == sets(as_aiokafka(name, topics, members))
    if equal or name == "range":  # kafka-python 3.0 fails when it skips a member
        assert ours == sets(as_kafka_python(name, topics, members))


def moves(before: Given, after: Given) -> int:
    owner = {tp: member for member, tps in before.items() for tp in tps}
    return sum(tp in owner and owner[tp] != member for member, tps in after.items() for tp in tps)


@few
@given(seed=seeds)
def test_sticky_is_as_balanced(seed: int) -> None:
    """With equal subscriptions: the same partition counts, and no additional moves."""
    chance = random.Random(seed)
    topics = random_topics(chance)
    members = dynamic(random_members(chance, topics, equal=True))
    first = assign("sticky", topics, members)
    topics, members = next(changes(chance, topics, members, equal=True))
    topics, members = subscribed_topics(topics, members), dynamic(members)
    joined = with_owned(members, {m: list(tps) for m, tps in first.items() if m in members}, 1)
    ours = assign("sticky", topics, joined)
    for theirs in (as_aiokafka("sticky", topics, joined), as_kafka_python("sticky", topics, joined)):
        assert Counter(map(len, ours.values())) == Counter(map(len, theirs.values()))
        assert moves(first, ours) <= moves(first, theirs)


@few
@given(seed=seeds)
def test_cooperative_converges(seed: int) -> None:
    """Rejoining members keep as many partitions as with kafka-python."""
    chance = random.Random(seed)
    topics = random_topics(chance)
    members = dynamic(random_members(chance, topics, equal=True))
    first = {m: list(tps) for m, tps in assign("cooperative-sticky", topics, members).items()}
    new = {f"new-{number}": Subscription(tuple(sorted(topics.counts))) for number in range(chance.randint(1, 3))}
    joined = with_owned({**members, **new}, first, 1)
    ours = assign("cooperative-sticky", topics, joined)
    theirs = as_kafka_python("cooperative-sticky", topics, joined)
    assert sum(map(len, ours.values())) == sum(map(len, theirs.values()))
