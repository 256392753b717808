"""The assignors return the same assignments as Kafka's assignors, for the same groups."""

import base64
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.support.apache_kafka.broker import run_java
from tests.support.coordinator.group_cases import changes, random_members, random_topics, subscribed_topics, with_owned

from headrace.client.group.assignors import Topics, make_assignors
from headrace.client.group.consumer_protocol import Subscription, decode_assignment, encode_subscription
from headrace.common.types import TopicPartition

DRIVER = Path(__file__).parents[2] / "support" / "java" / "AssignorDriver.java"
NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
ROUNDS = 60
SEED = 5

Case = tuple[str, Topics, dict[str, Subscription], Mapping[str, Sequence[TopicPartition]]]


def as_json(assignor: str, topics: Topics, members: Mapping[str, Subscription]) -> str:
    case = {
        "assignor": NAMES[assignor],
        "topics": {
            topic: [sorted(topics.racks.get(tp, ())) for tp in topics.partitions(topic)] for topic in topics.counts
        },
        "members": [
            [member, each.group_instance_id, base64.b64encode(encode_subscription(each)).decode()]
            for member, each in members.items()
        ],
    }
    return json.dumps(case)


def make_cases(assignor_name: str, equal: bool, racks: bool) -> list[Case]:
    """New groups, and their changes."""
    chance = random.Random(f"{SEED} {assignor_name} {equal} {racks}")
    (assignor,) = make_assignors(assignor_name)
    cases: list[Case] = []
    for _ in range(ROUNDS):
        topics = random_topics(chance, racks)
        members = random_members(chance, topics, equal, racks)
        ways = changes(chance, topics, members, equal, racks)
        owned: dict[str, list[TopicPartition]] = {}
        for generation in range(1, 5):
            joined = with_owned(members, {k: v for k, v in owned.items() if k in members}, generation - 1)
            some = subscribed_topics(topics, members)
            made = assignor.assign(some, joined)
            cases.append((assignor_name, some, joined, made))
            owned = {member: list(tps) for member, tps in made.items()}
            topics, members = next(ways)
    return cases


@pytest.mark.parametrize("racks", [False, True], ids=["no-racks", "racks"])
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
def test_same_assignment_as_kafka(apache_kafka: None, equal: bool, racks: bool) -> None:
    names = set(NAMES) - (
        {"cooperative-sticky"} if racks and not equal else set()
    )  # see `CooperativeStickyAssignor` for the difference
    cases = [case for name in sorted(names) for case in make_cases(name, equal, racks)]
    lines = "".join(as_json(name, topics, members) + "\n" for name, topics, members, _ in cases)
    answers = [json.loads(line) for line in run_java(DRIVER, stdin=lines.encode()).stdout.splitlines()]
    assert len(answers) == len(cases)
    for (name, topics, members, made), answer in zip(cases, answers, strict=True):
        where = f"{name} seed {SEED}: {topics} {members}"
        assert "error" not in answer, f"{answer} {where}"
        expected = {k: set(decode_assignment(base64.b64decode(v)).partitions) for k, v in answer.items()}
        assert {member: set(tps) for member, tps in made.items()} == expected, where
