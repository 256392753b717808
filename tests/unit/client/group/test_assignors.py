"""Assignors by example. tests/compat compares them with Kafka's assignors."""

import pytest
from tests.support.coordinator.group_cases import sticky_data, with_owned

from headrace.client.group.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Topics,
    make_assignors,
    rebalance_protocol,
)
from headrace.client.group.assignors.assignor import java_hash
from headrace.client.group.assignors.sticky import StickyUserData
from headrace.client.group.consumer_protocol import Subscription
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition
from headrace.protocol import decode


def tps(text: str) -> list[TopicPartition]:
    """`a0 b12` for a-0 and b-12."""
    return [TopicPartition(each[0], int(each[1:])) for each in text.split()]


def members(**topics: str) -> dict[str, Subscription]:
    return {member: Subscription(tuple(wanted)) for member, wanted in topics.items()}


TWO = Topics({"a": 3, "b": 3})
BOTH = members(one="ab", two="ab")


def test_range() -> None:
    assert RangeAssignor().assign(TWO, BOTH) == {"one": tps("a0 a1 b0 b1"), "two": tps("a2 b2")}
    assert RangeAssignor().assign(TWO, members(one="a", two="ab")) == {"one": tps("a0 a1"), "two": tps("a2 b0 b1 b2")}


def test_round_robin() -> None:
    assert RoundRobinAssignor().assign(TWO, BOTH) == {"one": tps("a0 a2 b1"), "two": tps("a1 b0 b2")}
    mixed = members(c0="a", c1="ab", c2="abc")
    assert RoundRobinAssignor().assign(Topics({"a": 1, "b": 2, "c": 3}), mixed) == {
        "c0": tps("a0"),
        "c1": tps("b0"),
        "c2": tps("b1 c0 c1 c2"),
    }


def test_static_members_come_first() -> None:
    group = {
        "z": Subscription(("a",), group_instance_id="1"),
        "y": Subscription(("a",), group_instance_id="2"),
        "a": Subscription(("a",)),
    }
    topics = Topics({"a": 3})
    assert RangeAssignor().assign(topics, group) == {"z": tps("a0"), "y": tps("a1"), "a": tps("a2")}
    assert RoundRobinAssignor().assign(topics, group) == {"z": tps("a0"), "y": tps("a1"), "a": tps("a2")}


def test_range_with_racks() -> None:
    racks = {TopicPartition("a", number): frozenset(rack) for number, rack in enumerate("xyxy")}
    group = {"one": Subscription(("a",), rack="y"), "two": Subscription(("a",), rack="x")}
    assert RangeAssignor().assign(Topics({"a": 4}, racks), group) == {"one": tps("a1 a3"), "two": tps("a0 a2")}
    everywhere = dict.fromkeys(racks, frozenset("xy"))
    assert RangeAssignor().assign(Topics({"a": 4}, everywhere), group) == {"one": tps("a0 a1"), "two": tps("a2 a3")}


@pytest.mark.parametrize("assignor", [RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor])
def test_missing_topics_are_not_assigned(assignor: type[Assignor]) -> None:
    assert assignor().assign(Topics({}), members(one="x")) == {"one": []}
    assert assignor().assign(Topics({"a": 1}), members(one="a", two="ax")) in (
        {"one": tps("a0"), "two": []},
        {"one": [], "two": tps("a0")},
    )


def test_sticky_keeps_partitions() -> None:
    topics = Topics({"a": 2, "b": 2, "c": 2, "d": 2})
    three = members(c0="abcd", c1="abcd", c2="abcd")
    first = StickyAssignor().assign(topics, three)
    assert first == {"c0": tps("a0 b1 d0"), "c1": tps("a1 c0 d1"), "c2": tps("b0 c1")}
    left = with_owned(members(c0="abcd", c2="abcd"), {"c0": first["c0"], "c2": first["c2"]}, 1)
    second = StickyAssignor().assign(topics, left)
    assert set(second["c0"]) > set(first["c0"])
    assert set(second["c2"]) > set(first["c2"])
    assert {len(each) for each in second.values()} == {4}


def test_sticky_with_different_subscriptions() -> None:
    topics = Topics({"a": 1, "b": 2, "c": 3})
    group = members(c0="a", c1="ab", c2="abc")
    first = StickyAssignor().assign(topics, group)
    assert first == {"c0": tps("a0"), "c1": tps("b0 b1"), "c2": tps("c0 c1 c2")}
    left = with_owned(members(c1="ab", c2="abc"), {"c1": first["c1"], "c2": first["c2"]}, 1)
    assert StickyAssignor().assign(topics, left) == {"c1": tps("a0 b0 b1"), "c2": tps("c0 c1 c2")}


