"""Transactions of every client, as every client reads them."""

from collections.abc import Callable, Iterator

import confluent_kafka as confluent
import pytest
from tests.support.apache_kafka.dump_log import dump_log
from tests.support.apache_kafka.transaction_state import last_states
from tests.support.broker.clients import Client
from tests.support.broker.java_clients import Java, to_bytes
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import Record, numbered
from tests.support.broker.transactional_producers import IN_PROCESS, JavaTransactional, Transactional
from tests.support.broker.under_test import IS_CLUSTER

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kafka-clients")
NewProducer = Callable[..., Transactional]

COMMITTED = {name: {"isolation_level": "read_committed"} for name in CLIENTS}
UNCOMMITTED = {name: {"isolation_level": "read_uncommitted"} for name in CLIENTS}


@pytest.fixture
def new_producer(broker: Broker, request: pytest.FixtureRequest) -> Iterator[NewProducer]:
    made: list[Transactional] = []

    def make(name: str, transactional_id: str) -> Transactional:
        if name in IN_PROCESS:
            made.append(IN_PROCESS[name](broker.bootstrap, transactional_id))
        else:
            made.append(JavaTransactional(request.getfixturevalue("java"), transactional_id))
        return made[-1]

    yield make
    for each in made:
        each.close()


def values(records: list[Record]) -> list[bytes | None]:
    return [each.value for each in records]


@pytest.mark.parametrize("name", CLIENTS)
def test_commits_and_aborts(
    name: str,
    new_producer: NewProducer,
    new_topic: Callable[..., str],
    get_client: Callable[[str], Client],
    new_name: Callable[[], str],
) -> None:
    topic = new_topic(2)
    producer = new_producer(name, new_name())
    rows = numbered(50) + numbered(50, 1)
    for number, end in enumerate((producer.commit, producer.abort, producer.commit, producer.abort)):
        producer.begin()
        producer.send(topic, [each._replace(key=b"%d" % number) for each in rows])
        end()
    for reader in CLIENTS:
        client = get_client(reader)
        found = client.read(topic, range(2), **COMMITTED[reader])
        assert [(each.partition, each.key) for each in found] == [
            (partition, key) for partition in range(2) for key in (b"0", b"2") for _ in range(50)
        ]
        assert values(found) == values(numbered(50)) * 4
        assert len(client.read(topic, range(2), **UNCOMMITTED[reader])) == 400


@pytest.mark.parametrize("name", CLIENTS)
def test_read_committed_stops_at_an_open_transaction(
    name: str,
    new_producer: NewProducer,
    new_topic: Callable[..., str],
    get_client: Callable[[str], Client],
    new_name: Callable[[], str],
) -> None:
    topic = new_topic()
    reader = get_client("confluent-kafka")
    producer, other = new_producer(name, new_name()), new_producer("confluent-kafka", new_name())
    producer.begin()
    producer.send(topic, numbered(3))
    other.begin()
    other.send(topic, numbered(2))
    other.commit()
    assert reader.read(topic, [0], **COMMITTED["confluent-kafka"]) == []
    assert len(reader.read(topic, [0], **UNCOMMITTED["confluent-kafka"])) == 5
    producer.commit()
    eventually(lambda: len(reader.read(topic, [0], **COMMITTED["confluent-kafka"])) == 5, "the transaction is over")


def committed_offset(broker: Broker, group: str, topic: str) -> int:
    consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([confluent.TopicPartition(topic, 0)], 60)
    finally:
        consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("name", CLIENTS)
def test_offsets_are_committed_with_the_transaction(
    name: str,
    broker: Broker,
    new_producer: NewProducer,
    new_topic: Callable[..., str],
    new_name: Callable[[], str],
) -> None:
    topic, group = new_topic(), new_name()
    producer = new_producer(name, new_name())
    for offset, end, expected in ((5, producer.commit, 5), (9, producer.abort, 5), (12, producer.commit, 12)):
        producer.begin()
        producer.send(topic, numbered(1))
        producer.send_offset(topic, offset, group)
        end()
        assert committed_offset(broker, group, topic) == expected


@pytest.mark.parametrize("name", CLIENTS)
def test_second_producer_fences_the_first(
    name: str,
    new_producer: NewProducer,
    new_topic: Callable[..., str],
    get_client: Callable[[str], Client],
    new_name: Callable[[], str],
) -> None:
    topic, transactional_id = new_topic(), new_name()
    first = new_producer(name, transactional_id)
    first.begin()
    first.send(topic, numbered(3))
    second = new_producer(name, transactional_id)
    second.begin()
    second.send(topic, numbered(2))
    with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer"):
        first.commit()
    second.commit()
    found = get_client("confluent-kafka").read(topic, [0], **COMMITTED["confluent-kafka"])
    assert values(found) == values(numbered(2))


def kafka_transactions(java: Java, *args: object) -> str:
    """Returns the output of Kafka's tool. The address comes before its subcommand."""
    done = java.call(
        "tool",
        main="org.apache.kafka.tools.TransactionsCommand",
        args=["--bootstrap-server", java.bootstrap, *map(str, args)],
        stdin="",
    )
    assert done["status"] == 0, to_bytes(done["err"])
    return (to_bytes(done["out"]) or b"").decode()


def test_kafkas_tool_lists_describes_and_ends_transactions(
    java: Java, new_producer: NewProducer, new_topic: Callable[..., str], get_client: Callable[[str], Client]
) -> None:
    topic, transactional_id = new_topic(), "seen-by-the-tool"
    producer = new_producer("confluent-kafka", transactional_id)
    producer.begin()
    producer.send(topic, numbered(3))
    (line,) = (line for line in kafka_transactions(java, "list").splitlines() if transactional_id in line)
    assert "Ongoing" in line
    described = kafka_transactions(java, "describe", "--transactional-id", transactional_id)
    assert "Ongoing" in described
    assert f"{topic}-0" in described
    kafka_transactions(java, "abort", "--topic", topic, "--partition", 0, "--start-offset", 0)
    client = get_client("confluent-kafka")
    assert client.read(topic, [0], **COMMITTED["confluent-kafka"]) == []
    producer.abort()


def test_kafkas_tool_reads_the_log_of_transactions(
    broker: Broker, java: Java, new_producer: NewProducer, new_topic: Callable[..., str]
) -> None:
    """Uses producers of both transaction versions: the Java client's get an epoch for each transaction (KIP-890), but
    not in a cluster on ZooKeeper, which has no features."""
    topic = new_topic()
    for name, version in (("confluent-kafka", 0), ("kafka-clients", 0 if IS_CLUSTER else 2)):
        transactional_id = f"read-by-the-tool-{name}"
        producer = new_producer(name, transactional_id)
        for end in (producer.commit, producer.abort):
            producer.begin()
            producer.send(topic, numbered(1))
            end()
        producer.begin()
        producer.send(topic, numbered(1))
        logs = [file for file in broker.data_dir.glob("__transaction_state-*/*.log") if file.stat().st_size]
        found = last_states(dump_log(*logs, extra=["--transaction-log-decoder"]))[transactional_id]
        producer.abort()
        assert found["transactionStatus"] == 1
        assert found["producerEpoch"] == version
        assert found.get("clientTransactionVersion", 0) == version
        assert found["transactionPartitions"] == [{"topic": topic, "partitionIds": [0]}]
