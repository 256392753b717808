"""Consumer groups of other projects' clients: who gets which partitions, and how far the group has read.

Each member is a process (see `tests.support.group_member`), so that it can crash and hang as processes do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as confluent
import confluent_kafka.admin
import pytest
from tests.support.broker_admins import ConfluentAdmin
from tests.support.broker_clients import Confluent
from tests.support.broker_java import Java
from tests.support.broker_process import Broker, eventually, make_broker
from tests.support.broker_records import Record
from tests.support.group_members import Members

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
STRATEGIES = [
    ("confluent-kafka", "range"),
    ("confluent-kafka", "roundrobin"),
    ("confluent-kafka", "cooperative"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
]
PARTITIONS = 4
PATIENCE = 60.0

pytestmark = pytest.mark.timeout(240)


class Lab:
    """A topic, a group that reads it, and somebody who looks at both."""

    def __init__(self, broker: Broker, topic: str, members: Members):
        self.broker = broker
        self.topic = topic
        self.members = members
        self.written = [0] * 64
        self._admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def write(self, each: int, partitions: int = PARTITIONS) -> None:
        records = [
            Record(partition, None, b"%d" % number, (), 1_700_000_000_000, -1)
            for partition in range(partitions)
            for number in range(each)
        ]
        acks = Confluent(self.broker.bootstrap).write(self.topic, records)
        assert not [ack for ack in acks if ack.error]
        for partition in range(partitions):
            self.written[partition] += each

    @property
    def all_records(self) -> set[tuple[int, int]]:
        return {(partition, offset) for partition in range(64) for offset in range(self.written[partition])}

    def committed(self) -> list[int]:
        wanted = [confluent.TopicPartition(self.topic, index) for index in range(64) if self.written[index]]
        request = confluent.ConsumerGroupTopicPartitions(self.members.group, wanted)
        (future,) = self._admin.list_consumer_group_offsets([request]).values()
        return [tp.offset for tp in future.result(60).topic_partitions]

    def describe(self) -> Any:
        (future,) = self._admin.describe_consumer_groups([self.members.group]).values()
        return future.result(60)

    def wait_shared(self, partitions: int = PARTITIONS) -> None:
        eventually(lambda: self.members.share(partitions), "every partition is read by one member", PATIENCE)

    def wait_read(self) -> None:
        eventually(lambda: self.members.received() >= self.all_records, "everything is read", PATIENCE)
        expected = [count for count in self.written if count]
        eventually(lambda: self.committed() == expected, "everything is committed: no lag", PATIENCE)


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 200, "offsets.topic.replication.factor": 1}
    with make_broker(tmp_path_factory.mktemp("groups") / "data", settings) as running:
        yield running


@pytest.fixture
def make_lab(group_broker: Broker, new_name: Callable[[], str]) -> Iterator[Callable[..., Lab]]:
    opened: list[Members] = []

    def make(partitions: int = PARTITIONS) -> Lab:
        topic, group = new_name(), new_name()
        admin = ConfluentAdmin(group_broker.bootstrap)
        admin.create(topic, partitions)
        admin.close()
        members = Members(group_broker.bootstrap, group, topic)
        opened.append(members)
        return Lab(group_broker, topic, members)

    yield make
    for members in opened:
        members.__exit__(None, None, None)


@pytest.mark.parametrize(("client", "strategy"), STRATEGIES)
def test_members_come_and_go(make_lab: Callable[..., Lab], client: str, strategy: str) -> None:
    lab = make_lab()
    lab.write(10)
    first = lab.members.add(client, strategy=strategy)
    lab.wait_shared()
    lab.wait_read()
    second = lab.members.add(client, strategy=strategy)
    eventually(lambda: second.assigned and lab.members.share(PARTITIONS), "the second has its share", PATIENCE)
    lab.write(10)
    lab.wait_read()
    first.leave()
    assert first.has_left
    lab.wait_shared()
    lab.write(10)
    lab.wait_read()
    assert len(second.received) == len(set(second.received))
    description = lab.describe()
    assert description.state.name == "STABLE"
    assert len(description.members) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_crashes(make_lab: Callable[..., Lab], client: str) -> None:
    lab = make_lab()
    lab.write(10)
    first, second = lab.members.add(client), lab.members.add(client)
    eventually(lambda: first.assigned and second.assigned and lab.members.share(PARTITIONS), "both read", PATIENCE)
    first.crash()
    lab.write(10)
    lab.wait_shared()
    lab.wait_read()
    assert second.assigned == set(range(PARTITIONS))


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_hangs_and_comes_back(make_lab: Callable[..., Lab], client: str) -> None:
    lab = make_lab()
    first, second = lab.members.add(client), lab.members.add(client)
    eventually(lambda: first.assigned and second.assigned and lab.members.share(PARTITIONS), "both read", PATIENCE)
    first.hang()
    lab.write(10)
    eventually(lambda: second.assigned == set(range(PARTITIONS)), "the other takes all", PATIENCE)
    lab.wait_read()
    first.wake()
    eventually(lambda: first.assigned and lab.members.share(PARTITIONS), "it has a share again", PATIENCE)
    lab.write(10)
    lab.wait_read()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_static_member_starts_again_without_a_rebalance(make_lab: Callable[..., Lab], client: str) -> None:
    lab = make_lab()
    first, second = (lab.members.add(client, instance=name) for name in ("one", "two"))
    eventually(lambda: first.assigned and second.assigned and lab.members.share(PARTITIONS), "both read", PATIENCE)
    shares = first.assigned, second.assigned
    first.crash()
    again = lab.members.add(client, instance="one")
    eventually(lambda: again.assigned, "it has partitions again", PATIENCE)
    assert (again.assigned, second.assigned) == shares
    lab.write(10)
    lab.wait_read()


def test_clients_of_all_kinds_in_one_group(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(6)
    lab.write(5, 6)
    everybody = [lab.members.add(client, strategy="range") for client in CLIENTS]
    eventually(
        lambda: all(member.assigned for member in everybody) and lab.members.share(6), "each has a share", PATIENCE
    )
    lab.write(5, 6)
    lab.wait_read()
    everybody[0].leave()
    lab.wait_shared(6)
    lab.write(5, 6)
    lab.wait_read()


def test_more_members_than_partitions(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(2)
    lab.write(5, 2)
    everybody = [lab.members.add("confluent-kafka") for _ in range(4)]
    eventually(lambda: len(lab.describe().members) == len(everybody), "all are members", PATIENCE)
    lab.wait_shared(2)
    lab.wait_read()
    busy = next(member for member in everybody if member.assigned)
    busy.leave()
    lab.wait_shared(2)
    lab.write(5, 2)
    lab.wait_read()


@pytest.mark.parametrize("client", CLIENTS)
def test_partitions_are_added(make_lab: Callable[..., Lab], client: str) -> None:
    lab = make_lab(2)
    lab.members.add(client)
    lab.wait_shared(2)
    admin = ConfluentAdmin(lab.broker.bootstrap)
    admin.grow(lab.topic, 5)
    admin.close()
    lab.wait_shared(5)
    lab.write(5, 5)
    lab.wait_read()


@pytest.mark.parametrize("client", CLIENTS)
def test_automatic_commits(make_lab: Callable[..., Lab], client: str) -> None:
    lab = make_lab()
    lab.write(10)
    first = lab.members.add(client, commit="auto")
    lab.wait_read()
    first.leave()
    assert lab.describe().state.name == "EMPTY"
    lab.write(5)
    second = lab.members.add(client, commit="auto")
    lab.wait_read()
    assert set(second.received) == {(index, offset) for index in range(PARTITIONS) for offset in range(10, 15)}


def test_kafkas_tool_shows_the_group(make_lab: Callable[..., Lab], apache_kafka: None) -> None:
    lab = make_lab(2)
    lab.write(10, 2)
    member = lab.members.add("confluent-kafka")
    lab.wait_read()
    with Java(lab.broker.bootstrap) as java:
        shown = java.tool("kafka-consumer-groups", "--describe", "--group", lab.members.group)
        rows = [line.split() for line in shown.out.splitlines() if lab.topic in line]
        assert sorted(row[2:6] for row in rows) == [["0", "10", "10", "0"], ["1", "10", "10", "0"]], shown
        member.leave()
        assert lab.members.group in java.tool("kafka-consumer-groups", "--list").out
        moved = java.tool(
            "kafka-consumer-groups",
            *("--reset-offsets", "--to-earliest", "--execute", "--topic", lab.topic, "--group", lab.members.group),
        )
        assert moved.status == 0, moved
        assert lab.committed() == [0, 0]
        gone = java.tool("kafka-consumer-groups", "--delete", "--group", lab.members.group)
        assert gone.status == 0, gone
        assert lab.members.group not in java.tool("kafka-consumer-groups", "--list").out


ASSIGNORS = ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")


def test_the_java_client_in_groups(make_lab: Callable[..., Lab], apache_kafka: None) -> None:
    """Kafka's console consumer reads as a member, alone and beside librdkafka."""
    lab = make_lab()
    with Java(lab.broker.bootstrap) as java:

        def read(count: int, *properties: str) -> set[str]:
            options = [word for each in properties for word in ("--command-property", each)]
            consumed = java.tool(
                "kafka-console-consumer",
                *("--topic", lab.topic, "--group", lab.members.group, "--max-messages", count),
                *("--timeout-ms", 60_000, "--command-property", "auto.offset.reset=earliest", *options),
            )
            assert consumed.status == 0, consumed
            return set(consumed.out.split())

        for assignor in ASSIGNORS:
            lab.write(10)
            strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
            assert read(10 * PARTITIONS, strategy) == {str(number) for number in range(10)}
            assert lab.committed() == lab.written[:PARTITIONS]
            assert lab.describe().state.name == "EMPTY"
        beside = lab.members.add("confluent-kafka", strategy="range")
        lab.wait_shared()
        lab.write(10)
        eventually(lambda: len(beside.received) == 10 * PARTITIONS, "the other reads", PATIENCE)
        java.start(
            "tool",
            main="org.apache.kafka.tools.consumer.ConsoleConsumer",
            args=[
                *("--bootstrap-server", lab.broker.bootstrap, "--topic", lab.topic, "--group", lab.members.group),
                *("--max-messages", "20", "--timeout-ms", "60000"),
            ],
            stdin="",
        )
        eventually(lambda: len(beside.assigned) == PARTITIONS // 2, "they share", PATIENCE)
        lab.write(10)
        assert java.result()["status"] == 0
        lab.wait_shared()
        expected = lab.written[:PARTITIONS]
        eventually(lambda: lab.committed() == expected, "everything is committed", PATIENCE)


def test_a_group_outlives_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"group.initial.rebalance.delay.ms": 200, "offsets.topic.replication.factor": 1}
    with make_broker(tmp_path_factory.mktemp("groups") / "data", settings) as broker:
        admin = ConfluentAdmin(broker.bootstrap)
        admin.create("t", PARTITIONS)
        admin.close()
        with Members(broker.bootstrap, "g", "t") as members:
            lab = Lab(broker, "t", members)
            lab.write(10)
            for client in CLIENTS:
                members.add(client, strategy="range")
            lab.wait_shared()
            lab.wait_read()
            for end in (broker.kill, broker.stop):
                end()
                broker.start()
                assert min(lab.committed()) >= lab.written[0] - 10
                lab.write(10)
                lab.wait_shared()
                lab.wait_read()
