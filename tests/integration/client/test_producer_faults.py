"""Faults between an idempotent producer and a broker: no record is lost, duplicated or out of order, and futures are
right."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.cutting_proxy import CuttingProxy
from tests.support.broker.process import Headrace, eventually
from tests.support.client.producer_logs import read_values

from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.client.producer.producer import Producer
from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from headrace.common.ids import make_random
from headrace.net.transport import PlainTransport
from headrace.protocol import ApiKey
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.testing import EmbeddedBroker

PATIENCE = 120
PATIENCE_MS = 60_000
_numbers = itertools.count()
QUICK: dict[str, Any] = {
    "batch.size": 250,
    "linger.ms": 0,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 20,
}
"""Configs for many small batches in flight."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(autouse=True)
def calm(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    broker.faults.clear()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"faults-{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


def make(broker: EmbeddedBroker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **QUICK, **settings})


def value(number: int) -> bytes:
    return b"%06d" % number + b"v" * 60


def check_complete(broker: EmbeddedBroker, topic: str, futures: list[FutureRecordMetadata]) -> None:
    """Checks that partition 0 has every record once, in order, at its future's offset."""
    assert [future.get(timeout_ms=PATIENCE_MS).offset for future in futures] == list(range(len(futures)))
    assert read_values(broker, topic) == [value(number) for number in range(len(futures))]


ERRORS = [
    NotLeaderForPartitionError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    KafkaStorageError,
    CoordinatorLoadInProgressError,
]


@pytest.mark.parametrize("error", ERRORS)
def test_retries_retriable_produce_errors(broker: EmbeddedBroker, topic: str, error: type[KafkaError]) -> None:
    with make(broker) as producer:
        fault = broker.faults.error(ApiKey.PRODUCE, error, times=5)
        futures = [producer.send(topic, value(number), partition=0) for number in range(100)]
        check_complete(broker, topic, futures)
        assert fault.hits == 5


@pytest.mark.parametrize(
    "strike",
    [
        lambda faults: faults.drop_connection(ApiKey.PRODUCE, times=4),
        lambda faults: faults.drop_reply(ApiKey.PRODUCE, times=4, close=True),
        lambda faults: faults.error(ApiKey.PRODUCE, NotEnoughReplicasAfterAppendError, times=3),
        lambda faults: faults.drop_connection(ApiKey.METADATA, times=2),
        lambda faults: faults.drop_connection(ApiKey.INIT_PRODUCER_ID, times=2),
        lambda faults: faults.delay(ApiKey.PRODUCE, 5, times=20),
    ],
    ids=["request lost", "response lost", "written with error", "no metadata", "no producer id", "slow"],
)
def test_survives_lost_connections_and_responses(
    broker: EmbeddedBroker, topic: str, strike: Callable[[Any], Any]
) -> None:
    with make(broker) as producer:
        fault = strike(broker.faults)
        futures = [producer.send(topic, value(number), partition=0) for number in range(200)]
        check_complete(broker, topic, futures)
        assert fault.hits >= 1


def test_retries_after_request_timeout(broker: EmbeddedBroker, topic: str) -> None:
    """The records are in the log, but there is no response."""
    with make(broker, request_timeout_ms=200) as producer:
        producer.send(topic, value(0), partition=0).get(timeout_ms=PATIENCE_MS)
        lost = broker.faults.drop_reply(ApiKey.PRODUCE, times=1)
        futures = [producer.send(topic, value(number), partition=0) for number in range(1, 30)]
        assert [future.get(timeout_ms=PATIENCE_MS).offset for future in futures] == list(range(1, 30))
        assert lost.hits == 1
        assert producer._core.sender.retries >= 1
    assert read_values(broker, topic) == [value(number) for number in range(30)]


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumberError, UnknownProducerIdError])
def test_lost_sequence_bumps_epoch_without_loss(broker: EmbeddedBroker, topic: str, error: type[KafkaError]) -> None:
    with make(broker) as producer:
        futures = [producer.send(topic, value(0), partition=0)]
        futures[0].get(timeout_ms=PATIENCE_MS)
        broker.faults.error(ApiKey.PRODUCE, error, times=1)
        futures += [producer.send(topic, value(number), partition=0) for number in range(1, 30)]
        check_complete(broker, topic, futures)
        assert producer._core.idempotence is not None
        assert producer._core.idempotence.sequences.identity.epoch >= 1


