"""Members of this client in groups with members of other clients: they agree on an assignor, understand each other's
subscriptions and assignments whoever leads, and hand partitions over without losing a record.

Runs against Headrace, and with HEADRACE_COMPAT_BROKER=kafka against Apache Kafka.
"""

import itertools
from collections.abc import Iterator

import pytest
from tests.support.broker_admins import ConfluentAdmin
from tests.support.broker_clients import Confluent
from tests.support.broker_java import Java
from tests.support.broker_process import Broker, eventually, make_broker
from tests.support.broker_records import Record
from tests.support.group_members import MemberProcess, Members

PARTITIONS = 6
PATIENCE = 60.0
SPEAKERS = {
    "range": ("confluent-kafka", "kafka-python", "aiokafka"),
    "roundrobin": ("confluent-kafka", "kafka-python", "aiokafka"),
    "sticky": ("kafka-python", "aiokafka"),
    "cooperative": ("confluent-kafka", "kafka-python"),
}
JAVA = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative": "CooperativeStickyAssignor",
}
_numbers = itertools.count()

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 200, "offsets.topic.replication.factor": 1}
    with make_broker(tmp_path_factory.mktemp("groups") / "data", settings) as running:
        yield running


class Lab:
    def __init__(self, broker: Broker):
        number = next(_numbers)
        self.broker = broker
        self.topic = f"mixed-{number}"
        self.written = 0
        admin = ConfluentAdmin(broker.bootstrap)
        admin.create(self.topic, PARTITIONS)
        admin.close()
        self.members = Members(broker.bootstrap, f"mixed-group-{number}", self.topic)

    def write(self, each: int = 5) -> None:
        records = [
            Record(partition, None, b"%d" % number, (), 1_700_000_000_000, -1)
            for partition in range(PARTITIONS)
            for number in range(each)
        ]
        assert not [ack for ack in Confluent(self.broker.bootstrap).write(self.topic, records) if ack.error]
        self.written += each

    def wait_shared(self, *busy: MemberProcess) -> None:
        eventually(
            lambda: self.members.share(PARTITIONS) and all(member.assigned for member in busy),
            "every partition is read by one member, and each has a share",
            PATIENCE,
        )

    def wait_read(self) -> None:
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.written)}
        eventually(lambda: self.members.received() >= wanted, "everything is read", PATIENCE)


@pytest.fixture
def lab(broker: Broker) -> Iterator[Lab]:
    made = Lab(broker)
    with made.members:
        yield made


@pytest.mark.parametrize("is_first", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("strategy", list(SPEAKERS))
def test_with_members_of_other_clients(lab: Lab, strategy: str, is_first: bool) -> None:
    """The first member of a group leads it; when it goes, another does."""
    others = SPEAKERS[strategy]
    order = ("headrace", *others) if is_first else (*others, "headrace")
    lab.write()
    first = lab.members.add(order[0], strategy=strategy)
    lab.wait_shared(first)
    members = [first, *(lab.members.add(client, strategy=strategy) for client in order[1:])]
    lab.wait_shared(*members)
    lab.write()
    lab.wait_read()
    shares = sorted(len(member.assigned) for member in members)
    assert shares[-1] - shares[0] <= 1
    first.leave()
    lab.wait_shared(*members[1:])
    lab.write()
    lab.wait_read()
    if is_first:
        members[1].crash()
        lab.wait_shared(*members[2:])
        lab.write()
        lab.wait_read()


@pytest.fixture(scope="module")
def java(apache_kafka: None, broker: Broker) -> Iterator[Java]:
    with Java(broker.bootstrap) as running:
        yield running


@pytest.mark.parametrize(
    ("strategy", "is_first"),
    [("range", True), ("roundrobin", False), ("sticky", True), ("sticky", False), ("cooperative", True)],
    ids=["range-leads", "roundrobin-follows", "sticky-leads", "sticky-follows", "cooperative-leads"],
)
def test_with_the_java_client(lab: Lab, java: Java, strategy: str, is_first: bool) -> None:
    """Half of the partitions are the Java consumer's, which ends when it has read what is written then."""
    assignor = f"org.apache.kafka.clients.consumer.{JAVA[strategy]}"
    properties = [
        f"partition.assignment.strategy={assignor}",
        "auto.offset.reset=earliest",
        "heartbeat.interval.ms=500",
    ]
    beside: list[MemberProcess] = []

    def start_java() -> None:
        java.start(
            "tool",
            main="org.apache.kafka.tools.consumer.ConsoleConsumer",
            args=[
                *("--bootstrap-server", lab.broker.bootstrap, "--topic", lab.topic, "--group", lab.members.group),
                *("--max-messages", str(PARTITIONS // 2 * 5), "--timeout-ms", "60000"),
                *(word for each in properties for word in ("--command-property", each)),
            ],
            stdin="",
        )

    def start_ours() -> None:
        beside.append(lab.members.add("headrace", strategy=strategy))

    for start in (start_ours, start_java) if is_first else (start_java, start_ours):
        start()
    (member,) = beside
    eventually(lambda: len(member.assigned) == PARTITIONS // 2, "they share", PATIENCE)
    lab.write()
    assert java.result()["status"] == 0
    eventually(lambda: member.assigned == set(range(PARTITIONS)), "the rest is one's", PATIENCE)
    lab.write()
    wanted = PARTITIONS // 2 * 5 + PARTITIONS * 5
    eventually(lambda: len(set(member.received)) >= wanted, "all that is left is read", PATIENCE)


def test_static_members_of_two_clients_take_each_others_place(lab: Lab) -> None:
    first = lab.members.add("confluent-kafka", strategy="range", instance="one")
    second = lab.members.add("headrace", strategy="range", instance="two")
    lab.wait_shared(first, second)
    shares = first.assigned, second.assigned
    second.crash()
    again = lab.members.add("headrace", strategy="range", instance="two")
    lab.wait_shared(first, again)
    assert (first.assigned, again.assigned) == shares
    first.crash()
    other = lab.members.add("headrace", strategy="range", instance="one")
    lab.wait_shared(other, again)
    assert (other.assigned, again.assigned) == shares
    lab.write()
    lab.wait_read()


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_committed_offsets_are_one_anothers(lab: Lab, client: str) -> None:
    expected: set[tuple[int, int]] = set()
    for round_number, reader in enumerate((client, "headrace", client)):
        lab.write()
        expected = {(p, o) for p in range(PARTITIONS) for o in range(round_number * 5, round_number * 5 + 5)}
        member = lab.members.add(reader, strategy="range")
        eventually(lambda m=member, e=expected: set(m.received) >= e, f"{member} reads {expected}", PATIENCE)
        member.leave()
        assert set(member.received) == expected
