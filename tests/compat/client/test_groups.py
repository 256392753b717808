"""Members of Headrace's client in groups with members of other clients: they agree on an assignor, understand each
other's subscriptions and assignments with any leader, and replace each other.

`tests/compat/broker/test_groups.py` tests this client among the others, alone and in mixed groups.
Runs against Headrace, and with HEADRACE_COMPAT_BROKER=kafka against Apache Kafka.
"""

from collections.abc import Callable

import pytest
from tests.support.coordinator.group_lab import Lab

OURS = "headrace"
OTHERS = {
    "range": ("confluent-kafka", "kafka-python", "aiokafka", "java"),
    "roundrobin": ("confluent-kafka", "kafka-python", "aiokafka", "java"),
    "sticky": ("kafka-python", "aiokafka", "java"),
    "cooperative-sticky": ("confluent-kafka", "kafka-python", "java"),
}
MakeLab = Callable[..., Lab]

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("is_first", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("strategy", list(OTHERS))
def test_group_with_members_of_other_clients(make_lab: MakeLab, strategy: str, is_first: bool) -> None:
    """The first member of a group is the leader; when it leaves, another member becomes the leader."""
    lab = make_lab(6)
    lab.write(5)
    order = (OURS, *OTHERS[strategy]) if is_first else (*OTHERS[strategy], OURS)
    first = lab.add(order[0], strategies=[strategy])
    lab.wait_shared(first)
    members = [first, *(lab.add(client, strategies=[strategy]) for client in order[1:])]
    lab.wait_shared(*members)
    lab.write(5)
    lab.wait_committed()
    shares = sorted(len(member.assigned) for member in members)
    assert shares[-1] - shares[0] <= 1
    first.leave()
    lab.wait_shared(*members[1:])
    lab.write(5)
    lab.wait_committed()


def test_static_members_of_two_clients_replace_each_other(make_lab: MakeLab) -> None:
    lab = make_lab()
    first = lab.add("confluent-kafka", instance="one")
    second = lab.add(OURS, instance="two")
    lab.wait_shared(first, second)
    shares = first.assigned, second.assigned
    second.crash()
    again = lab.add(OURS, instance="two")
    lab.wait_shared(first, again)
    assert (first.assigned, again.assigned) == shares
    first.crash()
    other = lab.add(OURS, instance="one")
    lab.wait_shared(other, again)
    assert (other.assigned, again.assigned) == shares
    lab.write(5)
    lab.wait_committed()


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka", "java"])
def test_committed_offsets_are_shared(make_lab: MakeLab, client: str) -> None:
    lab = make_lab()
    for reader in (client, OURS, client):
        before = lab.all_records
        lab.write(5)
        member = lab.add(reader)
        lab.wait_committed()
        member.leave()
        assert set(member.received) == lab.all_records - before
