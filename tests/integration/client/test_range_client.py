"""Ranges of offsets, as the Spark source reads them."""

import threading
import time
from collections.abc import Iterator

import pytest

import headrace
from headrace.client.consumer.range_client import EARLIEST, LATEST, RangeClient, RangeColumns
from headrace.client.errors import KafkaTimeoutError
from headrace.common.errors import NotLeaderForPartitionError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from headrace.common.types import TopicPartition
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def client(headrace_broker: EmbeddedBroker) -> Iterator[RangeClient]:
    client = RangeClient({"bootstrap.servers": headrace_broker.bootstrap_servers, "max.partition.fetch.bytes": 65536})
    yield client
    client.close()


def send(broker: EmbeddedBroker, topic: str, values: list[bytes | None], **settings: object) -> None:
    with headrace.Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, key=b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)


def values(portions: list[RangeColumns]) -> list[bytes | None]:
    return [value for columns in portions for value in columns.values.to_pylist()]


def offsets(portions: list[RangeColumns]) -> list[int]:
    return [offset for columns in portions for offset in columns.offsets.to_pylist()]


def test_reads_exactly_the_range(headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient) -> None:
    tp = TopicPartition(headrace_topic, 0)
    send(headrace_broker, headrace_topic, [b"%d" % number for number in range(100)], linger_ms=50)
    assert client.partitions([headrace_topic, "nowhere"]) == {headrace_topic: [0]}
    assert headrace_topic in client.topics()
    assert client.offsets({}) == {}
    assert client.offsets({tp: EARLIEST}) == {tp: 0}
    assert client.offsets({tp: LATEST}) == {tp: 100}
    assert client.offsets({tp: 1_700_000_000_040}) == {tp: 40}
    for start, end in ((0, 100), (0, 1), (99, 100), (13, 57), (20, 20)):
        portions = list(client.read(tp, start, end))
        assert offsets(portions) == list(range(start, end))
        assert values(portions) == [b"%d" % number for number in range(start, end)]
    (columns,) = client.read(tp, 5, 7)
    assert columns.keys.to_pylist() == [b"5", b"6"]
    assert columns.timestamps.cast("int64").to_pylist() == [1_700_000_000_005_000, 1_700_000_000_006_000]
    assert columns.timestamp_types.to_pylist() == [0, 0]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_long_range_is_split_into_columns(
    headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient, codec: str
) -> None:
    tp = TopicPartition(headrace_topic, 0)
    sent: list[bytes | None] = [b"%d" % number * (number % 300) for number in range(5000)]
    send(headrace_broker, headrace_topic, sent, compression_type=codec, linger_ms=5, batch_size=100_000)
    portions = list(client.read(tp, 3, 4990, target_bytes=200_000))
    assert values(portions) == sent[3:4990]
    sizes = [columns.values.nbytes + columns.keys.nbytes for columns in portions]
    assert len(sizes) > 5
    assert max(sizes) < 400_000
    assert min(sizes[:-1]) > 100_000


def test_record_larger_than_target(headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient) -> None:
    sent: list[bytes | None] = [b"x" * 900_000, None, b"", b"y" * 300_000]
    send(headrace_broker, headrace_topic, sent)
    assert values(list(client.read(TopicPartition(headrace_topic, 0), 0, 4, target_bytes=1000))) == sent


def test_headers(headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient) -> None:
    with headrace.Producer(bootstrap_servers=headrace_broker.bootstrap_servers) as producer:
        producer.send(headrace_topic, b"1", headers=[("a", b"1"), ("b", None)])
        producer.send(headrace_topic, b"2")
    (columns,) = client.read(TopicPartition(headrace_topic, 0), 0, 2)
    assert columns.headers.to_pylist() == [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]


