"""Headrace's consumer and other clients: the same records from the same topics, the same committed offsets.

Runs against Headrace, and with HEADRACE_COMPAT_BROKER=kafka against Apache Kafka.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.clients import Confluent, KafkaPython, by_partition
from tests.support.broker.process import Broker
from tests.support.broker.records import (
    CODECS,
    START_MS,
    Record,
    assert_same,
    numbered,
    sample_records,
    with_offsets,
)
from tests.support.broker.transactional_producers import ConfluentTransactional
from tests.support.broker.under_test import make_broker

from headrace import Consumer, OffsetAndMetadata, TopicPartition, aio
from headrace.client.consumer.errors import OffsetsLostError
from headrace.client.errors import NoOffsetForPartitionError

PATIENCE = 60.0
PARTITIONS = 3
_numbers = itertools.count()

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    with make_broker(tmp_path_factory.mktemp("consumer") / "data", settings) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"consumer-{next(_numbers)}"
    admin = ConfluentAdmin(broker.bootstrap)
    admin.create(name, PARTITIONS)
    admin.close()
    return name


def make(broker: Broker, *topics: str, **settings: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=broker.bootstrap, **{"auto_offset_reset": "earliest", **settings})


def write(broker: Broker, topic: str, records: Sequence[Record], **settings: Any) -> None:
    failed = [ack for ack in Confluent(broker.bootstrap).write(topic, records, **settings) if ack.error]
    assert not failed


def row(record: Any) -> Record:
    return Record(record.partition, record.key, record.value, tuple(record.headers), record.timestamp, record.offset)


def read(consumer: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records arrived"
        for records in consumer.poll(1000).values():
            found += [row(record) for record in records]
    return by_partition(found)


def all_partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(PARTITIONS)]


@pytest.mark.parametrize("codec", CODECS)
def test_reads_records_of_all_clients(broker, topic, codec):
    records = [record for partition in range(PARTITIONS) for record in sample_records(partition)]
    write(broker, topic, records, codec=codec)
    with make(broker) as consumer:
        consumer.assign(all_partitions(topic))
        assert_same(read(consumer, len(records)), with_offsets(records))


def test_poll_arrow_returns_same_records(broker, topic):
    records = [record for partition in range(PARTITIONS) for record in sample_records(partition)]
    write(broker, topic, records, codec="lz4")
    found: list[Record] = []
    with make(broker) as consumer:
        consumer.assign(all_partitions(topic))
        deadline = time.monotonic() + PATIENCE
        while len(found) < len(records):
            assert time.monotonic() < deadline
            for each in consumer.poll_arrow(1000).to_pylist():
                headers = tuple((header["key"], header["value"]) for header in each["headers"])
                timestamp = round(each["timestamp"].timestamp() * 1000)
                found.append(Record(each["partition"], each["key"], each["value"], headers, timestamp, each["offset"]))
    assert_same(by_partition(found), with_offsets(records))


def test_asyncio_returns_same_records(broker, topic):
    records = [record for partition in range(PARTITIONS) for record in sample_records(partition)]
    write(broker, topic, records)

    async def main() -> list[Record]:
        found: list[Record] = []
        async with aio.Consumer(
            topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=f"group-{topic}"
        ) as consumer:
            async with asyncio.timeout(PATIENCE):
                async for record in consumer:
                    found.append(row(record))
                    if len(found) == len(records):
                        return found
        return found

    assert_same(by_partition(asyncio.run(main())), with_offsets(records))


def test_record_equals_kafka_python(broker, topic):
    write(broker, topic, sample_records(1)[:12])
    tp = TopicPartition(topic, 1)
    with make(broker, consumer_timeout_ms=int(PATIENCE * 1000)) as consumer:
        consumer.assign([tp])
        ours = list(itertools.islice(consumer, 12))
    theirs_consumer = KafkaPython(broker.bootstrap).consumer(auto_offset_reset="earliest")
    try:
        import kafka

        theirs_consumer.assign([kafka.TopicPartition(topic, 1)])
        theirs: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(theirs) < 12:
            assert time.monotonic() < deadline
            for records in theirs_consumer.poll(1000).values():
                theirs += records
    finally:
        theirs_consumer.close()
    assert ours[0]._fields == theirs[0]._fields
    for one, other in zip(ours, theirs, strict=True):
        assert one._asdict() | {"headers": None} == other._asdict() | {"headers": None}
        assert [tuple(header) for header in one.headers] == [tuple(header) for header in other.headers]


def test_offsets(broker, topic):
    write(broker, topic, numbered(10))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with make(broker) as consumer:
        assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert consumer.end_offsets([first, second]) == {first: 10, second: 0}
        found = consumer.offsets_for_times({first: START_MS + 4500, second: START_MS})
        assert found[first] is not None
        assert (found[first].offset, found[first].timestamp) == (5, START_MS + 5000)
        assert found[second] is None
        assert consumer.offsets_for_times({first: START_MS + 3_600_000})[first] is None
        assert topic in consumer.topics()
        assert consumer.partitions_for_topic(topic) == set(range(PARTITIONS))


def test_seek(broker, topic):
    write(broker, topic, numbered(10))
    tp = TopicPartition(topic, 0)
    with make(broker) as consumer:
        consumer.assign([tp])
        for seek, expected in (
            (lambda: consumer.seek(tp, 7), 7),
            (lambda: consumer.seek_to_beginning(tp), 0),
            (lambda: consumer.seek_to_tail(4), 6),
            (lambda: consumer.seek_to_timestamp(START_MS + 2500), 3),
        ):
            seek()
            assert consumer.position(tp) == expected
            assert [record.offset for record in read(consumer, 10 - expected)] == list(range(expected, 10))
            assert consumer.position(tp) == 10
            assert consumer.current_lag(tp) == 0
        consumer.seek_to_end()
        assert consumer.position(tp) == 10
        assert consumer.poll(100) == {}


def test_auto_offset_reset(broker, topic):
    write(broker, topic, numbered(10, at_ms=int(time.time() * 1000) - 9500))
    tp = TopicPartition(topic, 0)
    for policy, expected in (("earliest", 0), ("latest", 10), ("by_duration:P7D", 0), ("by_duration:PT0.001S", 10)):
        with make(broker, auto_offset_reset=policy) as consumer:
            consumer.assign([tp])
            assert consumer.position(tp) == expected, policy
    with make(broker, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(int(PATIENCE * 1000))
        consumer.seek(tp, 1000)
        with pytest.raises(OffsetsLostError):
            consumer.poll(int(PATIENCE * 1000))
        consumer.seek(tp, 8)
        assert [record.offset for record in read(consumer, 2)] == [8, 9]


def test_pause_and_resume(broker, topic):
    write(broker, topic, [*numbered(5, partition=0), *numbered(5, partition=1)])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with make(broker) as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert {record.partition for record in read(consumer, 5)} == {1}
        assert consumer.poll(300) == {}
        consumer.resume(first)
        assert {record.partition for record in read(consumer, 5)} == {0}


def test_partition_eof(broker, topic):
    write(broker, topic, numbered(5))
    tp = TopicPartition(topic, 0)
    ends: list[tuple[TopicPartition, int]] = []
    with make(
        broker, enable_partition_eof=True, on_partition_eof=lambda tp, offset: ends.append((tp, offset))
    ) as consumer:
        consumer.assign([tp])
        read(consumer, 5)
        deadline = time.monotonic() + PATIENCE
        while not ends:
            assert time.monotonic() < deadline
            consumer.poll(100)
        assert ends == [(tp, 5)]


class TestTransactions:
    def test_read_committed(self, broker, topic):
        producer = ConfluentTransactional(broker.bootstrap, f"txn-{topic}")
        try:
            for number, ends in enumerate(["commit", "abort", "commit", "abort", "abort", "commit"]):
                producer.begin()
                records = [Record(0, None, b"%d %s" % (number, ends.encode()), timestamp=START_MS) for _ in range(3)]
                producer.send(topic, records)
                getattr(producer, ends)()
            producer.begin()
            producer.send(topic, [Record(0, None, b"still open", timestamp=START_MS)])
            tp = TopicPartition(topic, 0)
            with make(broker, isolation_level="read_committed") as consumer:
                consumer.assign([tp])
                expected = [b"%d commit" % number for number in (0, 2, 5) for _ in range(3)]
                assert [record.value for record in read(consumer, 9)] == expected
                assert consumer.poll(300) == {}
                end = consumer.end_offsets([tp])[tp]
                assert consumer.position(tp) == end
                consumer.seek(tp, 0)
                values: list[bytes] = []
                deadline = time.monotonic() + PATIENCE
                while len(values) < 9:
                    assert time.monotonic() < deadline
                    values += consumer.poll_arrow(1000).column("value").to_pylist()
                assert values == expected
            with make(broker) as consumer:
                consumer.assign([tp])
                assert [record.value for record in read(consumer, 19)][-1] == b"still open"
            producer.commit()
        finally:
            producer.close()


class TestGroups:
    def test_committed_offsets_are_shared_between_clients(self, broker, topic):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, numbered(9))
        with make(broker, topic, group_id=group, enable_auto_commit=False, max_poll_records=3) as consumer:
            assert [record.offset for record in read(consumer, 3)] == [0, 1, 2]
            consumer.commit({tp: OffsetAndMetadata(3, "from headrace\0", -1)})
        confluent = Confluent(broker.bootstrap).consumer(group_id=group, enable_auto_commit=False)
        try:
            import confluent_kafka

            # confluent-kafka treats the metadata as a C string and reads up to the next zero byte: hence the one above.
            (found,) = confluent.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=PATIENCE)
            assert (found.offset, found.metadata) == (3, "from headrace")
            confluent.commit(
                offsets=[confluent_kafka.TopicPartition(topic, 0, 6, metadata="from librdkafka")], asynchronous=False
            )
        finally:
            confluent.close()
        with make(broker, topic, group_id=group, enable_auto_commit=False) as consumer:
            # confluent-kafka sends the zero byte that ends its C string.
            assert consumer.committed(tp, metadata=True).metadata.rstrip("\0") == "from librdkafka"
            assert [record.offset for record in read(consumer, 3)] == [6, 7, 8]

    def test_pattern_subscription(self, broker, topic):
        write(broker, topic, [*numbered(2, partition=0), *numbered(2, partition=2)])
        with make(broker, group_id=f"group-{topic}") as consumer:
            consumer.subscribe(pattern=f"{topic}$")
            assert len(read(consumer, 4)) == 4
            assert consumer.assignment() == set(all_partitions(topic))
            assert consumer.group_metadata().generation_id >= 1
