"""Records that the broker refuses, and records that it changes."""

import time
from collections.abc import Callable

import pytest
from tests.support.apache_kafka.dump_log import dump_log
from tests.support.broker.admin_clients import Admin
from tests.support.broker.clients import Ack, Client, Confluent, Kcat
from tests.support.broker.process import Broker, eventually
from tests.support.broker.records import CODECS, START_MS, Record, assert_same, numbered, with_offsets

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kafka-clients")
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87
INVALID_TOPIC = 17
LIMIT = 1_048_588
OVERHEAD = 61 + 11  # of a batch and its single record with an empty key and a value of more than 1 MB


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, get_client: Callable[[str], Client]) -> Client:
    return get_client(request.param)


def small_batches(client: Client) -> dict[str, object]:
    """Puts a large record into its own batch."""
    return {"max_batch_size" if client.name == "aiokafka" else "batch_size": 10_000}


def test_record_too_large(client: Client, new_topic: Callable[..., str]) -> None:
    """The record is refused permanently; records to other partitions, and later ones, succeed.

    No record follows it immediately in its partition: if a small record shares its batch, the Java client (4.3) splits
    the batch into the same two forever, also with Apache Kafka.
    """
    topic = new_topic(3)
    small = [row for partition in range(3) for row in numbered(5, partition)]
    large = Record(1, b"large", bytes(2_000_000), timestamp=START_MS)
    acks = client.write(topic, [*small[:10], large, *small[10:]], **small_batches(client))
    assert [ack.error for ack in acks] == [0] * 10 + [MESSAGE_TOO_LARGE] + [0] * 5
    after = numbered(1, partition=1)
    assert [(ack.offset, ack.error) for ack in client.write(topic, after)] == [(5, 0)]
    assert_same(client.read(topic, range(3)), with_offsets([*small, *after]))


def test_limit_applies_to_the_batch(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    for size, error in ((LIMIT - OVERHEAD, 0), (LIMIT - OVERHEAD + 1, MESSAGE_TOO_LARGE)):
        (ack,) = client.write(topic, [Record(0, b"", bytes(size), timestamp=START_MS)])
        assert ack.error == error
    # The limit applies to the compressed size, which is small.
    (ack,) = client.write(topic, [Record(0, b"", bytes(3_000_000), timestamp=START_MS)], "gzip")
    assert ack.error == 0
    assert [len(row.value or b"") for row in client.read(topic, [0])] == [LIMIT - OVERHEAD, 3_000_000]


def test_limit_of_a_topic(client: Client, get_admin: Callable[[str], Admin], new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes=1000)
    row = Record(0, b"key", bytes(2000), timestamp=START_MS)
    assert [ack.error for ack in client.write(topic, [row])] == [MESSAGE_TOO_LARGE]
    get_admin("confluent-kafka").alter("topic", topic, [("set", "max.message.bytes", "5000")])
    eventually(lambda: client.write(topic, [row])[0].error == 0, "the topic takes it")


def test_refuses_invalid_timestamps(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_before_max_ms=3_600_000, message_timestamp_after_max_ms=3_600_000)
    now = int(time.time() * 1000)
    for age_ms, error in ((0, 0), (7_200_000, INVALID_TIMESTAMP), (-7_200_000, INVALID_TIMESTAMP), (1_800_000, 0)):
        (ack,) = client.write(topic, [Record(0, b"key", b"value", timestamp=now - age_ms)])
        assert ack.error == error
    assert [row.timestamp for row in client.read(topic, [0])] == [now, now - 1_800_000]


def test_refuses_timestamps_in_the_future(client: Client, new_topic: Callable[..., str]) -> None:
    """By default Kafka accepts timestamps up to an hour ahead."""
    (ack,) = client.write(new_topic(), [Record(0, b"key", b"value", timestamp=int(time.time() * 1000) + 7_200_000)])
    assert ack.error == INVALID_TIMESTAMP


def test_compacted_topics_require_keys(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic(cleanup_policy="compact")
    for codec in CODECS:
        refused = -1 if client.name == "aiokafka" else INVALID_RECORD  # aiokafka does not know the error
        for key, error in ((None, refused), (b"", 0), (b"key", 0)):
            (ack,) = client.write(topic, [Record(0, key, b"value", timestamp=START_MS)], codec)
            assert ack.error == error, (codec, key)
    assert len(client.read(topic, [0])) == 2 * len(CODECS)


def test_min_insync_replicas_is_limited_by_the_replicas(client: Client, new_topic: Callable[..., str]) -> None:
    """Kafka requires `min.insync.replicas`, but at most the number of replicas."""
    topic = new_topic(min_insync_replicas=2)
    assert [ack.error for ack in client.write(topic, numbered(1))] == [0]
    assert_same(client.read(topic, [0]), numbered(1))


def test_acks_0(client: Client, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    acks = client.write(topic, numbered(5), acks=0)
    assert [ack.error for ack in acks] == [0] * 5
    eventually(lambda: len(client.read(topic, [0])) == 5, "the records are there")
    assert_same(client.read(topic, [0]), numbered(5))


def test_append_time(client: Client, new_topic: Callable[..., str]) -> None:
    """Producers get the append time in the response, consumers in the records."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    acks = [ack for codec in CODECS for ack in client.write(topic, numbered(3), codec)]
    after = int(time.time() * 1000)
    found = client.read(topic, [0])
    assert [ack.timestamp for ack in acks] == [row.timestamp for row in found]
    assert all(row.timestamp is not None and before <= row.timestamp <= after for row in found)
    assert [row.value for row in found] == [row.value for _ in CODECS for row in numbered(3)]


def test_compression_type_of_the_topic(
    apache_kafka: None, broker: Broker, get_client: Callable[[str], Client], new_topic: Callable[..., str]
) -> None:
    """Stored batches have the topic's codec, whatever was sent, and all clients can read them."""
    files = {}
    for stored in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"):
        topic = new_topic(compression_type=stored)
        rows = []
        for codec in CODECS:
            rows += [row._replace(value=(row.value or b"") * 100) for row in numbered(20)]
            get_client("kafka-clients").write(topic, rows[-20:], codec)
        for name in (*CLIENTS, "kcat"):
            assert_same(get_client(name).read(topic, [0]), with_offsets(rows))
        (files[stored],) = (broker.data_dir / f"{topic}-0").glob("*.log")
    dump = dump_log(*files.values(), deep=False)
    assert dump.problems == []
    for stored, file in files.items():
        found = [batch.fields["compresscodec"] for batch in dump.batches_of(file)]
        if stored == "producer":
            assert list(dict.fromkeys(found)) == list(CODECS)
        else:
            assert set(found) == {"none" if stored == "uncompressed" else stored}


# ---- missing topics and partitions


def test_errors_for_missing_partitions(broker: Broker, kcat: Kcat, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    acks = Confluent(broker.bootstrap).write(
        topic, [numbered(1, partition=7)[0]], topic_metadata_refresh_interval_ms=10
    )
    assert [ack.error for ack in acks] == [-190]  # librdkafka's own code for an unknown partition
    done = kcat.run("-P", "-t", topic, "-p", 7, stdin=b"value", check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("name", ["no good", "x" * 250])
def test_errors_for_invalid_topic_names(broker: Broker, name: str) -> None:
    acks = Confluent(broker.bootstrap).write(name, [Record(0, b"key", b"value")], message_timeout_ms=3000)
    assert acks[0].error in (INVALID_TOPIC, -192)  # refused, or timed out
    assert acks != [Ack(0)]
