"""The blocking producer with a real broker: sending, waiting, closing, Arrow tables."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.broker.process import eventually
from tests.support.client.producer_logs import read_records, read_values

from headrace import aio
from headrace.client.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError
from headrace.client.producer import producer as producer_module
from headrace.client.producer.interceptors import OutgoingRecord
from headrace.client.producer.producer import Producer
from headrace.client.producer.sender_loop import SenderLoop
from headrace.common.errors import (
    ClusterAuthorizationFailedError,
    ConfigError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol import ApiKey
from headrace.records import partition_for_key
from headrace.testing import EmbeddedBroker

PATIENCE = 60
PATIENCE_MS = 60_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"auto.create.topics.enable": False}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"producer-{next(_numbers)}"
    broker.create_topic(name, 3)
    return name


@pytest.fixture(autouse=True)
def calm(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    broker.faults.clear()
    broker.resume()


def make(broker: EmbeddedBroker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})


class TestSenderTurns:
    """With a large backlog, `send` lets the sender's thread run."""

    def test_send_waits_for_sender_with_large_backlog(
        self, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turns = 0
        wake_and_wait = SenderLoop.wake_and_wait

        def counted(sender_loop: SenderLoop, timeout: float) -> None:
            nonlocal turns
            turns += 1
            wake_and_wait(sender_loop, timeout)

        monkeypatch.setattr(SenderLoop, "wake_and_wait", counted)
        with make(broker, **{"batch.size": 16_384}) as producer:
            for number in range(1000):
                producer.send(topic, b"%01000d" % number, partition=0)
            assert turns == 0
            monkeypatch.setattr(producer_module, "_BACKLOG_BYTES", 0)
            for number in range(1000, 2000):
                producer.send(topic, b"%01000d" % number, partition=0)
            assert turns >= 60  # one per batch
        assert read_values(broker, topic, 0) == [b"%01000d" % number for number in range(2000)]

    def test_send_continues_while_broker_is_paused(
        self, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producer_module, "_BACKLOG_BYTES", 0)
        with make(broker) as producer:
            producer.send(topic, b"first").get(timeout_ms=PATIENCE_MS)
            broker.pause()
            for _ in range(20_000):  # 20 MB, less than buffer.memory
                producer.send(topic, bytes(1000))
            assert producer._core.buffers.used_bytes > 20_000_000
            broker.resume()
            producer.flush(timeout_ms=PATIENCE_MS)
            assert producer._core.buffers.used_bytes == 0

    def test_callback_sends_with_large_backlog(
        self, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Callbacks run on the loop, which must not wait for itself."""
        monkeypatch.setattr(producer_module, "_BACKLOG_BYTES", 0)
        monkeypatch.setattr(producer_module, "_SENDER_TURN_SECONDS", PATIENCE)
        done = threading.Event()
        with make(broker) as producer:

            def answered(_: Any) -> None:
                producer.send(topic, b"second", partition=1).add_callback(lambda _: done.set())

            producer.send(topic, b"first", partition=0).add_callback(answered)
            assert done.wait(PATIENCE / 2)


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_broker_stores_record_as_sent(broker: EmbeddedBroker, topic: str, acks: str) -> None:
    with make(broker, acks=acks) as producer:
        future = producer.send(
            topic, b"value", key=b"key", headers=[("a", b"1"), ("a", None)], partition=1, timestamp_ms=1_700_000_000_123
        )
        metadata = future.get(timeout_ms=PATIENCE_MS)
        assert (metadata.topic, metadata.partition, metadata.timestamp) == (topic, 1, 1_700_000_000_123)
        assert metadata.offset == (-1 if acks == "0" else 0)
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 5)
    eventually(lambda: len(read_records(broker, topic, 1)) == 1, "the record is written")
    (record,) = read_records(broker, topic, 1)
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("a", b"1"), ("a", None)))
    assert record.timestamp == 1_700_000_000_123


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_codecs(broker: EmbeddedBroker, topic: str, codec: str) -> None:
    with make(broker, **{"compression.type": codec}) as producer:
        futures = [producer.send(topic, b"value %d " % n * 10, partition=0) for n in range(500)]
        producer.flush(timeout_ms=PATIENCE_MS)
        assert [future.get(timeout_ms=0).offset for future in futures] == list(range(500))
    assert read_values(broker, topic) == [b"value %d " % n * 10 for n in range(500)]


def test_invalid_records_fail_with_their_own_errors(broker: EmbeddedBroker) -> None:
    """The others of the batch fail, too, with an error that says why (KIP-467)."""
    name = f"producer-{next(_numbers)}"
    broker.create_topic(name, configs={"cleanup.policy": "compact"})
    with make(broker, **{"linger.ms": 60_000}) as producer:
        futures = [producer.send(name, b"value", key=key) for key in (b"a", None, b"b")]
        producer.flush()
    errors = [future.exception for future in futures]
    assert [type(error) for error in errors] == [KafkaError, InvalidRecordError, KafkaError]
    assert str(errors[1]) == f"Compacted topic cannot accept message without key in topic partition {name}-0"
    assert "part of a batch which had one or more invalid records" in str(errors[0])


def test_partitions_keys_like_java_clients(broker: EmbeddedBroker, topic: str) -> None:
    keys = [f"key-{n}".encode() for n in range(100)]
    with make(broker) as producer:
        futures = [producer.send(topic, b"v", key=key) for key in keys]
        for key, future in zip(keys, futures, strict=True):
            assert future.get(timeout_ms=PATIENCE_MS).partition == partition_for_key(key, 3)


def test_partitioners(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, partitioner="round_robin") as producer:
        futures = [producer.send(topic, b"v", key=b"same") for _ in range(9)]
        assert sorted(future.get(timeout_ms=PATIENCE_MS).partition for future in futures) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    with make(broker, partitioner=lambda key, everything, available: everything[-1]) as producer:
        assert producer.send(topic, b"v").get(timeout_ms=PATIENCE_MS).partition == 2
        assert producer.partitions_for(topic) == {0, 1, 2}
        assert producer.metrics()["type"] == "producer"
    with make(broker, linger_ms=0) as producer:
        spread = {producer.send(topic, b"v" * 20_000).get(timeout_ms=PATIENCE_MS).partition for _ in range(40)}
        assert spread == {0, 1, 2}


def test_serializers_callbacks_and_interceptors(broker: EmbeddedBroker, topic: str) -> None:
    heard: list[Any] = []

    class Interceptor:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(value=record.value.upper())

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            heard.append(("acknowledged", metadata.offset, error))

    with make(
        broker,
        value_serializer=str.encode,
        key_serializer=str.encode,
        interceptors=[Interceptor()],
        on_delivery=lambda error, metadata: heard.append(("delivered", metadata.offset, error)),
    ) as producer:
        producer.send(topic, "value", key="key", partition=0).get(timeout_ms=PATIENCE_MS)
    assert [(record.key, record.value) for record in read_records(broker, topic)] == [(b"key", b"VALUE")]
    assert heard == [("delivered", 0, None), ("acknowledged", 0, None)]


def test_many_threads_share_a_producer(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, **{"batch.size": 2000, "buffer.memory": 40_000}) as producer:

        def send(number: int) -> None:
            for n in range(500):
                producer.send(topic, b"%d %d" % (number, n), partition=number % 3)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(timeout_ms=PATIENCE_MS)
        assert producer._core.buffers.available_bytes == 40_000
    for partition in range(3):
        values = [value.split() for value in read_values(broker, topic, partition) if value]
        assert len(values) == 1000
        for number in (partition, partition + 3):
            assert [int(n) for who, n in values if int(who) == number] == list(range(500))


def test_splits_batch_too_large_for_topic(broker: EmbeddedBroker) -> None:
    topic = f"small-{next(_numbers)}"
    broker.create_topic(topic, 1, {"max.message.bytes": "1000"})
    with make(broker, linger_ms=50) as producer:
        futures = [producer.send(topic, b"%03d" % n + b"v" * 100) for n in range(200)]
        large = producer.send(topic, b"v" * 2000)
        after = producer.send(topic, b"after")
        assert [future.get(timeout_ms=PATIENCE_MS).offset for future in futures] == list(range(200))
        with pytest.raises(MessageSizeTooLargeError):
            large.get(timeout_ms=PATIENCE_MS)
        assert after.get(timeout_ms=PATIENCE_MS).offset == 200


def test_invalid_records_fail(broker: EmbeddedBroker, topic: str) -> None:
    heard: list[Any] = []
    with make(broker, **{"max.request.size": 5000}) as producer:
        future = producer.send(topic, b"v" * 6000, on_delivery=lambda error, _: heard.append(type(error)))
        assert isinstance(future.exception, MessageSizeTooLargeError)
        assert heard == [MessageSizeTooLargeError]
        with pytest.raises(InvalidTopicError):
            producer.send("no such/topic", b"v")
        with pytest.raises(TypeError, match="must be bytes or None, not str"):
            producer.send(topic, "text")


def test_unknown_topic_and_partition_time_out(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, max_block_ms=300) as producer:
        with pytest.raises((UnknownTopicOrPartitionError, KafkaTimeoutError)):
            producer.send("nowhere", b"v")
        with pytest.raises(KafkaTimeoutError, match="Partition 7"):
            producer.send(topic, b"v", partition=7)


def test_waits_for_partition_to_be_created(broker: EmbeddedBroker) -> None:
    topic = f"growing-{next(_numbers)}"
    broker.create_topic(topic, 1)
    with make(broker) as producer:
        producer.send(topic, b"v").get(timeout_ms=PATIENCE_MS)
        producer._thread.call(producer._core.client.metadata.request_update)
        found: list[int] = []
        waiting = threading.Thread(
            target=lambda: found.append(producer.send(topic, b"v", partition=1).get(timeout_ms=PATIENCE_MS).partition)
        )
        waiting.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE)
        waiting.join(PATIENCE)
        assert found == [1]


def test_full_buffer_blocks_up_to_max_block_ms(broker: EmbeddedBroker, topic: str) -> None:
    settings = {"buffer.memory": 100_000, "batch.size": 10_000, "max.block.ms": 200, "linger.ms": 0}
    with make(broker, **settings) as producer:
        producer.send(topic, b"first", partition=0).get(timeout_ms=PATIENCE_MS)
        broker.pause()

        def fill() -> None:
            for _ in range(100):
                producer.send(topic, b"v" * 5000, partition=0)

        with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory"):
            fill()
        broker.resume()
        producer.flush(timeout_ms=PATIENCE_MS)
        assert (
            producer.send(topic, b"last", partition=0).get(timeout_ms=PATIENCE_MS).offset
            == len(read_values(broker, topic)) - 1
        )


def test_flush_times_out(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker) as producer:
        producer.flush(timeout_ms=0)
        producer.send(topic, b"first").get(timeout_ms=PATIENCE_MS)
        broker.pause()
        future = producer.send(topic, b"v")
        with pytest.raises(KafkaTimeoutError):
            producer.flush(timeout_ms=50)
        assert not future.is_done
        broker.resume()
        producer.flush(timeout_ms=PATIENCE_MS)
        assert future.succeeded()


def test_close_sends_queued_records(broker: EmbeddedBroker, topic: str) -> None:
    producer = make(broker, linger_ms=60_000, delivery_timeout_ms=200_000)
    futures = [producer.send(topic, b"v", partition=0) for _ in range(10)]
    producer.close()
    assert [future.get(timeout_ms=0).offset for future in futures] == list(range(10))
    producer.close()
    for call in (lambda: producer.send(topic, b"v"), producer.begin_transaction):
        with pytest.raises(IllegalStateError):
            call()


def test_close_with_zero_timeout_fails_queued_records(broker: EmbeddedBroker, topic: str) -> None:
    producer = make(broker)
    producer.send(topic, b"first").get(timeout_ms=PATIENCE_MS)
    broker.pause()
    sent = producer.send(topic, b"in flight")
    eventually(lambda: producer._core.sender.in_flight_count == 1, "the batch is in flight")
    waiting = producer.send(topic, b"waiting", partition=2)
    producer.close(timeout_ms=0)
    for future in (sent, waiting):
        assert isinstance(future.exception, IllegalStateError) or future.failed()


def test_callback_may_send_but_not_flush(broker: EmbeddedBroker, topic: str) -> None:
    done = threading.Event()
    seen: list[Any] = []
    with make(broker) as producer:
        producer.send(topic, b"first", partition=0).get(timeout_ms=PATIENCE_MS)

        def again(error: Any, metadata: Any) -> None:
            seen.append(producer.send(topic, b"from a callback", partition=0))
            try:
                producer.flush()
            except IllegalStateError as refused:
                seen.append(refused)
            done.set()

        producer.send(topic, b"second", partition=0, on_delivery=again)
        assert done.wait(PATIENCE)
        assert seen[0].get(timeout_ms=PATIENCE_MS).offset == 2
        assert isinstance(seen[1], IllegalStateError)


def test_non_retriable_error_fails_future(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker) as producer:
        producer.send(topic, b"v", partition=0).get(timeout_ms=PATIENCE_MS)
        with (
            broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError),
            pytest.raises(TopicAuthorizationFailedError),
        ):
            producer.send(topic, b"v", partition=0).get(timeout_ms=PATIENCE_MS)
        assert producer.send(topic, b"v", partition=0).get(timeout_ms=PATIENCE_MS).offset == 1


def test_fails_without_producer_id(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker) as producer, broker.faults.error(ApiKey.INIT_PRODUCER_ID, ClusterAuthorizationFailedError):
        first = producer.send(topic, b"v")
        with pytest.raises(ClusterAuthorizationFailedError) as caught:
            first.get(timeout_ms=PATIENCE_MS)
        assert caught.value.fatal
        assert producer.send(topic, b"v").failed()


def test_rejects_invalid_configs(broker: EmbeddedBroker) -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        make(broker, linger=5)
    with pytest.raises(ConfigError, match="partitioner"):
        make(broker, partitioner="nobody")


# ---- Arrow


def table(rows: int, **more: Any) -> pa.Table:
    return pa.table({"value": pa.array([b"%d" % n for n in range(rows)], pa.binary()), **more})


def test_send_arrow_returns_one_future(broker: EmbeddedBroker, topic: str) -> None:
    keys = [None if n % 7 == 0 else b"k%d" % n for n in range(5000)]
    data = table(5000, key=pa.array(keys, pa.binary()), timestamp=pa.array(range(1000, 6000), pa.int64()))
    with make(broker) as producer:
        done = threading.Event()
        future = producer.send_arrow(topic, data).add_done(lambda error, metadata: done.set())
        metadata = future.get(timeout_ms=PATIENCE_MS)
        assert done.wait(PATIENCE)
        assert (metadata.topic, metadata.rows) == (topic, 5000)
        assert sum(part.rows for part in metadata.ranges) == 5000
        assert future.value == metadata
        assert future.succeeded()
    found = 0
    for partition in range(3):
        records = read_records(broker, topic, partition)
        found += len(records)
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers), "rows of a partition keep their order"
        for record, number in zip(records, numbers, strict=True):
            assert record.timestamp == 1000 + number
            assert record.key == keys[number]
            assert record.key is None or partition_for_key(record.key, 3) == partition
    assert found == 5000


def test_send_arrow_with_partition_and_headers(broker: EmbeddedBroker, topic: str) -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"%d" % n}] for n in range(30)],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    data = table(30, partition=pa.array([n % 3 for n in range(30)]), headers=headers).to_batches()[0]
    with make(broker) as producer:
        producer.send_arrow(topic, data).get(timeout_ms=PATIENCE_MS)
        producer.send_arrow(topic, data.slice(3, 4), partition=0).get(timeout_ms=PATIENCE_MS)
        with pytest.raises(IllegalArgumentError, match="partition"):
            producer.send_arrow(topic, table(1, partition=pa.array([3])))
    assert read_values(broker, topic, 0) == [*(b"%d" % n for n in range(0, 30, 3)), b"3", b"4", b"5", b"6"]
    assert read_records(broker, topic, 1)[2].headers == (("h", b"7"),)


def test_send_arrow_accepts_data_frames(broker: EmbeddedBroker, topic: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed: run make")
    pd = pytest.importorskip("pandas", reason="pandas is not installed: run make")
    pl = pytest.importorskip("polars", reason="Polars is not installed: run make")
    keys = [f"key {number % 7}" for number in range(3000)]
    values = [f"a value that is longer than twelve bytes, {number}" for number in range(3000)]
    frame = pl.DataFrame({"key": keys, "value": values, "other": list(range(3000))})
    assert frame["value"].dtype == pl.String
    frames = [
        frame,
        frame.with_columns(pl.col("key").cast(pl.Categorical)),
        pd.DataFrame({"key": keys, "value": values}),
    ]
    with make(broker) as producer:
        futures = [producer.send_arrow(topic, data) for data in [*frames, duckdb.sql("SELECT key, value FROM frame")]]
        assert [future.get(timeout_ms=PATIENCE_MS).rows for future in futures] == [3000] * 4
    found = {partition: read_values(broker, topic, partition) for partition in range(3)}
    for partition, read in found.items():
        of_partition = [
            value.encode()
            for key, value in zip(keys, values, strict=True)
            if partition_for_key(key.encode(), 3) == partition
        ]
        assert read == of_partition * 4


def test_rows_and_records_keep_order(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, linger_ms=1000) as producer:
        producer.send(topic, b"before", partition=0)
        producer.send_arrow(topic, table(3), partition=0)
        producer.send(topic, b"after", partition=0)
        producer.flush(timeout_ms=PATIENCE_MS)
    assert read_values(broker, topic) == [b"before", b"0", b"1", b"2", b"after"]


def test_send_arrow_with_table_larger_than_buffer_memory(broker: EmbeddedBroker, topic: str) -> None:
    data = pa.table({"value": pa.array([b"%06d" % n + b"v" * 1000 for n in range(3000)], pa.binary())})
    with make(broker, **{"buffer.memory": 500_000}) as producer:
        assert producer.send_arrow(topic, data, partition=0).get(timeout_ms=PATIENCE_MS).rows == 3000
        assert producer._core.buffers.available_bytes == 500_000
    assert [value[:6] for value in read_values(broker, topic) if value] == [b"%06d" % n for n in range(3000)]


def test_send_arrow_splits_batches_too_large_for_topic(broker: EmbeddedBroker) -> None:
    topic = f"small-{next(_numbers)}"
    broker.create_topic(topic, 1, {"max.message.bytes": "2000"})
    with make(broker) as producer:
        metadata = producer.send_arrow(topic, table(2000)).get(timeout_ms=PATIENCE_MS)
        assert len(metadata.ranges) > 5
        assert [part.base_offset for part in metadata.ranges] == sorted(part.base_offset for part in metadata.ranges)
    assert read_values(broker, topic) == [b"%d" % n for n in range(2000)]


@pytest.mark.parametrize("partition", [3, -1, 2**40])
def test_send_arrow_checks_partitions_before_first_row(broker: EmbeddedBroker, topic: str, partition: int) -> None:
    rows = 20_000
    values = pa.array([b"v" * 500] * rows, pa.binary())
    partitions = pa.array([*(n % 3 for n in range(rows - 1)), partition])
    data = pa.table({"value": values, "partition": partitions})
    with make(broker) as producer:
        for rows_to_send in (data, data.to_batches()[0]):
            with pytest.raises(IllegalArgumentError, match=f"contains {partition}, but the topic has 3 partitions"):
                producer.send_arrow(topic, rows_to_send)
        with pytest.raises(IllegalArgumentError, match="has type string: expected integers"):
            producer.send_arrow(topic, table(1, partition=pa.array(["0"])))
        producer.flush(timeout_ms=PATIENCE_MS)
    assert [read_values(broker, topic, number) for number in range(3)] == [[], [], []]


def too_large_at_the_end() -> pa.Table:
    """Returns three valid batches of rows and a row that is too large."""
    values = [b"%06d" % n + b"v" * 1000 for n in range(3000)]
    return pa.table({"value": pa.array([*values, b"v" * 2_000_000], pa.binary())})


def test_send_arrow_error_after_first_rows_fails_future(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker) as producer:
        future = producer.send_arrow(topic, too_large_at_the_end(), partition=0)
        with pytest.raises(MessageSizeTooLargeError, match=r"larger than max\.request\.size"):
            future.get(timeout_ms=PATIENCE_MS)
        assert future.failed()
        assert future.value is None
        written = sum(part.rows for part in future.acknowledged)
        assert 2000 <= written <= 3000
        with pytest.raises(MessageSizeTooLargeError):  # raised, because no row was sent
            producer.send_arrow(topic, too_large_at_the_end().slice(3000), partition=0)
        assert producer._core.buffers.available_bytes == producer.config.buffer_memory
    assert len(read_values(broker, topic)) == written


def test_send_arrow_without_memory_for_last_rows(broker: EmbeddedBroker, topic: str) -> None:
    data = pa.table({"value": pa.array([b"v" * 1000] * 3000, pa.binary())})
    with make(broker, **{"buffer.memory": 500_000, "max.block.ms": 300}) as producer:
        producer.partitions_for(topic)
        broker.pause()
        try:
            future = producer.send_arrow(topic, data, partition=0)
            assert not future.is_done, "some rows should be in flight"
        finally:
            broker.resume()
        with pytest.raises(KafkaTimeoutError, match=r"max\.block\.ms"):
            future.get(timeout_ms=PATIENCE_MS)
        written = sum(part.rows for part in future.acknowledged)
        assert 0 < written < 3000
    assert len(read_values(broker, topic)) == written


def test_partly_sent_table_requires_abort(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send_arrow(topic, too_large_at_the_end(), partition=0)
        with pytest.raises(MessageSizeTooLargeError, match="The transaction must be aborted"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert future.failed()


def test_asyncio_send_arrow_error_after_first_rows_fails_future(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> int:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            future = await producer.send_arrow(topic, too_large_at_the_end(), partition=0)
            with pytest.raises(MessageSizeTooLargeError):
                await future
            return sum(part.rows for part in future.acknowledged)

    written = asyncio.run(main())
    assert 2000 <= written == len(read_values(broker, topic)) <= 3000


def test_send_arrow_rejects_invalid_data(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker) as producer:
        with pytest.raises(IllegalArgumentError, match="'value'"):
            producer.send_arrow(topic, pa.table({"other": [1]}))
        with pytest.raises(TypeError, match="Table"):
            producer.send_arrow(topic, [b"v"])  # type: ignore[arg-type]
        assert producer.send_arrow(topic, table(0)).get(timeout_ms=PATIENCE_MS).rows == 0
