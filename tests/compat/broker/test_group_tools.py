"""Kafka's own tool for groups, `kafka-consumer-groups`, on a group with a static member and on one without members."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.broker.java_clients import Java
from tests.support.broker.process import Broker, eventually
from tests.support.coordinator.group_lab import PATIENCE, Lab

pytestmark = pytest.mark.timeout(240)

OFFSETS = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
NEW_OFFSETS = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
HOST, CLIENT_ID = "/127.0.0.1", "rdkafka"

Rows = list[list[str]]
Run = Callable[..., Rows]


@pytest.fixture(scope="module")
def run(apache_kafka: None, group_broker: Broker) -> Iterator[Run]:
    """Runs the tool and returns its table as lists of words, sorted, because the order of some lines is undefined. The
    exit status is useless: it is 0 even if the tool has printed an error.
    """
    with Java(group_broker.bootstrap) as java:

        def rows(*args: object) -> Rows:
            shown = java.tool("kafka-consumer-groups", *args)
            lines = [line.split() for line in (shown.out + shown.err).splitlines() if line.strip()]
            return sorted(lines, key=lambda line: (line[0] not in ("GROUP", "TOPIC"), line))

        yield rows


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    """A topic with two partitions of ten records that the group has read."""
    lab = make_lab(2)
    lab.write(10)
    return lab


def topic_of(lab: Lab) -> str:
    return next(iter(lab.written))[0]


def no_members(lab: Lab) -> list[str]:
    return f"Consumer group '{lab.group}' has no active members.".split()


def test_tools_describe_an_active_group(run: Run, lab: Lab) -> None:
    lab.add("confluent-kafka", instance="one")
    lab.wait_committed()
    group, topic = lab.group, topic_of(lab)
    described = lab.describe()
    (member,) = described.members
    member_id = member.member_id
    address = f"{described.coordinator.host}:{described.coordinator.port}"
    who = [member_id, HOST, CLIENT_ID]
    about = ("--describe", "--group", group)
    assert run(*about) == [OFFSETS, *([group, topic, index, "10", "10", "0", *who] for index in ("0", "1"))]
    assert run(*about, "--members") == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        [group, member_id, "one", HOST, CLIENT_ID, "2"],
    ]
    assert run(*about, "--members", "--verbose")[1] == [
        *(group, member_id, "one", HOST, CLIENT_ID, "2"),
        *("-", f"{topic}:0,1", "-", "-"),  # groups of this protocol have no epochs and targets
    ]
    header, state = run(*about, "--state")
    assert header == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert (state[:2], state[3:]) == ([group, address], ["range", "Stable", "1"])
    assert [group, "Stable"] in run("--list", "--state")
    assert [group, "Stable"] in run("--list", "--state", "Stable")
    assert [group, "Empty"] not in run("--list", "--state", "Empty")
    assert [group, "Classic"] in run("--list", "--type", "classic")
    assert run("--list", "--type", "consumer") == [["GROUP", "TYPE"]]

    # These changes are refused while the group has members.
    reset = run("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", topic)
    wanted = (
        f"Error: Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable."
    )
    assert reset == [NEW_OFFSETS, wanted.split()]
    assert "org.apache.kafka.common.errors.GroupNotEmptyException:" in str(run("--delete", "--group", group))
    deleted = run("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    (refused,) = (line for line in deleted if line[:2] == [topic, "0"])
    assert refused[3] == "org.apache.kafka.common.errors.GroupSubscribedToTopicException:"
    assert lab.committed() == lab.written


def test_tools_handle_a_group_without_members(run: Run, lab: Lab) -> None:
    member = lab.add("confluent-kafka")
    lab.wait_committed()
    member.leave()
    group, topic = lab.group, topic_of(lab)
    first, second = lab.written
    about = ("--describe", "--group", group)
    nobody = ["-", "-", "-"]
    read = [[group, topic, index, "10", "10", "0", *nobody] for index in ("0", "1")]
    assert run(*about) == sorted([OFFSETS, no_members(lab), *read], key=lambda line: (line[0] != "GROUP", line))
    assert no_members(lab) in run(*about, "--members")
    state = run(*about, "--state")[-1]
    assert (state[0], state[3:]) == (group, ["-", "Empty", "0"])

    def reset(*how: str) -> Rows:
        return run("--reset-offsets", "--group", group, *how)

    assert reset("--dry-run", "--to-earliest", "--topic", topic) == [
        NEW_OFFSETS,
        *([group, topic, index, "0"] for index in ("0", "1")),
    ]
    assert lab.committed() == lab.written
    assert reset("--execute", "--shift-by", "-3", "--topic", f"{topic}:1") == [NEW_OFFSETS, [group, topic, "1", "7"]]
    assert lab.committed() == {first: 10, second: 7}
    reset("--execute", "--to-offset", "400", "--all-topics")
    assert lab.committed() == {first: 10, second: 10}
    reset("--execute", "--by-duration", "PT1H", "--topic", topic)
    assert lab.committed() == {first: 0, second: 0}
    reset("--execute", "--to-latest", "--topic", f"{topic}:0")
    assert lab.committed() == {first: 10, second: 0}

    deleted = run("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert [topic, "0", "Successful"] in deleted
    assert lab.committed() == {first: -1001, second: 0}
    assert [group, topic, "1", "0", "10", "10", *nobody] in run(*about)
    gone = f"Deletion of requested consumer groups ('{group}') was successful."
    assert run("--delete", "--group", group) == [gone.split()]
    assert [group] not in run("--list")
    assert set(lab.committed().values()) == {-1001}
    words = [word for line in run("--delete", "--group", group) for word in line]
    assert "org.apache.kafka.common.errors.GroupIdNotFoundException:" in words


def test_tools_handle_offsets_without_a_group(run: Run, lab: Lab) -> None:
    topic = topic_of(lab)
    run("--reset-offsets", "--execute", "--to-offset", "6", "--group", lab.group, "--topic", topic)
    assert set(lab.committed().values()) == {6}
    assert [lab.group, topic, "0", "6", "10", "4", "-", "-", "-"] in run("--describe", "--group", lab.group)
    member = lab.add("java", commit="none")
    lab.wait_shared(member)
    rest = {record for record in lab.all_records if record[2] >= 6}
    eventually(lambda: set(member.received) >= rest, "the rest is read", PATIENCE)
    assert set(member.received) == rest
