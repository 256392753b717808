"""The blocking consumer with a real broker: its methods, the threads that run user code, and commits."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.broker.process import eventually
from tests.support.net.wire_calls import batch, produce
from tests.support.net.wire_client import WireClient

from headrace import Consumer, OffsetAndMetadata, TopicPartition
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, WakeupError
from headrace.testing import EmbeddedBroker

PATIENCE_MS = 60_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def open_consumer(broker: EmbeddedBroker) -> Iterator[Callable[..., Consumer]]:
    opened: list[Consumer] = []

    def make(*topics: str, **settings: Any) -> Consumer:
        given = {"auto_offset_reset": "earliest", **settings}
        opened.append(Consumer(*topics, bootstrap_servers=broker.bootstrap_servers, **given))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def write(broker: EmbeddedBroker, topic: str, *values: bytes, partition: int = 0) -> None:
    with WireClient(broker.address) as client:
        reply = produce(client, batch(*values), topic=topic, partition=partition)
        assert reply.error_code == 0


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    eventually(lambda: len(_poll_into(consumer, found)) >= count, f"{count} records", PATIENCE_MS / 1000)
    return found


def _poll_into(consumer: Consumer, found: list[bytes]) -> list[bytes]:
    for records in consumer.poll(100).values():
        found += [record.value for record in records]
    return found


class TestReading:
    def test_reads_old_and_new_records(self, broker, topic, open_consumer):
        write(broker, topic, b"a", b"b")
        consumer = open_consumer()
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        assert read(consumer, 2) == [b"a", b"b"]
        write(broker, topic, b"c")
        assert read(consumer, 1) == [b"c"]
        assert consumer.position(tp) == 3
        assert consumer.highwater(tp) == 3
        assert consumer.current_lag(tp) == 0
        assert consumer.poll(0) == {}

    def test_iteration(self, broker, topic, open_consumer):
        write(broker, topic, b"a", b"b", b"c")
        consumer = open_consumer(topic, consumer_timeout_ms=8000)
        tp = TopicPartition(topic, 0)
        seen = []
        for record in consumer:
            seen.append((record.value, consumer.position(tp)))
            if len(seen) == 2:
                break
        assert seen == [(b"a", 1), (b"b", 2)]
        assert next(consumer).value == b"c"
        consumer.seek(tp, 1)
        assert [record.value for record in consumer] == [b"b", b"c"]

    def test_arrow(self, broker, topic, open_consumer):
        write(broker, topic, b"a", b"b", partition=0)
        write(broker, topic, b"c", partition=1)
        consumer = open_consumer(topic)
        tables = []
        eventually(lambda: sum(map(len, _arrow(consumer, tables))) == 3, "three rows", PATIENCE_MS / 1000)
        rows = [row for table in tables for row in table.to_pylist()]
        assert sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in rows) == [
            (topic, 0, 0, b"a"),
            (topic, 0, 1, b"b"),
            (topic, 1, 0, b"c"),
        ]

    def test_offsets(self, broker, topic, open_consumer):
        write(broker, topic, *(b"%d" % number for number in range(10)))
        consumer = open_consumer()
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        assert consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert consumer.end_offsets([first, second]) == {first: 10, second: 0}
        found = consumer.offsets_for_times({first: 1, second: 1})
        assert found[first] is not None
        assert found[first].offset == 0
        assert found[second] is None
        for ask in (consumer.beginning_offsets, consumer.end_offsets):
            with pytest.raises(TypeError, match="partitions must be a list of TopicPartitions, not TopicPartition"):
                ask(first)
        consumer.assign([first])
        consumer.seek_to_tail(3, first)
        assert read(consumer, 3) == [b"7", b"8", b"9"]
        consumer.seek_to_beginning()
        assert consumer.position(first) == 0
        consumer.seek_to_end(first)
        assert consumer.position(first) == 10

    def test_pattern_without_group(self, broker, open_consumer):
        stem = f"pattern-{next(_numbers)}"
        for name in (f"{stem}-a", f"{stem}-b", f"not-{stem}"):
            broker.create_topic(name, 1)
            write(broker, name, name.encode())
        consumer = open_consumer()
        consumer.subscribe(pattern=f"{stem}-.*")
        assert sorted(read(consumer, 2)) == [f"{stem}-a".encode(), f"{stem}-b".encode()]
        assert consumer.subscription() == {f"{stem}-a", f"{stem}-b"}

    def test_topics_and_partitions(self, topic, open_consumer):
        consumer = open_consumer()
        assert topic in consumer.topics()
        assert "__consumer_offsets" not in consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0, 1}
        assert consumer.bootstrap_connected()
        consumer.bootstrap(timeout_ms=PATIENCE_MS)
        consumer.bootstrap(timeout_ms=PATIENCE_MS, refresh=True)

    def test_bootstrap_waits_for_a_broker(self, broker, open_consumer):
        consumer = open_consumer()
        assert not consumer.bootstrap_connected()
        consumer.bootstrap()
        assert consumer.bootstrap_connected()
        with (
            Consumer(bootstrap_servers="localhost:1") as lonely,
            pytest.raises(KafkaTimeoutError, match="could not connect to localhost:1"),
        ):
            lonely.bootstrap(timeout_ms=500)

    def test_raw_metrics_and_config(self, broker, open_consumer):
        consumer = open_consumer(client_id="named")
        consumer.bootstrap()
        names = {(name.group, name.name): metric.value() for name, metric in consumer.metrics(raw=True).items()}
        assert names["consumer-metrics", "client_id"] == consumer.config["client_id"] == "named"
        assert names["consumer-node-metrics", "tx"] >= 1
        assert consumer.metrics()["client_id"] == "named"


def _arrow(consumer: Consumer, tables: list[Any]) -> list[Any]:
    tables.append(consumer.poll_arrow(100))
    return tables


class TestThreads:
    def test_wakeup_from_another_thread(self, open_consumer):
        consumer = open_consumer()
        timer = threading.Timer(0.05, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_MS)
        timer.join()

    def test_refuses_concurrent_polls(self, broker, topic, open_consumer):
        consumer = open_consumer()
        consumer.assign([TopicPartition(topic, 0)])
        failures: list[Exception] = []
        inside = threading.Event()

        def poll() -> None:
            inside.set()
            try:
                consumer.poll(PATIENCE_MS)
            except WakeupError:
                return
            except Exception as error:  # noqa: BLE001 - looked at below
                failures.append(error)

        thread = threading.Thread(target=poll)
        thread.start()
        inside.wait()
        eventually(lambda: _is_refused(consumer), "the second thread gets an error")
        consumer.wakeup()
        thread.join()
        assert failures == []

    def test_listeners_run_in_polling_thread(self, broker, topic, open_consumer):
        told: list[tuple[str, set[TopicPartition], bool]] = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                told.append(("assigned", set(assigned), threading.current_thread() is threading.main_thread()))
                # A listener may use the consumer.
                consumer.seek_to_beginning(*assigned)
                assert {consumer.position(tp) for tp in assigned} == {0}

            def on_partitions_revoked(self, revoked):
                told.append(("revoked", set(revoked), threading.current_thread() is threading.main_thread()))
                consumer.commit({tp: OffsetAndMetadata(7, "by the listener") for tp in revoked})

        both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        group = f"group-{topic}"
        write(broker, topic, b"a")
        consumer = open_consumer(group_id=group, enable_auto_commit=False)
        consumer.subscribe([topic], listener=Listener())
        assert read(consumer, 1) == [b"a"]
        assert told == [("assigned", both, True)]
        consumer.unsubscribe()
        assert told[1:] == [("revoked", both, True)]
        assert consumer.assignment() == set()
        other = open_consumer(group_id=group)
        found = other.committed(TopicPartition(topic, 1), metadata=True)
        assert found == OffsetAndMetadata(7, "by the listener", -1)

    def test_listener_may_commit_during_close(self, topic, open_consumer):
        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                consumer.commit(dict.fromkeys(revoked, 5))

        group = f"group-{topic}"
        consumer = open_consumer(group_id=group, enable_auto_commit=False)
        consumer.subscribe([topic], listener=Listener())
        eventually(lambda: consumer.poll(50) == {} and len(consumer.assignment()) == 2, "an assignment")
        consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.commit({TopicPartition(topic, 0): 1})
        assert open_consumer(group_id=group).committed(TopicPartition(topic, 0)) == 5

    def test_poll_raises_listener_errors(self, topic, open_consumer):
        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                raise ZeroDivisionError

        consumer = open_consumer(group_id=f"group-{topic}")
        consumer.subscribe([topic], listener=Listener())
        with pytest.raises(ZeroDivisionError):
            consumer.poll(PATIENCE_MS)
        assert len(consumer.assignment()) == 2

    def test_program_ends_without_close(self, broker):
        import subprocess
        import sys

        code = (
            "from headrace import Consumer, TopicPartition\n"
            f"consumer = Consumer('x', bootstrap_servers={broker.bootstrap_servers!r}, group_id='forgetful')\n"
            "consumer.poll(100)\n"
        )
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def _is_refused(consumer: Consumer) -> bool:
    try:
        consumer.poll(0)
    except IllegalStateError:
        return True
    return False


class TestCommits:
    def committed(self, open_consumer, group: str, tp: TopicPartition) -> Any:
        return open_consumer(group_id=group).committed(tp)

    def test_manual_commit(self, broker, topic, open_consumer):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, b"a", b"b", b"c")
        consumer = open_consumer(group_id=group, enable_auto_commit=False, max_poll_records=2)
        consumer.assign([tp])
        assert consumer.committed(tp) is None
        assert read(consumer, 2) == [b"a", b"b"]
        consumer.commit()
        assert consumer.committed(tp) == 2
        consumer.commit({tp: OffsetAndMetadata(1, "a note", -1)})
        assert consumer.committed(tp, metadata=True) == OffsetAndMetadata(1, "a note", -1)
        consumer.commit({tp: 3})
        assert consumer.committed(tp) == 3
        with pytest.raises(ValueError, match="at least 0"):
            consumer.commit({tp: -1})
        with pytest.raises(TypeError, match="TopicPartition"):
            consumer.commit({topic: 1})

    def test_commit_async(self, broker, topic, open_consumer):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, b"a")
        consumer = open_consumer(group_id=group, enable_auto_commit=False)
        consumer.assign([tp])
        read(consumer, 1)
        told: list[Any] = []
        future = consumer.commit_async(
            callback=lambda offsets, error: told.append((dict(offsets), error, threading.current_thread()))
        )
        assert future.result(PATIENCE_MS / 1000) == {tp: OffsetAndMetadata(1, "", 0)}
        eventually(lambda: bool(consumer.poll(10) or told), "the callback of a commit")
        assert told == [({tp: OffsetAndMetadata(1, "", 0)}, None, threading.current_thread())]

    def test_automatic_commit(self, broker, topic, open_consumer):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, b"a", b"b")
        consumer = open_consumer(topic, group_id=group, auto_commit_interval_ms=50)
        read(consumer, 2)
        eventually(lambda: consumer.poll(10) == {} and consumer.committed(tp) == 2, "a commit by time")

    def test_records_of_current_poll_are_not_committed(self, broker, topic, open_consumer):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, b"a", b"b", b"c")
        consumer = open_consumer(topic, group_id=group, auto_commit_interval_ms=20)
        records = iter(consumer)
        next(records)
        next(records)
        # The user processes the second record, so the first is processed.
        eventually(lambda: consumer.committed(tp) == 1, "a commit of the first record")
        next(records)
        eventually(lambda: consumer.committed(tp) == 2, "a commit of the second record")

    def test_close_commits_polled_records(self, broker, topic, open_consumer):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, b"a", b"b")
        with open_consumer(topic, group_id=group, auto_commit_interval_ms=3_600_000) as consumer:
            read(consumer, 2)
        assert self.committed(open_consumer, group, tp) == 2

    def test_close_after_error_does_not_commit(self, broker, topic, open_consumer):
        group, tp = f"group-{topic}", TopicPartition(topic, 0)
        write(broker, topic, b"a", b"b")
        consumer = open_consumer(topic, group_id=group, auto_commit_interval_ms=3_600_000)
        read(consumer, 2)
        consumer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        assert self.committed(open_consumer, group, tp) is None

    def test_continues_at_committed_offset(self, broker, topic, open_consumer):
        group = f"group-{topic}"
        write(broker, topic, b"a", b"b", b"c")
        with open_consumer(topic, group_id=group, max_poll_records=1) as consumer:
            assert read(consumer, 1) == [b"a"]
        with open_consumer(topic, group_id=group) as consumer:
            assert read(consumer, 2) == [b"b", b"c"]