def test_later_generation_wins() -> None:
    topics = Topics({"a": 2})
    group = {
        "old": Subscription(("a",), sticky_data(tps("a0 a1"), 3), tuple(tps("a0 a1")), 3),
        "new": Subscription(("a",), sticky_data(tps("a0"), 4), tuple(tps("a0")), 4),
    }
    for assignor in (StickyAssignor(), CooperativeStickyAssignor()):
        assert assignor.assign(topics, group) == {"old": tps("a1"), "new": tps("a0")}


def test_moved_partition_returns_to_owner_of_earlier_generation() -> None:
    group = {
        "abe": Subscription(("a", "missing")),
        "new": Subscription(("a",), sticky_data(tps("a0 a1 a2"), 5)),
        "zed": Subscription(("a",), sticky_data(tps("a0"), 4)),
    }
    assert StickyAssignor().assign(Topics({"a": 3}), group) == {"abe": tps("a1"), "new": tps("a2"), "zed": tps("a0")}


def test_disputed_partition_is_first_unassigned() -> None:
    group = {
        "one": Subscription(("a",), None, tuple(tps("a0 a1")), 3),
        "two": Subscription(("a",), None, tuple(tps("a1")), 3),
    }
    given = CooperativeStickyAssignor().assign(Topics({"a": 2}), group)
    assert given == {"one": tps("a0"), "two": []}


def test_cooperative_does_not_assign_owned_partitions() -> None:
    topics = Topics({"a": 4})
    group = with_owned(members(one="a", two="a"), {"one": tps("a0 a1 a2 a3")}, 5)
    first = CooperativeStickyAssignor().assign(topics, group)
    assert first == {"one": tps("a0 a1"), "two": []}
    second = CooperativeStickyAssignor().assign(topics, with_owned(group, first, 6))
    assert second == {"one": tps("a0 a1"), "two": tps("a2 a3")}


def test_user_data() -> None:
    sticky, cooperative = StickyAssignor(), CooperativeStickyAssignor()
    assert sticky.user_data(["a"]) is None
    assert cooperative.user_data(["a"]) == b"\xff\xff\xff\xff"
    for assignor in (sticky, cooperative):
        assignor.on_assignment(tps("a0 a1 b2"), 9)
    data = decode(StickyUserData, 1, sticky.user_data(["a"]) or b"")
    assert [(each.topic, each.partitions) for each in data.previous_assignment] == [("a", [0, 1]), ("b", [2])]
    assert data.generation == 9
    assert cooperative.user_data(["a"]) == b"\x00\x00\x00\x09"


def test_sticky_reads_old_user_data_and_ignores_garbage() -> None:
    version_0 = sticky_data(tps("a1"), 3)[:-4]
    group = {"one": Subscription(("a",), b"nonsense"), "two": Subscription(("a",), version_0)}
    assert StickyAssignor().assign(Topics({"a": 2}), group) == {"one": tps("a0"), "two": tps("a1")}


def test_strategies_by_name_and_class() -> None:
    class Mine(Assignor):
        name = "mine"

    made = make_assignors("range, org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    assert [type(each) for each in made] == [RangeAssignor, CooperativeStickyAssignor]
    assert rebalance_protocol(made) == "eager"
    assert rebalance_protocol(make_assignors("cooperative-sticky")) == "cooperative"
    assert [each.name for each in make_assignors([Mine, RoundRobinAssignor(), "sticky"])] == [
        "mine",
        "roundrobin",
        "sticky",
    ]


@pytest.mark.parametrize("wrong", ["rang", "range,range", "", [], [5], [Assignor], [object()]])
def test_rejects_unknown_assignors(wrong: object) -> None:
    with pytest.raises(ConfigError):
        make_assignors(wrong)  # type: ignore[arg-type]


def test_rejects_assignors_without_common_protocol() -> None:
    class Only(Assignor):
        name = "only"
        protocols = ("cooperative",)

    with pytest.raises(ConfigError, match="common rebalance protocol"):
        rebalance_protocol([Only(), RangeAssignor()])


def test_java_hash() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("😀") == 1772899


def test_assignor_must_implement_assign() -> None:
    with pytest.raises(NotImplementedError):
        Assignor().assign(TWO, BOTH)
