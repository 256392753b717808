"""Reading by offset and by timestamp, with the lookups of each client."""

import json
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka as confluent
import pytest
from tests.support.broker.admin_clients import Admin
from tests.support.broker.clients import Aiokafka, Client, Confluent, KafkaPython, Kcat, run
from tests.support.broker.java_clients import Java
from tests.support.broker.process import Broker
from tests.support.broker.records import START_MS, Record, assert_same, numbered, with_offsets
from tests.support.records.other_clients import kafka

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "kafka-clients")
COUNT, TRIMMED = 50, 7
NEWEST = 30  # the offset of the maximum timestamp, which is not the last record
TIMES_MS = {  # timestamp, and the offset of the first record with it or a later one
    0: TRIMMED,
    START_MS + 1: TRIMMED,
    START_MS + 20_000: 20,
    START_MS + 20_001: 21,
    START_MS + 500_000: NEWEST,
    START_MS + 500_001: None,
}


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Returns records a second apart, except for one that is far ahead."""
    rows = numbered(COUNT)
    rows[NEWEST] = rows[NEWEST]._replace(timestamp=START_MS + 500_000)
    return rows


@pytest.fixture(scope="module")
def topic(broker: Broker, new_topic: Callable[..., str], records: list[Record]) -> str:
    """A topic written in batches of five, with the first records deleted."""
    name = new_topic(prefix="offsets")
    for first in range(0, COUNT, 5):
        Confluent(broker.bootstrap).write(name, records[first : first + 5])
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    (done,) = admin.delete_records([confluent.TopicPartition(name, 0, TRIMMED)]).values()
    assert done.result(60).low_watermark == TRIMMED
    return name


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("start", [None, TRIMMED, 22, COUNT - 1, COUNT])
def test_reads_from_an_offset(
    get_client: Callable[[str], Client], topic: str, records: list[Record], client: str, start: int | None
) -> None:
    found = get_client(client).read(topic, [0], start)
    assert_same(found, records[TRIMMED if start is None else start :])


def confluent_lookups(broker: Broker, topic: str, times: list[int]) -> dict[str, Any]:
    consumer = Confluent(broker.bootstrap).consumer()
    try:
        tp = confluent.TopicPartition(topic, 0)
        beginning, end = consumer.get_watermark_offsets(tp, timeout=60)
        found = {}
        for time in times:
            (each,) = consumer.offsets_for_times([confluent.TopicPartition(topic, 0, time)], timeout=60)
            found[time] = None if each.offset == confluent.OFFSET_END else each.offset
    finally:
        consumer.close()
    return {"beginning": beginning, "end": end, "times": found}


def kafka_python_lookups(broker: Broker, topic: str, times: list[int]) -> dict[str, Any]:
    with KafkaPython(broker.bootstrap).consumer() as consumer:
        tp = kafka.TopicPartition(topic, 0)
        asked = {time: consumer.offsets_for_times({tp: time})[tp] for time in times}
        return {
            "beginning": consumer.beginning_offsets([tp])[tp],
            "end": consumer.end_offsets([tp])[tp],
            "times": {time: None if each is None else each.offset for time, each in asked.items()},
        }


def aiokafka_lookups(broker: Broker, topic: str, times: list[int]) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        tp = aiokafka.TopicPartition(topic, 0)
        async with Aiokafka(broker.bootstrap).consumer() as consumer:
            asked = {time: (await consumer.offsets_for_times({tp: time}))[tp] for time in times}
            return {
                "beginning": (await consumer.beginning_offsets([tp]))[tp],
                "end": (await consumer.end_offsets([tp]))[tp],
                "times": {time: None if each is None else each.offset for time, each in asked.items()},
            }

    return run(look())


def java_lookups(java: Java, topic: str, times: list[int]) -> dict[str, Any]:
    found = java.call("consumer_offsets", topic=topic, partitions=[0], times=times)
    by_time = {int(time): None if each is None else each[0] for time, each in found["times"].items()}
    return {**found, "times": by_time}


@pytest.mark.parametrize("look", [confluent_lookups, kafka_python_lookups, aiokafka_lookups])
def test_consumers_look_up_offsets(broker: Broker, topic: str, look: Callable[..., dict[str, Any]]) -> None:
    assert look(broker, topic, list(TIMES_MS)) == {"beginning": TRIMMED, "end": COUNT, "times": TIMES_MS}


def test_java_consumer_looks_up_offsets(java: Java, topic: str) -> None:
    assert java_lookups(java, topic, list(TIMES_MS)) == {"beginning": TRIMMED, "end": COUNT, "times": TIMES_MS}


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "kafka-clients"])
def test_admins_look_up_offsets(get_admin: Callable[[str], Admin], topic: str, client: str) -> None:
    admin = get_admin(client)
    assert admin.offset(topic, 0, "earliest") == (TRIMMED, -1)
    assert admin.offset(topic, 0, "latest") == (COUNT, -1)
    assert admin.offset(topic, 0, "max_timestamp") == (NEWEST, START_MS + 500_000)
    assert admin.offset(topic, 0, START_MS + 20_001) == (21, START_MS + 21_000)
    assert admin.offset(topic, 0, START_MS + 500_001) == (-1, -1)


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "kafka-clients"])
def test_empty_partition_has_no_max_timestamp(
    get_admin: Callable[[str], Admin], new_topic: Callable[..., str], client: str
) -> None:
    empty = new_topic(prefix="empty")
    assert get_admin(client).offset(empty, 0, "earliest") == (0, -1)
    assert get_admin(client).offset(empty, 0, "latest") == (0, -1)
    assert get_admin(client).offset(empty, 0, "max_timestamp") == (-1, -1)


def test_kcat_looks_up_offsets(kcat: Kcat, topic: str, records: list[Record]) -> None:
    for time, offset in TIMES_MS.items():
        printed = kcat.run("-Q", "-t", f"{topic}:0:{time}").stdout.decode()
        # A timestamp before all records returns the log start, one after all records the log end.
        assert printed.split() == [topic, "[0]", "offset", str(-1 if offset is None else offset)]
    newest_three = kcat.run("-C", "-t", topic, "-p", 0, "-o", -3, "-e", "-f", "%o ").stdout
    assert newest_three == b"47 48 49 "
    between = kcat.run(
        "-C", "-t", topic, "-p", 0, "-o", f"s@{START_MS + 10_000}", "-o", f"e@{START_MS + 15_000}", "-f", "%o "
    ).stdout
    assert between == b"10 11 12 13 14 "


def test_finds_a_timestamp_inside_a_compressed_batch(
    broker: Broker, get_admin: Callable[[str], Admin], new_topic: Callable[..., str]
) -> None:
    """The broker must search the batch for the record."""
    name = new_topic(prefix="inside")
    client = Confluent(broker.bootstrap)
    client.write(name, numbered(100), "zstd", linger_ms=200)
    client.write(name, numbered(100, at_ms=START_MS - 50_000), "lz4", linger_ms=200)  # older than the records before
    admin = get_admin("confluent-kafka")
    assert admin.offset(name, 0, START_MS - 1) == (0, START_MS)
    assert admin.offset(name, 0, START_MS + 41_500) == (42, START_MS + 42_000)
    assert admin.offset(name, 0, "max_timestamp") == (99, START_MS + 99_000)


# ---- offsets out of range: the consumer applies auto.offset.reset


@pytest.mark.parametrize("outside", [0, COUNT + 100])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_out_of_range_confluent(broker: Broker, topic: str, outside: int, reset: str) -> None:
    found = []
    consumer = Confluent(broker.bootstrap).consumer(auto_offset_reset=reset)
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, outside)])
        while not found or found[-1].error() is None:
            message = consumer.poll(60)
            assert message is not None
            found.append(message)
    finally:
        consumer.close()
    first = TRIMMED if reset == "earliest" else COUNT
    assert found[-1].error().code() == confluent.KafkaError._PARTITION_EOF
    assert [message.offset() for message in found] == list(range(first, COUNT + 1))


def test_out_of_range_error_without_reset(broker: Broker, topic: str) -> None:
    consumer = Confluent(broker.bootstrap).consumer(auto_offset_reset="error")
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, COUNT + 100)])
        message = consumer.poll(60)
        assert message is not None
        assert message.error().code() == confluent.KafkaError._AUTO_OFFSET_RESET
        assert "out of range" in message.error().str().lower()
    finally:
        consumer.close()
    tp = kafka.TopicPartition(topic, 0)
    with KafkaPython(broker.bootstrap).consumer(auto_offset_reset="none") as python_consumer:
        python_consumer.assign([tp])
        python_consumer.seek(tp, COUNT + 100)
        with pytest.raises(kafka.errors.OffsetOutOfRangeError):
            python_consumer.poll(timeout_ms=60_000)


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", "kafka-clients"])
def test_out_of_range_resets_the_position(
    get_client: Callable[[str], Client], topic: str, records: list[Record], client: str
) -> None:
    settings = {} if client != "kafka-clients" else {"auto_offset_reset": "earliest"}
    found = get_client(client).read(topic, [0], 3, **settings)  # 3 was deleted
    assert_same(found, records[TRIMMED:])


def test_finds_append_times(broker: Broker, get_admin: Callable[[str], Admin], new_topic: Callable[..., str]) -> None:
    name = new_topic(prefix="append-time", message_timestamp_type="LogAppendTime")
    client = Confluent(broker.bootstrap)
    for record in numbered(3):
        (ack,) = client.write(name, [record])
        assert ack.timestamp is not None
        assert ack.timestamp > START_MS + 1_000_000
    rows = client.read(name, [0])
    assert [row._replace(timestamp=None) for row in rows] == [
        row._replace(timestamp=None) for row in with_offsets(numbered(3))
    ]
    for admin in map(get_admin, ("confluent-kafka", "kafka-python")):
        found = admin.offset(name, 0, rows[1].timestamp or 0)
        assert found == next((row.offset, row.timestamp) for row in rows if row.timestamp == rows[1].timestamp)
        assert admin.offset(name, 0, "max_timestamp")[1] == rows[-1].timestamp


def test_kcat_lookup_as_json(kcat: Kcat, broker: Broker, topic: str) -> None:
    listed = json.loads(kcat.run("-L", "-J", "-t", topic).stdout)
    (found,) = listed["topics"]
    assert {node["name"] for node in listed["brokers"]} == set(broker.bootstrap.split(","))
    assert found["topic"] == topic
    (partition,) = found["partitions"]
    nodes = sorted(node["id"] for node in listed["brokers"])
    assert partition["leader"] in nodes
    for replicas in (partition["replicas"], partition["isrs"]):
        assert sorted(replica["id"] for replica in replicas) == nodes
