"""Random groups for tests of assignors: topics, members, and their previous partitions."""

import random
from collections.abc import Iterator
from dataclasses import replace

from headrace.client.group.assignors import Topics
from headrace.client.group.assignors.sticky import StickyTopic, StickyUserData
from headrace.client.group.consumer_protocol import Subscription, group_by_topic
from headrace.common.types import TopicPartition
from headrace.protocol import encode

RACKS = ("a", "b", "c")


def sticky_data(tps: list[TopicPartition], generation: int) -> bytes:
    previous = [StickyTopic(topic=topic, partitions=numbers) for topic, numbers in group_by_topic(tps).items()]
    return encode(StickyUserData(previous_assignment=previous, generation=generation), 1)


def with_owned(
    members: dict[str, Subscription], owned: dict[str, list[TopicPartition]], generation: int
) -> dict[str, Subscription]:
    """Returns the members as they rejoin with their assignment, in the form of either sticky assignor."""
    return {
        member: replace(
            each,
            owned=tuple(owned.get(member, ())),
            generation=generation if member in owned else -1,
            user_data=sticky_data(list(owned[member]), generation) if member in owned else None,
        )
        for member, each in members.items()
    }


def random_topics(chance: random.Random, racks: bool = False) -> Topics:
    counts = {f"topic-{chance.randrange(1000)}": chance.randint(1, 9) for _ in range(chance.randint(1, 5))}
    return Topics(counts, random_racks(chance, counts) if racks else {})


def subscribed_topics(topics: Topics, members: dict[str, Subscription]) -> Topics:
    """Returns the arguments of an assignor: the subscribed topics and the members."""
    names = {topic for each in members.values() for topic in each.topics}
    return Topics({topic: count for topic, count in topics.counts.items() if topic in names}, topics.racks)


def random_racks(chance: random.Random, counts: dict[str, int]) -> dict[TopicPartition, frozenset[str]]:
    return {
        TopicPartition(topic, number): frozenset(chance.sample(RACKS, chance.randint(1, 3)))
        for topic, count in counts.items()
        for number in range(count)
    }


def random_members(chance: random.Random, topics: Topics, equal: bool, racks: bool = False) -> dict[str, Subscription]:
    names = sorted(topics.counts)
    members = {}
    for number in range(chance.randint(1, 8)):
        subscribed_topics = names if equal else chance.sample(names, chance.randint(1, len(names)))
        members[f"consumer-{chance.randrange(10_000)}-{number}"] = Subscription(
            tuple(subscribed_topics),
            rack=chance.choice(RACKS) if racks and chance.random() < 0.8 else None,
            group_instance_id=f"instance-{chance.randrange(10**6)}-{number}" if chance.random() < 0.2 else None,
        )
    return members


def changes(
    chance: random.Random, topics: Topics, members: dict[str, Subscription], equal: bool, racks: bool = False
) -> Iterator[tuple[Topics, dict[str, Subscription]]]:
    """A group that changes: members join and leave, topics get more partitions or are deleted."""
    while True:
        names = sorted(members)
        what = chance.choice(("join", "join", "leave", "leave", "grow", "delete", "subscribe"))
        if what == "leave" and len(members) > 1:
            gone = chance.sample(names, chance.randint(1, len(names) - 1))
            members = {member: each for member, each in members.items() if member not in gone}
        elif what == "grow":
            counts = {topic: count + chance.randint(0, 3) for topic, count in topics.counts.items()}
            topics = Topics(counts, random_racks(chance, counts) if racks else {})
        elif what == "delete" and len(topics.counts) > 1:
            counts = dict(topics.counts)
            del counts[chance.choice(sorted(counts))]
            topics = Topics(counts, topics.racks)
        elif what == "subscribe" and not equal:
            member = chance.choice(names)
            subscribed_topics = chance.sample(sorted(topics.counts), chance.randint(1, len(topics.counts)))
            members = {**members, member: replace(members[member], topics=tuple(subscribed_topics))}
        else:
            new = random_members(chance, topics, equal, racks)
            some = next(iter(members.values())).topics
            members = {**members, **{k: replace(each, topics=some) if equal else each for k, each in new.items()}}
        yield topics, members
