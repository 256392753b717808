"""Misuse of clients: errors are immediate and clear, and the client keeps working."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.client.producer_logs import read_values

from headrace import Admin, Consumer, KafkaError, OffsetAndMetadata, Producer, TopicPartition, aio
from headrace.admin import ConfigResource, NewTopic
from headrace.client.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError
from headrace.common.errors import (
    ConfigError,
    InvalidTopicError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

PATIENCE = 60
PATIENCE_MS = 60_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"auto.create.topics.enable": False, "group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """Ten records in one partition."""
    name = f"misuse-{next(_numbers)}"
    broker.create_topic(name, 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number)
    return name


def consumer(broker: EmbeddedBroker, *topics: str, **settings: Any) -> Consumer:
    return Consumer(*topics, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)


def poll_ten(reading: Consumer) -> list[Any]:
    seen: list[Any] = []
    while len(seen) < 10:
        found = reading.poll(PATIENCE_MS)
        assert found
        seen += [record.value for records in found.values() for record in records]
    return seen


def is_free(lock: Any) -> bool:
    taken: bool = lock.acquire(blocking=False)
    if taken:
        lock.release()
    return taken


TEN = [b"%d" % number for number in range(10)]


class TestConfig:
    @pytest.mark.parametrize("make", [Producer, Admin])
    def test_address_as_only_argument_raises(self, make: Any) -> None:
        with pytest.raises(ConfigError, match=r"keyword arguments \(bootstrap_servers=\.\.\.\) or a mapping, not str"):
            make("localhost:9092")

    @pytest.mark.parametrize("topics", [["a", "b"], b"a", 5])
    def test_list_of_topics_raises(self, topics: Any) -> None:
        with pytest.raises(TypeError, match="topics must be str, each a separate argument"):
            Consumer(topics)

    @pytest.mark.parametrize(
        ("make", "settings", "words"),
        [
            (Producer, {"bootstrap_server": "a:1"}, "did you mean 'bootstrap.servers'"),
            (Consumer, {"groupid": "g"}, "did you mean 'group.id'"),
            (Producer, {"linger_ms": "soon"}, "linger.ms"),
            (Producer, {"bootstrap_servers": []}, "bootstrap.servers is empty"),
            (Producer, {"bootstrap_servers": "localhost:http"}, "localhost:http"),
            (Producer, {"bootstrap_servers": "9092"}, "'9092' is not an address"),
            (Producer, {"partitioner": 5}, "partitioner"),
            (
                Producer,
                {"interceptors": [3]},
                "interceptors=[3] is not valid: expected a list of objects with on_send or",
            ),
            (Producer, {"interceptors": 3}, "interceptors=3 is not valid"),
            (Producer, {"on_delivery": 3}, "on.delivery=3 is not valid: expected a function"),
            (Consumer, {"interceptors": [object]}, "expected a list of objects with on_consume or on_commit"),
            (Consumer, {"error_cb": "log"}, "error.cb='log' is not valid: expected a function"),
            (Consumer, {"auto_offset_reset": "first"}, "auto.offset.reset"),
            (Consumer, {"group_id": "g", "partition_assignment_strategy": ["fair"]}, "fair"),
            (Admin, {"request_timeout_ms": 0}, "request.timeout.ms"),
        ],
    )
    def test_invalid_config_raises_and_leaves_no_thread(self, make: Any, settings: Any, words: str) -> None:
        before = set(threading.enumerate())
        with pytest.raises(ConfigError) as told:
            make(**settings)
        assert words in str(told.value)
        assert set(threading.enumerate()) <= before


class TestAdmin:
    def test_wrong_arguments_raise(self, broker: EmbeddedBroker, topic: str) -> None:
        resource = ConfigResource("topic", topic, {"retention.ms": ("foo", "1")})
        calls: list[tuple[Callable[[Admin], Any], type[Exception], str]] = [
            (lambda admin: admin.create_topics([3]), TypeError, "a topic must be of type NewTopic or str, not int 3"),
            (lambda admin: admin.create_topics(None), TypeError, "topics must be a list, not NoneType"),
            (lambda admin: admin.create_topics(NewTopic("a")), ValueError, "topics must be a list"),
            (lambda admin: admin.describe_topics([3]), TypeError, "must be of type str or Uuid, not int 3"),
            (lambda admin: admin.create_partitions({topic: "3"}), TypeError, "total_count must be of type int"),
            (lambda admin: admin.describe_configs([topic]), TypeError, "must be a list of ConfigResources, not of"),
            (lambda admin: admin.describe_configs(resource), TypeError, "must be a list of ConfigResources"),
            (lambda admin: admin.alter_configs([resource]), ValueError, "operation on retention.ms='foo' is not valid"),
            (lambda admin: admin.list_partition_offsets({(topic, 0): "x"}), ValueError, "'x' is not an OffsetSpec"),
            (lambda admin: admin.list_partition_offsets({(topic, 0): -77}), ValueError, "-77 is not an OffsetSpec"),
            (
                lambda admin: admin.list_partition_offsets({(topic, 0): -1}, "x"),
                ValueError,
                "expected read_uncommitted",
            ),
            (lambda admin: admin.delete_records([(topic, 0)]), TypeError, "records_to_delete must be a mapping"),
        ]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for call, error, words in calls:
                with pytest.raises(error, match=words):
                    call(admin)

    def test_errors_name_the_topic_group_or_partition(self, broker: EmbeddedBroker, topic: str) -> None:
        calls: list[tuple[Callable[[Admin], Any], str]] = [
            (lambda admin: admin.describe_topics(["none"]), "Topic 'none' does not exist"),
            (lambda admin: admin.describe_topic_partitions(["none"]), "Topic 'none' does not exist"),
            (lambda admin: admin.delete_groups(["none"]), "Group none: "),
            (lambda admin: admin.alter_group_offsets("g", {("none", 0): 1}), "Partition none-0 does not exist"),
            (lambda admin: admin.delete_records({(topic, 0): 99}), f"Partition {topic}-0: "),
            (lambda admin: admin.describe_transactions(["none"]), "Transactional id none: "),
        ]
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for call, words in calls:
                with pytest.raises(KafkaError, match=words):
                    call(admin)


class TestProducer:
    @pytest.mark.parametrize(
        ("partition", "error", "words"),
        [
            (-1, IllegalArgumentError, "expected a number from 0"),
            (2**31, IllegalArgumentError, "expected a number from 0"),
            (0.5, TypeError, "float"),
            ("0", TypeError, "str"),
        ],
    )
    def test_invalid_partitions_raise(
        self, broker: EmbeddedBroker, topic: str, partition: Any, error: type[Exception], words: str
    ) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(error, match=words):
                producer.send(topic, b"value", partition=partition)
            assert producer.send(topic, b"value", partition=0).get(timeout_ms=PATIENCE_MS).offset == 10

    def test_negative_close_timeout_raises(self, broker: EmbeddedBroker, topic: str) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(ValueError, match="timeout_ms=-1 is not valid"):
                producer.close(timeout_ms=-1)
            assert producer.send(topic, b"value").get(timeout_ms=PATIENCE_MS).offset == 10

    def test_close_closes_serializers(self, broker: EmbeddedBroker, topic: str) -> None:
        class Closing:
            def serialize(self, topic: str, data: str) -> bytes:
                return data.encode()

            def deserialize(self, topic: str, data: bytes) -> str:
                return data.decode()

            def close(self) -> None:
                closed.append(self)
                raise RuntimeError("close")

        closed: list[Any] = []
        made = Closing()
        with Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=made) as producer:
            producer.send(topic, "text").get(timeout_ms=PATIENCE_MS)
        with consumer(broker, topic, value_deserializer=made) as reading:
            assert reading.poll(PATIENCE_MS)
        assert closed == [made, made]

    def test_shared_error_traceback_does_not_grow(self, broker: EmbeddedBroker, topic: str) -> None:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
        futures = [producer.send(topic, b"value") for _ in range(20)]
        producer.close(timeout_ms=0)
        for future in futures:
            with pytest.raises(IllegalStateError, match="closed") as told:
                future.get(timeout_ms=0)
        assert len(told.traceback) < 5

    def test_expired_record_names_the_last_error(self, topic: str, broker: EmbeddedBroker) -> None:
        settings = {
            "linger_ms": 0,
            "request_timeout_ms": 400,
            "delivery_timeout_ms": 500,
            "reconnect_backoff_max_ms": 50,
        }
        with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
            producer.partitions_for(topic)
            with broker.faults.error(ApiKey.PRODUCE, KafkaStorageError):
                future = producer.send(topic, b"value")
                with pytest.raises(KafkaTimeoutError, match="last error: ") as told:
                    future.get(timeout_ms=PATIENCE_MS)
                assert isinstance(told.value.__cause__, KafkaStorageError)
            broker.kill()
            try:
                future = producer.send(topic, b"value")
                with pytest.raises(KafkaTimeoutError, match="last error: could not connect"):
                    future.get(timeout_ms=PATIENCE_MS)
            finally:
                broker.start()
            assert producer.send(topic, b"value").get(timeout_ms=PATIENCE_MS).offset == 10


class TestTransactions:
    def test_commit_fails_after_a_rejected_record(self, broker: EmbeddedBroker, topic: str) -> None:
        settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": topic}
        with Producer(**settings) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"with it")
            refused = producer.send(topic, bytes(2_000_000))
            with pytest.raises(MessageSizeTooLargeError, match="The transaction must be aborted"):
                producer.commit_transaction()
            assert isinstance(refused.exception, MessageSizeTooLargeError)
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(topic, b"without")
            producer.commit_transaction()
        assert read_values(broker, topic, committed=True) == [*TEN, b"without"]

    def test_commit_fails_after_a_rejected_record_in_asyncio(self, broker: EmbeddedBroker, topic: str) -> None:
        async def main() -> None:
            async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send(topic, bytes(2_000_000))
                with pytest.raises(MessageSizeTooLargeError, match="The transaction must be aborted"):
                    await producer.commit_transaction()
                await producer.abort_transaction()

        asyncio.run(main())

    @pytest.mark.parametrize(
        ("offsets", "group", "error", "words"),
        [
            ({"t": 1}, "g", TypeError, "a partition must be a TopicPartition, not str 't'"),
            ({TopicPartition("t", 0): -1}, "g", ValueError, "the offset to commit must be at least 0, not -1"),
            ({TopicPartition("t", 0): 1}, 5, TypeError, "consumer.group_metadata"),
        ],
    )
    def test_invalid_offsets_raise(
        self, broker: EmbeddedBroker, topic: str, offsets: Any, group: Any, error: type[Exception], words: str
    ) -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            with pytest.raises(error, match=words):
                producer.send_offsets_to_transaction(offsets, group)
            producer.commit_transaction()


class TestConsumer:
    def test_failing_interceptor_loses_no_records(self, broker: EmbeddedBroker, topic: str) -> None:
        class Failing:
            def on_consume(self, records: Any) -> Any:
                raise RuntimeError("on_consume")

            def on_commit(self, offsets: Any) -> None:
                commits.append(offsets)
                raise RuntimeError("on_commit")

        commits: list[Any] = []
        group = f"group-{next(_numbers)}"
        with consumer(broker, topic, group_id=group, enable_auto_commit=False, interceptors=[Failing()]) as reading:
            assert poll_ten(reading) == TEN
            reading.commit()
            reading.poll(0)
        assert commits == [{TopicPartition(topic, 0): OffsetAndMetadata(10, "", 0)}]

    def test_interceptor_may_drop_records(self, broker: EmbeddedBroker, topic: str) -> None:
        class OnlyEven:
            def on_consume(self, records: Any) -> Any:
                return {tp: [each for each in some if each.offset % 2 == 0] for tp, some in records.items()}

        with consumer(broker, topic, interceptors=[OnlyEven()], consumer_timeout_ms=PATIENCE_MS) as reading:
            assert [next(reading).value for _ in range(5)] == TEN[::2]
            assert reading.position(TopicPartition(topic, 0)) == 10
            reading.seek_to_beginning()
            assert [record.value for records in reading.poll(PATIENCE_MS).values() for record in records] == TEN[::2]

    def test_failing_rebalance_listener_raises_and_consuming_continues(
        self, broker: EmbeddedBroker, topic: str
    ) -> None:
        class Failing:
            def on_partitions_assigned(self, tps: Any) -> None:
                raise RuntimeError("assigned")

            def on_partitions_revoked(self, tps: Any) -> None:
                raise RuntimeError("revoked")

            def on_partitions_lost(self, tps: Any) -> None:
                pass

        before = set(threading.enumerate())
        reading = consumer(broker, group_id=f"group-{next(_numbers)}")
        reading.subscribe([topic], listener=Failing())  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="assigned"):
            reading.poll(PATIENCE_MS)
        assert poll_ten(reading) == TEN
        with pytest.raises(RuntimeError, match="revoked"):
            reading.close()
        reading.close()
        assert {thread.name for thread in set(threading.enumerate()) - before}.isdisjoint({"headrace-consumer"})

    def test_missing_topic_raises(self, broker: EmbeddedBroker) -> None:
        with consumer(broker) as reading:
            assert reading.partitions_for_topic("nowhere") is None
            with pytest.raises(InvalidTopicError):
                reading.partitions_for_topic("no/where")

    def test_list_of_partitions_raises(self, broker: EmbeddedBroker, topic: str) -> None:
        with consumer(broker) as reading:
            reading.assign([TopicPartition(topic, 0)])
            for call in (reading.pause, reading.resume, reading.seek_to_beginning):
                with pytest.raises(TypeError, match="a partition must be a TopicPartition, not list"):
                    call([TopicPartition(topic, 0)])  # type: ignore[arg-type]
            assert poll_ten(reading) == TEN

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ({"timeout_ms": None}, TypeError, r"a number of milliseconds, not NoneType; float\('inf'\) waits forever"),
            ({"timeout_ms": "5"}, TypeError, "a number of milliseconds, not str"),
            ({"timeout_ms": -1}, ValueError, "at least 0, not -1"),
            ({"timeout_ms": float("nan")}, ValueError, "at least 0, not nan"),
            ({"max_records": 2.5}, TypeError, "max_records must be an int, not float"),
            ({"max_records": "5"}, TypeError, "max_records must be an int, not str"),
            ({"max_records": 0}, ValueError, "at least 1, not 0"),
        ],
    )
    def test_invalid_poll_arguments_raise(
        self, broker: EmbeddedBroker, topic: str, arguments: dict[str, Any], error: type[Exception], words: str
    ) -> None:
        async def main() -> None:
            async with aio.Consumer(bootstrap_servers=broker.bootstrap_servers) as reading:
                for call in (reading.poll, reading.poll_arrow):
                    with pytest.raises(error, match=words):
                        await call(**arguments)

        asyncio.run(main())
        with consumer(broker) as reading:
            reading.assign([TopicPartition(topic, 0)])
            for call in (reading.poll, reading.poll_arrow):
                with pytest.raises(error, match=words):
                    call(**arguments)
            assert poll_ten(reading) == TEN

    def test_unassigned_partitions_raise_value_error(self, broker: EmbeddedBroker, topic: str) -> None:
        other = TopicPartition(topic, 1)
        with consumer(broker) as reading:
            with pytest.raises(ValueError, match="No partitions are assigned"):
                reading.seek_to_end()
            reading.assign([TopicPartition(topic, 0)])
            for call in (reading.seek_to_beginning, reading.seek_to_end, lambda tp: reading.seek(tp, 0)):
                with pytest.raises(ValueError, match="is not assigned"):
                    call(other)
                with pytest.raises(TypeError, match="a partition must be a TopicPartition, not str"):
                    call(topic)
            with pytest.raises(IllegalStateError):
                reading.position(other)
            with pytest.raises(ValueError, match="the seek offset must be an int and must not be negative"):
                reading.seek(TopicPartition(topic, 0), -1)

    def test_invalid_subscriptions_raise(self, broker: EmbeddedBroker, topic: str) -> None:
        with consumer(broker) as reading:
            with pytest.raises(ValueError, match="needs topics or a pattern"):
                reading.subscribe()
            with pytest.raises(TypeError, match="not the str"):
                reading.subscribe(topic)
            with pytest.raises(IllegalStateError, match="mutually exclusive"):
                reading.subscribe([topic], pattern="x")
            with pytest.raises(TypeError, match="on_partitions_assigned; list has none"):
                reading.subscribe([topic], listener=[])  # type: ignore[arg-type]
            assert reading.subscription() is None

    def test_wrong_arguments_raise(self, broker: EmbeddedBroker, topic: str) -> None:
        calls: list[tuple[Callable[[Consumer], Any], type[Exception], str]] = [
            (lambda reading: reading.assign(TopicPartition(topic, 0)), TypeError, "must be a list of TopicPartitions"),
            (lambda reading: reading.assign(TopicPartition), TypeError, "not the class TopicPartition"),
            (
                lambda reading: reading.subscribe(pattern="["),
                ValueError,
                "pattern '.' is not a valid regular expression",
            ),
            (lambda reading: reading.subscribe(pattern=5), TypeError, "pattern must be a str or a compiled"),
            (lambda reading: reading.subscribe(5), TypeError, "topics must be a list of topic names, not the int 5"),
            (lambda reading: reading.seek_to_tail("x"), ValueError, "count must be an int and at least 0, not 'x'"),
        ]
        with consumer(broker) as reading:
            for call, error, words in calls:
                with pytest.raises(error, match=words):
                    call(reading)

    def test_unreachable_servers_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with Consumer("t", bootstrap_servers="localhost:1", client_id="billing") as reading:
            eventually(lambda: reading.poll(10) == {} and "billing" in caplog.text, "a warning", PATIENCE)
        assert (
            "Client billing: none of the bootstrap servers (localhost:1) is reachable, retrying: could not connect to "
            "localhost:1: Connection refused"
        ) in caplog.text

    @pytest.mark.parametrize("name", ["smallest", "beginning"])
    def test_older_names_of_offset_resets(self, broker: EmbeddedBroker, topic: str, name: Any) -> None:
        with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset=name) as reading:
            assert poll_ten(reading) == TEN

    def test_subscribe_and_assign_are_not_mixed(self, broker: EmbeddedBroker, topic: str) -> None:
        part = TopicPartition(topic, 0)
        with consumer(broker) as reading:
            reading.assign([part])
            with pytest.raises(IllegalStateError, match="unsubscribe"):
                reading.subscribe([topic])
            with pytest.raises(IllegalStateError, match="not assigned"):
                reading.seek(TopicPartition(topic, 1), 0)
            with pytest.raises(IllegalStateError, match="no group"):
                reading.commit()
            with pytest.raises(ValueError, match="at least 0, not -1"):
                reading.poll(-1)
            assert poll_ten(reading) == TEN

    def test_rejected_commit_names_the_reason(self, broker: EmbeddedBroker, topic: str) -> None:
        with consumer(broker, group_id=f"group-{next(_numbers)}") as reading:
            reading.commit({TopicPartition(topic, 0): 0})  # finds the coordinator, which may take longer than 300 ms
            with pytest.raises(KafkaTimeoutError, match="the last error") as told:
                reading.commit({TopicPartition(topic, 7): 1}, timeout_ms=300)
            assert isinstance(told.value.__cause__, UnknownTopicOrPartitionError)
            reading.commit({TopicPartition(topic, 0): 1})
            assert reading.committed(TopicPartition(topic, 0)) == 1

    def test_concurrent_use_raises(self, broker: EmbeddedBroker, topic: str) -> None:
        reading = consumer(broker)
        reading.assign([TopicPartition(topic, 0)])
        assert poll_ten(reading) == TEN
        outcome: list[Any] = []

        def wait() -> None:
            try:
                outcome.append(reading.poll(PATIENCE_MS))
            except IllegalStateError as error:
                outcome.append(error)

        other = threading.Thread(target=wait)
        other.start()
        eventually(lambda: not is_free(reading._polling), "the other thread to poll")
        with pytest.raises(IllegalStateError, match="another thread is polling"):
            reading.poll(0)
        reading.close()
        other.join(PATIENCE)
        assert [str(each) for each in outcome] == ["This consumer has already been closed"]
