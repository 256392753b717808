"""Automatic topic creation, and a broker that disables it."""

import time
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka as confluent
import pytest
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.clients import Aiokafka, Client, Confluent, KafkaPython, Kcat, install_kcat, run
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import assert_same, numbered
from tests.support.broker.under_test import make_broker
from tests.support.records.other_clients import kafka

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "kafka-clients")
UNKNOWN_TOPIC = 3


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker without automatic topic creation, and with another default number of partitions."""
    properties = {"auto.create.topics.enable": "false", "num.partitions": 3}
    with make_broker(tmp_path_factory.mktemp("strict-broker") / "data", properties) as running:
        yield running


@pytest.mark.parametrize("name", CLIENTS)
def test_producing_creates_the_topic(
    get_client: Callable[[str], Client], new_name: Callable[[], str], name: str
) -> None:
    client, topic = get_client(name), new_name()
    client.write(topic, numbered(5))
    found = get_client("confluent-kafka").read(topic, [0])
    assert [row.value for row in found] == [row.value for row in numbered(5)]


@pytest.mark.parametrize("wanted", [True, False])
def test_consumers_create_topics_only_if_allowed(
    broker: Broker, new_topic: Callable[..., str], new_name: Callable[[], str], wanted: bool
) -> None:
    """Metadata of both topics is requested together, so one does not exist yet when the other was read to its end."""
    missing, there = new_name(), new_topic()
    ended = set()
    consumer = Confluent(broker.bootstrap).consumer(allow_auto_create_topics=wanted)
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, 0) for topic in (missing, there)])
        deadline = time.monotonic() + 60
        while ended != ({missing, there} if wanted else {there}):
            assert time.monotonic() < deadline, f"read to their ends: {ended}"
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error().code() == confluent.KafkaError._PARTITION_EOF
                ended.add(message.topic())
    finally:
        consumer.close()
    assert (missing in ConfluentAdmin(broker.bootstrap).topics()) == wanted


def test_listing_all_topics_creates_none(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    admin = ConfluentAdmin(broker.bootstrap)
    before = admin.topics()
    assert topic in before
    with KafkaPython(broker.bootstrap).consumer() as consumer:
        assert consumer.topics() >= {topic}
    assert admin.topics() == before


def test_creates_nothing_if_disabled(strict_broker: Broker) -> None:
    bootstrap = strict_broker.bootstrap
    acks = Confluent(bootstrap).write(
        "missing", numbered(1), topic_metadata_propagation_max_ms=100, message_timeout_ms=20_000
    )
    assert acks[0].error in (UNKNOWN_TOPIC, confluent.KafkaError._UNKNOWN_TOPIC)
    producer = KafkaPython(bootstrap).producer(max_block_ms=1000)
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        producer.send("missing", b"value").get(20)
    producer.close()

    async def send() -> None:
        async with Aiokafka(bootstrap).producer(request_timeout_ms=1000) as producer:
            with pytest.raises((aiokafka.errors.UnknownTopicOrPartitionError, aiokafka.errors.KafkaTimeoutError)):
                await producer.send_and_wait("missing", b"value", partition=0)

    run(send())
    if not install_kcat():
        done = Kcat(bootstrap).run(
            "-P", "-t", "missing", "-X", "message.timeout.ms=2000", "-X", "topic.metadata.propagation.max.ms=100",
            stdin=b"value", check=False,
        )  # fmt: skip
        assert done.returncode != 0
    assert ConfluentAdmin(bootstrap).topics() == set()


def test_uses_the_brokers_default_counts(strict_broker: Broker) -> None:
    admin = ConfluentAdmin(strict_broker.bootstrap)
    admin.create("made", -1, -1)
    eventually(lambda: "made" in admin.topics(), "the topic is listed")
    assert list(admin.describe("made")) == [0, 1, 2]
    client = Confluent(strict_broker.bootstrap)
    client.write("made", numbered(3, partition=2))
    assert_same(client.read("made", range(3)), numbered(3, partition=2))
    admin.delete("made")
    eventually(lambda: "made" not in admin.topics(), "the topic is gone")
