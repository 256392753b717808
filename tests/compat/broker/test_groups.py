"""Consumer groups of other projects' clients and ours: assignments when members join, leave, crash and hang.

Each member is a process (see `tests.support.coordinator.group_members`), so that it can crash and hang as processes
do. Cases that a client does not support are left out: librdkafka (confluent-kafka) has no eager sticky strategy,
aiokafka no cooperative one. Commits and lag are in `test_group_offsets`, Kafka's own tool in `test_group_tools`.
"""

from collections.abc import Callable

import pytest
from tests.support.broker.process import eventually
from tests.support.coordinator.group_lab import PATIENCE, Lab

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "java", "headrace")
CONFLUENT, KAFKA_PYTHON, AIOKAFKA, JAVA, HEADRACE = CLIENTS
COOPERATIVE = "cooperative-sticky"
STRATEGIES = {
    "range": CLIENTS,
    "roundrobin": CLIENTS,
    "sticky": (KAFKA_PYTHON, AIOKAFKA, JAVA, HEADRACE),
    COOPERATIVE: (CONFLUENT, KAFKA_PYTHON, JAVA, HEADRACE),
}
SHORT_SESSION_MS = 1_500
SHORT_POLL_INTERVAL_MS = 2_000
LONG_POLL_MS = 2_000
"""kafka-python joins again, with a rebalance, if a poll ends before the response to its first join, also on Kafka."""

MakeLab = Callable[..., Lab]

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize(
    ("client", "strategy"), [(client, strategy) for strategy, clients in STRATEGIES.items() for client in clients]
)
def test_members_join_and_leave(make_lab: MakeLab, client: str, strategy: str) -> None:
    lab = make_lab()
    lab.write(5)
    first = lab.add(client, strategies=[strategy])
    lab.wait_shared()
    lab.wait_committed()
    second = lab.add(client, strategies=[strategy])
    lab.wait_shared(first, second)
    assert len(first.assigned) == len(second.assigned)
    # Eager members revoke all partitions before they rejoin, cooperative ones only those that move.
    assert set().union(*first.revoked) == (second.assigned if strategy == COOPERATIVE else set(lab.written))
    lab.write(5)
    lab.wait_committed()
    description = lab.describe()
    assert (description.state.name, description.partition_assignor) == ("STABLE", strategy)
    shown = [{(tp.topic, tp.partition) for tp in member.assignment.topic_partitions} for member in description.members]
    assert sorted(shown, key=sorted) == sorted((first.assigned, second.assigned), key=sorted)
    first.leave()
    lab.wait_shared()
    lab.write(5)
    lab.wait_committed()
    assert len(lab.describe().members) == 1
    assert len(lab.received) == len(lab.all_records), "something was read again"
    second.leave()
    assert lab.state == "EMPTY"


@pytest.mark.parametrize("client", CLIENTS)
def test_member_crashes(make_lab: MakeLab, client: str) -> None:
    lab = make_lab()
    first, second = (lab.add(client, session_ms=SHORT_SESSION_MS) for _ in range(2))
    lab.wait_shared(first, second)
    lab.write(5)
    lab.wait_committed()
    first.crash()
    lab.write(5)
    lab.wait_shared()
    lab.wait_committed()
    assert len(lab.describe().members) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_member_does_not_poll(make_lab: MakeLab, client: str) -> None:
    """The member heartbeats, but leaves after `max.poll.interval.ms` without a poll, and rejoins with the next poll."""
    lab = make_lab()
    first = lab.add(client, session_ms=SHORT_SESSION_MS, poll_interval_ms=SHORT_POLL_INTERVAL_MS)
    second = lab.add(client)
    lab.wait_shared(first, second)
    lab.write(5)
    lab.wait_committed()
    first.pause()
    lab.write(5)
    eventually(lambda: second.assigned == set(lab.written), "the other takes all", PATIENCE)
    lab.wait_committed()
    first.resume()
    lab.wait_shared(first, second)
    lab.write(5)
    lab.wait_committed()