def test_batch_after_rejected_retry_is_written(broker: EmbeddedBroker, topic: str) -> None:
    """A batch is written but its response is lost, and the retry is rejected. The broker would acknowledge the next
    batch with the same sequence numbers as a duplicate, without writing it."""
    with make(broker) as producer:
        producer.send(topic, value(0), partition=0).get(timeout_ms=PATIENCE_MS)
        lost = broker.faults.drop_reply(ApiKey.PRODUCE, times=1, close=True)
        rejected = broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        failed = producer.send(topic, value(1), partition=0)
        with pytest.raises(TopicAuthorizationFailedError):
            failed.get(timeout_ms=PATIENCE_MS)
        assert (lost.hits, rejected.hits) == (1, 1)
        assert producer.send(topic, value(2), partition=0).get(timeout_ms=PATIENCE_MS).offset == 2
    assert read_values(broker, topic) == [value(0), value(1), value(2)]


@pytest.mark.parametrize("seed", range(3))
def test_random_faults(broker: EmbeddedBroker, topic: str, seed: int) -> None:
    random = make_random(seed)
    faults = broker.faults
    with make(broker, request_timeout_ms=500) as producer:
        futures: list[FutureRecordMetadata] = []
        for round_number in range(15):
            strike = random.choice(
                [
                    lambda: faults.drop_connection(ApiKey.PRODUCE, times=random.randrange(1, 3)),
                    lambda: faults.drop_reply(ApiKey.PRODUCE, times=random.randrange(1, 4), close=True),
                    lambda: faults.error(ApiKey.PRODUCE, random.choice(ERRORS), times=random.randrange(1, 6)),
                    lambda: faults.delay(ApiKey.PRODUCE, random.randrange(1, 20), times=3),
                    lambda: faults.error(ApiKey.PRODUCE, NotEnoughReplicasAfterAppendError, times=2),
                    lambda: faults.drop_connection(ApiKey.METADATA, times=1),
                ]
            )
            strike()
            futures += [
                producer.send(topic, value(len(futures) + n), partition=0) for n in range(random.randrange(1, 40))
            ]
            if round_number % 5 == 4:
                producer.flush(timeout_ms=PATIENCE_MS)
        producer.flush(timeout_ms=PATIENCE_MS)
        faults.clear()
        check_complete(broker, topic, futures)


def test_survives_cut_at_every_byte_of_responses() -> None:
    """Cuts a connection after each possible number of response bytes, from the first byte of ApiVersions to the last
    one of a Produce response."""
    with CuttingProxy() as proxy, EmbeddedBroker(proxy.properties, topics={"t": 1}) as broker:
        proxy.target = broker.address
        settings = {"bootstrap.servers": proxy.bootstrap_servers, **QUICK}
        with Producer(settings) as producer:
            futures = [producer.send("t", value(0))]
            futures[0].get(timeout_ms=PATIENCE_MS)
            # The number of response bytes on a new connection until a record is acknowledged.
            before = proxy.replied_bytes
            proxy.cut_now()
            futures.append(producer.send("t", value(1)))
            futures[1].get(timeout_ms=PATIENCE_MS)
            whole = proxy.replied_bytes - before
            for size in range(1, whole + 3):
                proxy.cut_after(size)
                proxy.cut_now()
                futures.append(producer.send("t", value(len(futures))))
                futures[-1].get(timeout_ms=PATIENCE_MS)
            assert proxy.cuts >= whole
        check_complete(broker, "t", futures)