def test_read_committed(headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient) -> None:
    tp = TopicPartition(headrace_topic, 0)
    committed = RangeClient(
        {"bootstrap.servers": headrace_broker.bootstrap_servers, "isolation.level": "read_committed"}
    )
    with headrace.Producer(
        bootstrap_servers=headrace_broker.bootstrap_servers, transactional_id=headrace_topic
    ) as producer:
        producer.init_transactions()
        for name, is_good in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            for number in range(3):
                producer.send(headrace_topic, name + b"%d" % number, partition=0)
            producer.flush()
            if is_good:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        end = client.offsets({tp: LATEST})[tp]
        assert values(list(committed.read(tp, 0, end))) == [b"a0", b"a1", b"a2", b"c0", b"c1", b"c2"]
        assert len(values(list(client.read(tp, 0, end)))) == 9
        producer.begin_transaction()
        producer.send(headrace_topic, b"open", partition=0).get(timeout_ms=30_000)
        assert committed.offsets({tp: LATEST}) == {tp: end}
        assert client.offsets({tp: LATEST}) == {tp: end + 1}
        producer.abort_transaction()
    committed.close()


def test_offset_out_of_range_raises(headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient) -> None:
    tp = TopicPartition(headrace_topic, 0)
    send(headrace_broker, headrace_topic, [b"%d" % number for number in range(10)])
    with headrace.Admin(bootstrap_servers=headrace_broker.bootstrap_servers) as admin:
        admin.delete_records({tp: 4})
    with pytest.raises(OffsetOutOfRangeError) as caught:
        list(client.read(tp, 2, 10))
    assert caught.value.offset == 2  # type: ignore[attr-defined]
    with pytest.raises(OffsetOutOfRangeError):
        list(client.read(tp, 11, 12))
    assert offsets(list(client.read(tp, 4, 10))) == [4, 5, 6, 7, 8, 9]


def test_times_out_before_unreachable_end(
    headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient
) -> None:
    send(headrace_broker, headrace_topic, [b"1"])
    reading = client.read(TopicPartition(headrace_topic, 0), 0, 2, patience_ms=300)
    assert values([next(reading)]) == [b"1"]
    with pytest.raises(KafkaTimeoutError, match=r"from offset 1 \(end 2\)"):
        next(reading)


def test_missing_topic_raises(headrace_broker: EmbeddedBroker) -> None:
    client = RangeClient(
        {"bootstrap.servers": headrace_broker.bootstrap_servers, "topic.metadata.propagation.max.ms": 100}
    )
    with pytest.raises(UnknownTopicOrPartitionError):
        list(client.read(TopicPartition("nowhere", 0), 0, 2))
    client.close()


def test_retries_fetch_after_leader_change(
    headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient
) -> None:
    tp = TopicPartition(headrace_topic, 0)
    send(headrace_broker, headrace_topic, [b"x" * 1000] * 500)
    moved = headrace_broker.faults.error(ApiKey.FETCH, NotLeaderForPartitionError, times=2)
    lost = headrace_broker.faults.drop_reply(ApiKey.FETCH, times=1, close=True)
    assert offsets(list(client.read(tp, 0, 500))) == list(range(500))
    assert (moved.hits, lost.hits) == (2, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_survives_broker_restart(
    headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient, clean: bool
) -> None:
    tp = TopicPartition(headrace_topic, 0)
    send(headrace_broker, headrace_topic, [b"x" * 1000] * 500)
    reading = client.read(tp, 0, 500, target_bytes=20_000)
    portions = [next(reading)]
    headrace_broker.restart(clean=clean)
    portions += reading
    assert offsets(portions) == list(range(500))


def test_abandoned_range_does_not_affect_next(
    headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient
) -> None:
    tp = TopicPartition(headrace_topic, 0)
    send(headrace_broker, headrace_topic, [b"x" * 1000] * 500)
    reading = client.read(tp, 0, 500, target_bytes=20_000)
    next(reading)
    reading.close()
    assert offsets(list(client.read(tp, 100, 110))) == list(range(100, 110))


def test_wait_for_records(headrace_broker: EmbeddedBroker, headrace_topic: str, client: RangeClient) -> None:
    tp = TopicPartition(headrace_topic, 0)
    assert client.partitions([headrace_topic])
    assert not client.wait_for_records({tp: 0}, 50)
    sender = threading.Timer(0.05, send, (headrace_broker, headrace_topic, [b"1"]))
    sender.start()
    deadline = time.monotonic() + 60
    while not client.wait_for_records({tp: 0}, 5000):
        assert time.monotonic() < deadline
    assert client.offsets({tp: LATEST}) == {tp: 1}
    assert not client.wait_for_records({tp: 1}, 50)
    assert client.wait_for_records({tp: 7}, 50), "an offset out of range ends the wait too"
    sender.join()