def test_members_hang_and_recover(make_lab: MakeLab) -> None:
    """Their sessions expire, and they no longer own their partitions when they recover."""
    labs = [make_lab() for _ in CLIENTS]
    pairs = [
        (lab.add(client, session_ms=SHORT_SESSION_MS), lab.add(client))
        for lab, client in zip(labs, CLIENTS, strict=True)
    ]
    for lab, pair in zip(labs, pairs, strict=True):
        lab.wait_shared(*pair)
    for first, _ in pairs:
        first.hang()
    for lab, (_, second) in zip(labs, pairs, strict=True):
        lab.write(5)
        eventually(lambda all_=set(lab.written), second=second: second.assigned == all_, "one takes all", PATIENCE)
        lab.wait_committed()
    for first, _ in pairs:
        first.wake()
    for lab, pair in zip(labs, pairs, strict=True):
        lab.wait_shared(*pair)
        lab.write(5)
        lab.wait_committed()


@pytest.mark.parametrize("client", CLIENTS)
def test_static_members_restart_without_a_rebalance(make_lab: MakeLab, client: str) -> None:
    lab = make_lab()
    one, two = (lab.add(client, instance=name, poll_ms=LONG_POLL_MS) for name in ("one", "two"))
    lab.wait_shared(one, two)
    shares, disturbed = (one.assigned, two.assigned), len(two.revoked)
    one.leave()  # a static member closes without LeaveGroup
    one = lab.add(client, instance="one", poll_ms=LONG_POLL_MS)
    lab.wait_shared()
    assert (one.assigned, two.assigned) == shares
    assert len(two.revoked) == disturbed
    two.crash()
    two = lab.add(client, instance="two", poll_ms=LONG_POLL_MS)
    lab.wait_shared()
    assert (one.assigned, two.assigned) == shares
    assert not one.revoked
    lab.write(5)
    lab.wait_committed()
    assert sorted(member.group_instance_id for member in lab.describe().members) == ["one", "two"]


@pytest.mark.parametrize("client", CLIENTS)
def test_more_members_than_partitions(make_lab: MakeLab, client: str) -> None:
    lab = make_lab(1)
    lab.write(5)
    pair = [lab.add(client) for _ in range(2)]
    eventually(lambda: lab.state == "STABLE" and len(lab.describe().members) == 2, "both are members", PATIENCE)
    lab.wait_shared()
    lab.wait_committed()
    (busy,) = (member for member in pair if member.assigned)
    (idle,) = (member for member in pair if not member.assigned)
    busy.leave()
    lab.wait_shared(idle)
    lab.write(5)
    lab.wait_committed()


@pytest.mark.parametrize("client", CLIENTS)
def test_topics_and_partitions_are_added(make_lab: MakeLab, client: str) -> None:
    lab = make_lab(2)
    ((topic, _), *_) = lab.written
    # kafka-python forgets a join that its leader started for new partitions if a poll ends before the join.
    poll_ms = 3_000 if client == KAFKA_PYTHON else 100
    first, second = (lab.add(client, f"^{topic}.*", poll_ms=poll_ms) for _ in range(2))
    lab.wait_shared(first, second)
    lab.create(f"{topic}-more", 2)
    lab.wait_shared(first, second)
    lab.write(5)
    lab.wait_committed()
    lab.grow(topic, 3)
    lab.wait_shared(first, second)
    lab.write(5)
    lab.wait_committed()
    if client == KAFKA_PYTHON:
        first.crash()  # otherwise it leaves after its poll
        second.crash()


@pytest.mark.parametrize(("strategy", "clients"), STRATEGIES.items(), ids=STRATEGIES)
def test_different_clients_in_one_group(make_lab: MakeLab, strategy: str, clients: tuple[str, ...]) -> None:
    lab = make_lab(6)
    lab.write(5)
    everybody = [lab.add(client, strategies=[strategy]) for client in clients]
    lab.wait_shared(*everybody)
    lab.write(5)
    lab.wait_committed()
    for member in everybody[:-1]:
        member.leave()
        lab.wait_shared(*lab.members[lab.members.index(member) + 1 :])
        lab.write(5)
        lab.wait_committed()


def test_group_selects_the_common_strategy(make_lab: MakeLab) -> None:
    """Each member votes for its first strategy that all support; when a member leaves, another may win."""
    lab = make_lab()
    round_robin = lab.add(CONFLUENT, strategies=["roundrobin"])
    lab.wait_shared(round_robin)
    others = [lab.add(client, strategies=["range", "roundrobin"]) for client in (KAFKA_PYTHON, AIOKAFKA)]
    lab.wait_shared(round_robin, *others)
    assert lab.describe().partition_assignor == "roundrobin"
    round_robin.leave()
    lab.wait_shared(*others)
    assert lab.describe().partition_assignor == "range"
