"""Every assignment is complete, balanced, sticky and safe."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.coordinator.group_cases import changes, random_members, random_topics, subscribed_topics, with_owned

from headrace.client.group.assignors import Topics, make_assignors
from headrace.client.group.consumer_protocol import Subscription
from headrace.common.types import TopicPartition

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")
Given = Mapping[str, Sequence[TopicPartition]]

seeds = st.integers(0, 2**32)
few = settings(max_examples=60, deadline=None)


def assign(name: str, topics: Topics, members: dict[str, Subscription]) -> Given:
    return make_assignors(name)[0].assign(subscribed_topics(topics, members), members)


def a_life(seed: int, equal: bool, racks: bool = False) -> Iterator[tuple[Topics, dict[str, Subscription]]]:
    """A group at its start, and after each of a few changes."""
    chance = random.Random(seed)
    topics = random_topics(chance, racks)
    members = random_members(chance, topics, equal, racks)
    yield topics, members
    yield from islice(changes(chance, topics, members, equal, racks), 4)


def check_complete(topics: Topics, members: dict[str, Subscription], made: Given) -> None:
    """Every subscribed partition is assigned once, to a subscriber."""
    for member, tps in made.items():
        assert {tp.topic for tp in tps} <= set(members[member].topics)
    expected = subscribed_topics(topics, members).all_partitions()
    assert sorted(tp for tps in made.values() for tp in tps) == expected


def check_balanced(topics: Topics, members: dict[str, Subscription], made: Given) -> None:
    """No member could get a partition from a member that has two more."""
    owner = {tp: member for member, tps in made.items() for tp in tps}
    for member, each in members.items():
        for topic in each.topics:
            for tp in topics.partitions(topic) if topic in topics.counts else ():
                assert len(made[owner[tp]]) <= len(made[member]) + 1


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@pytest.mark.parametrize("racks", [False, True], ids=["no-racks", "racks"])
@pytest.mark.parametrize("name", NAMES)
@few
@given(seed=seeds)
def test_assignment_is_complete_and_balanced(name: str, racks: bool, equal: bool, seed: int) -> None:
    chance = random.Random(seed)
    topics = random_topics(chance, racks)
    members = random_members(chance, topics, equal, racks)
    made = assign(name, topics, members)
    check_complete(topics, members, made)
    if name.endswith("sticky") or (equal and name == "roundrobin"):
        check_balanced(subscribed_topics(topics, members), members, made)
    if name == "range":
        for topic in subscribed_topics(topics, members).counts:
            shares = [
                sum(tp.topic == topic for tp in made[member]) for member in members if topic in members[member].topics
            ]
            assert max(shares) - min(shares) <= 1


@few
@given(seed=seeds)
def test_range_co_partitions_equal_topics(seed: int) -> None:
    chance = random.Random(seed)
    topics = Topics(dict.fromkeys(("a", "b", "c"), chance.randint(1, 9)))
    made = assign("range", topics, random_members(chance, topics, equal=True))
    for tps in made.values():
        by_topic = [{tp.partition for tp in tps if tp.topic == topic} for topic in topics.counts]
        assert by_topic[0] == by_topic[1] == by_topic[2]


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@few
@given(seed=seeds)
def test_sticky_after_changes(equal: bool, seed: int) -> None:
    """Balanced after each change; without a change nothing moves; with equal subscriptions there are no needless
    moves."""
    owned: dict[str, list[TopicPartition]] = {}
    for generation, (topics, members) in enumerate(a_life(seed, equal), 1):
        before = {member: tps for member, tps in owned.items() if member in members}
        made = assign("sticky", topics, with_owned(members, before, generation - 1))
        check_complete(topics, members, made)
        check_balanced(subscribed_topics(topics, members), members, made)
        owned = {member: list(tps) for member, tps in made.items()}
        again = assign("sticky", topics, with_owned(members, owned, generation))
        assert {member: set(tps) for member, tps in again.items()} == {m: set(tps) for m, tps in owned.items()}
        if equal:
            for member, tps in before.items():
                still = {tp for tp in tps if tp in subscribed_topics(topics, members)}
                assert len(still & set(made[member])) == min(len(still), len(made[member]))


@pytest.mark.parametrize("racks", [False, True], ids=["no-racks", "racks"])
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@few
@given(seed=seeds)
def test_cooperative_is_safe_and_converges(equal: bool, racks: bool, seed: int) -> None:
    """No member gets a partition that another one owns; after all revocations everything is assigned."""
    owned: dict[str, list[TopicPartition]] = {}
    generation = 0
    for topics, members in a_life(seed, equal, racks):
        owned = {member: tps for member, tps in owned.items() if member in members}
        for _ in range(6):
            generation += 1
            made = assign("cooperative-sticky", topics, with_owned(members, owned, generation - 1))
            for member, tps in made.items():
                for other, had in owned.items():
                    assert other == member or not set(had) & set(tps)
            is_moving = {m: set(tps) for m, tps in made.items()} != {m: set(owned.get(m, ())) for m in members}
            owned = {member: list(tps) for member, tps in made.items()}
            if not is_moving:
                break
        check_complete(topics, members, owned)
