"""Committed offsets of groups: manual and automatic commits, as admin tools show them, and after restarts."""

from collections.abc import Callable

import pytest
from tests.support.broker.java_clients import Java
from tests.support.broker.process import Broker, eventually
from tests.support.broker.under_test import make_broker
from tests.support.coordinator.group_lab import PATIENCE, Lab
from tests.support.coordinator.group_members import MemberHosts, Partition

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "java", "headrace")
NOTHING = -1001

MakeLab = Callable[..., Lab]

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("client", CLIENTS)
def test_manual_commits(make_lab: MakeLab, client: str) -> None:
    lab = make_lab(2)
    lab.write(5)
    silent = lab.add(client, commit="none")
    lab.wait_read()
    silent.leave()
    assert set(lab.committed().values()) == {NOTHING}, "nobody asked for a commit"
    first = lab.add(client, commit="hand")
    eventually(lambda: set(first.received) == lab.all_records, "all is read again", PATIENCE)
    lab.wait_committed()
    first.leave()
    lab.write(5)
    second = lab.add(client, commit="hand")
    lab.wait_committed()
    assert set(second.received) == {record for record in lab.all_records if record[2] >= 5}
    assert not [error for member in lab.members for error in member.commit_errors]


@pytest.mark.parametrize("client", CLIENTS)
def test_automatic_commits(make_lab: MakeLab, client: str) -> None:
    lab = make_lab(2)
    lab.write(5)
    first = lab.add(client, commit="auto")
    lab.wait_committed()
    lab.write(5)
    lab.wait_read()
    first.leave()
    assert lab.committed() == lab.written, "a member commits when it leaves"
    lab.write(5)
    second = lab.add(client, commit="auto")
    lab.wait_committed()
    assert set(second.received) == {record for record in lab.all_records if record[2] >= 10}


def test_reports_lag(make_lab: MakeLab, apache_kafka: None) -> None:
    """A group of each client: Kafka's tool and librdkafka's admin client show correct values while they read."""
    labs = [make_lab(2) for _ in CLIENTS]
    members = [lab.add(client, commit="auto") for lab, client in zip(labs, CLIENTS, strict=True)]
    for lab in labs:
        lab.wait_shared()
    seen: list[dict[Partition, int]] = [dict.fromkeys(lab.written, -1) for lab in labs]

    with Java(labs[0].broker.bootstrap) as java:

        def shown() -> list[dict[Partition, list[str]]]:
            """Returns committed offset, log end and lag of each group."""
            groups = [word for lab in labs for word in ("--group", lab.group)]
            lines = [
                line.split() for line in java.tool("kafka-consumer-groups", "--describe", *groups).out.splitlines()
            ]
            return [
                {(line[1], int(line[2])): line[3:6] for line in lines if line and line[0] == lab.group} for lab in labs
            ]

        def look() -> None:
            for lab, before, rows in zip(labs, seen, shown(), strict=True):
                for tp, (committed, end, lag) in rows.items():
                    if before[tp] >= 0:
                        assert int(end) == lab.written[tp]
                        assert before[tp] <= int(committed) <= int(end)
                        assert int(lag) == int(end) - int(committed)
                        before[tp] = int(committed)
                now = lab.committed_for_admin()
                assert all(before[tp] <= max(now[tp], -1) <= lab.written[tp] for tp in now)
                before.update({tp: max(offset, -1) for tp, offset in now.items()})

        rows = [row for group in shown() for row in group.values()]
        assert all(row in (["-", "0", "-"], ["0", "0", "0"]) for row in rows), "some clients commit where they begin"
        for _ in range(8):
            for lab in labs:
                lab.write(50)
            look()
        for lab in labs:
            lab.wait_committed()
        for member in members:
            member.pause()
        for lab in labs:
            lab.write(7)
        expected = [{tp: [str(end - 7), str(end), "7"] for tp, end in lab.written.items()} for lab in labs]
        assert shown() == expected
        for member in members:
            member.resume()
        look()
        for lab in labs:
            lab.wait_committed()
        look()


@pytest.mark.timeout(480)
def test_groups_survive_a_broker_restart(tmp_path_factory: pytest.TempPathFactory, member_hosts: MemberHosts) -> None:
    """Automatic commits, in groups of one and of all clients: no record is lost or read again after its commit."""
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 5,
    }
    with make_broker(tmp_path_factory.mktemp("restarts") / "data", settings) as broker:
        labs = [_make_lab(broker, member_hosts, client) for client in CLIENTS]
        labs.append(_make_lab(broker, member_hosts, *CLIENTS))
        try:
            for end in (broker.stop, broker.kill):
                for lab in labs:
                    lab.write(20)
                    lab.wait_shared(*lab.members)
                    lab.wait_read()
                before = [(lab.committed(), [len(member.received) for member in lab.members]) for lab in labs]
                end()
                broker.start()
                for lab, (committed, counts) in zip(labs, before, strict=True):
                    assert all(offset >= committed[tp] for tp, offset in lab.committed().items())
                    lab.write(20)
                    lab.wait_committed()
                    for member, count in zip(lab.members, counts, strict=True):
                        again = [record for record in member.received[count:] if record[2] < committed[record[:2]]]
                        assert not again, f"{member} read again what was committed"
        finally:
            for lab in labs:
                lab.close()


def _make_lab(broker: Broker, hosts: MemberHosts, *clients: str) -> Lab:
    name = "-".join(clients)
    lab = Lab(broker, hosts, name)
    lab.create(name, max(4, len(clients)))
    for client in clients:
        lab.add(client, commit="auto")
    return lab