def test_survives_broker_restarts(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker, make(broker) as producer:
        futures: list[FutureRecordMetadata] = []
        for clean in (True, False, True):
            # Retries after a kill must arrive before a clean stop. After that the broker knows only the last batch of
            # each producer, as in Kafka, and would write the others again.
            producer.flush(timeout_ms=PATIENCE_MS)
            futures += [producer.send("t", value(len(futures) + n)) for n in range(20)]
            broker.restart(clean=clean)
            futures += [producer.send("t", value(len(futures) + n)) for n in range(20)]
        producer.flush(timeout_ms=PATIENCE_MS)
        check_complete(broker, "t", futures)


def test_late_request_does_not_lose_responses(tmp_path: Path) -> None:
    """A broker responds and stops cleanly. Before the producer reads the responses, it sends one more request, which
    fails. After the restart the broker knows only the last batch, so retries of the others would be written again."""
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as broker, make(broker) as producer:
        futures = [producer.send("t", value(0))]
        futures[0].get(timeout_ms=PATIENCE_MS)
        has_stopped = threading.Event()
        failed: list[bool] = []

        def send_late() -> None:
            has_stopped.wait(PATIENCE)
            connections = [link.connection for link in producer._core.client.pool.links() if link.connection]
            (connection,) = [found for found in connections if found.in_flight]
            transport = connection._transport
            assert isinstance(transport, PlainTransport)
            deadline = time.monotonic() + PATIENCE
            while not failed and time.monotonic() < deadline:
                # The peer's kernel accepts the first one, and resets the connection.
                connection.send(MetadataRequest(), 1, PATIENCE_MS)
                if connection._blocked or transport.is_closing():
                    failed.append(True)

        slow = broker.faults.delay(ApiKey.PRODUCE, ms=300, times=5)
        futures += [producer.send("t", value(number)) for number in range(1, 40)]
        eventually(lambda: slow.hits == 5, "five batches are in flight")
        producer._thread.call(send_late)
        broker.stop()
        has_stopped.set()
        broker.start()
        eventually(lambda: bool(failed), "the late request has failed")
        producer.flush(timeout_ms=PATIENCE_MS)
        check_complete(broker, "t", futures)


def test_futures_are_correct_after_delivery_timeouts(broker: EmbeddedBroker, topic: str) -> None:
    settings = {"request_timeout_ms": 300, "delivery_timeout_ms": 600}
    with make(broker, **settings) as producer:
        first = producer.send(topic, value(0), partition=0)
        first.get(timeout_ms=PATIENCE_MS)
        broker.pause()
        lost = [producer.send(topic, value(number), partition=0) for number in range(1, 10)]
        for future in lost:
            with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
                future.get(timeout_ms=PATIENCE_MS)
        broker.resume()
        later = [producer.send(topic, value(number), partition=0) for number in range(10, 20)]
        offsets = [future.get(timeout_ms=PATIENCE_MS).offset for future in later]
    values = read_values(broker, topic)
    assert [values[offset] for offset in offsets] == [value(number) for number in range(10, 20)]
    assert offsets == sorted(offsets)
    assert len(set(values)) == len(values), "duplicate records"
    assert values == sorted(value for value in values if value)


def test_order_per_key_under_faults(broker: EmbeddedBroker, topic: str) -> None:
    with make(broker) as producer:
        for n in range(300):
            if n % 40 == 0:
                broker.faults.drop_reply(ApiKey.PRODUCE, times=1, close=True)
                broker.faults.error(ApiKey.PRODUCE, NotLeaderForPartitionError, times=2)
            producer.send(topic, b"%d" % n, key=b"key-%d" % (n % 5))
        producer.flush(timeout_ms=PATIENCE_MS)
    values = [int(each or b"") for partition in range(2) for each in read_values(broker, topic, partition)]
    assert sorted(values) == list(range(300))
    for key in range(5):
        mine = [n for n in values if n % 5 == key]
        assert mine == sorted(mine)


def test_acknowledged_records_survive_broker_kill(tmp_path: Path) -> None:
    """Kills a broker process while a producer sends: all acknowledged records are in the log."""
    with Headrace(tmp_path / "data", {"num.partitions": 1}) as process:
        settings = {**QUICK, "batch.size": 2000, "reconnect.backoff.max.ms": 50}
        with Producer({"bootstrap.servers": process.bootstrap, **settings}) as producer:
            producer.send("kills", value(0)).get(timeout_ms=PATIENCE_MS)
            futures: list[FutureRecordMetadata] = []
            stop = threading.Event()

            def write() -> None:
                while not stop.is_set():
                    futures.append(producer.send("kills", value(len(futures) + 1)))
                    stop.wait(0.0005)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for _ in range(2):
                    so_far = len(futures)
                    eventually(
                        lambda so_far=so_far: len(futures) > so_far + 200, "the writer has sent 200 more records"
                    )
                    process.kill()
                    process.start()
            finally:
                stop.set()
                writer.join()
            producer.flush(timeout_ms=PATIENCE_MS)
            offsets = [future.get(timeout_ms=0).offset for future in futures]
        process.stop()
        with EmbeddedBroker(data_dir=process.data_dir) as broker:
            values = read_values(broker, "kills")
    for number, offset in enumerate(offsets):
        assert values[offset] == value(number + 1)
    assert values == [value(number) for number in range(len(offsets) + 1)]


def test_program_without_close_exits(broker: EmbeddedBroker, topic: str) -> None:
    code = (
        "import sys\n"
        "from headrace.client.producer.producer import Producer\n"
        "producer = Producer(bootstrap_servers=sys.argv[1])\n"
        "print(producer.send(sys.argv[2], b'v').get(timeout_ms=60_000).offset)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, broker.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.strip() == "0"
    assert done.stderr == ""
