"""The consumer with a failing broker: no record is lost, duplicated or out of order."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.broker.cutting_proxy import CuttingProxy
from tests.support.net.wire_calls import batch, produce
from tests.support.net.wire_client import WireClient

from headrace import Consumer, TopicPartition
from headrace.client.consumer.fetcher import PURPOSE
from headrace.common.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0
QUICK = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def broker(running: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield running
    running.faults.clear()


@pytest.fixture
def tp(broker: EmbeddedBroker) -> TopicPartition:
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 1)
    return TopicPartition(name, 0)


@pytest.fixture
def open_consumer() -> Iterator[Callable[..., Consumer]]:
    opened: list[Consumer] = []

    def make(servers: str, **settings: Any) -> Consumer:
        given = {"auto_offset_reset": "earliest", **QUICK, **settings}
        opened.append(Consumer(bootstrap_servers=servers, **given))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def write(broker: EmbeddedBroker, tp: TopicPartition, *numbers: int) -> None:
    with WireClient(broker.address) as client:
        data = batch(*(b"%d" % number for number in numbers))
        assert produce(client, data, topic=tp.topic, partition=tp.partition).error_code == 0


def read(consumer: Consumer, count: int) -> list[int]:
    """Polls until there are at least `count` values."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} of {count} records arrived"
        for records in consumer.poll(1000).values():
            found.extend(int(record.value) for record in records)
    return found


@pytest.mark.parametrize(
    "error",
    [
        NotLeaderForPartitionError,
        LeaderNotAvailableError,
        UnknownTopicOrPartitionError,
        FencedLeaderEpochError,
        UnknownLeaderEpochError,
        OffsetNotAvailableError,
        KafkaStorageError,
        UnknownTopicIdError,
        FetchSessionIdNotFoundError,
        InvalidFetchSessionEpochError,
        RequestTimedOutError,
    ],
)
@pytest.mark.parametrize("sessions", [True, False])
def test_retries_retriable_fetch_errors(broker, tp, open_consumer, error: type[KafkaError], sessions: bool):
    """In a session, a fetch without partitions gets a top-level error; otherwise each partition gets the error."""
    write(broker, tp, 0, 1, 2)
    consumer = open_consumer(broker.bootstrap_servers, enable_incremental_fetch_sessions=sessions)
    consumer.assign([tp])
    assert read(consumer, 3) == [0, 1, 2]
    fault = broker.faults.error(ApiKey.FETCH, error, times=3)
    write(broker, tp, 3, 4)
    assert read(consumer, 2) == [3, 4]
    fault.wait_for_hits(3)
    write(broker, tp, 5)
    assert read(consumer, 1) == [5]


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA])
@pytest.mark.parametrize("strike", ["drop_connection", "drop_reply_and_close"])
def test_retries_after_broken_connections(broker, tp, open_consumer, api: ApiKey, strike: str):
    write(broker, tp, 0, 1, 2)
    if strike == "drop_connection":
        fault = broker.faults.drop_connection(api, times=3)
    else:
        fault = broker.faults.drop_reply(api, times=3, close=True)
    consumer = open_consumer(broker.bootstrap_servers)
    consumer.assign([tp])
    assert read(consumer, 3) == [0, 1, 2]
    fault.wait_for_hits(3)
    write(broker, tp, 3)
    assert read(consumer, 1) == [3]


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_retries_after_missing_responses(broker, tp, open_consumer, api: ApiKey):
    write(broker, tp, 0, 1)
    fault = broker.faults.drop_reply(api, times=2)
    consumer = open_consumer(broker.bootstrap_servers, request_timeout_ms=600, fetch_max_wait_ms=100)
    consumer.assign([tp])
    assert read(consumer, 2) == [0, 1]
    assert fault.hits == 2


def test_drops_response_from_before_seek(broker, tp, open_consumer):
    write(broker, tp, *range(10))
    consumer = open_consumer(broker.bootstrap_servers)
    consumer.assign([tp])
    assert consumer.position(tp) == 0
    for target in (7, 2, 5):
        fault = broker.faults.delay(ApiKey.FETCH, ms=200, times=1)
        consumer.seek(tp, 0)
        fault.wait_for_hits(1)
        consumer.seek(tp, target)
        assert read(consumer, 10 - target) == list(range(target, 10))


def test_out_of_range_resets_to_earliest(broker, tp, open_consumer):
    write(broker, tp, *range(5))
    consumer = open_consumer(broker.bootstrap_servers, enable_incremental_fetch_sessions=False)
    consumer.assign([tp])
    assert read(consumer, 5) == list(range(5))
    fault = broker.faults.error(ApiKey.FETCH, OffsetOutOfRangeError, times=1)
    fault.wait_for_hits(1)
    # auto.offset.reset is earliest: all records are read again.
    assert read(consumer, 5) == list(range(5))


def test_offset_lookup_survives_leader_changes(broker, tp, open_consumer):
    write(broker, tp, *range(5))
    consumer = open_consumer(broker.bootstrap_servers)
    not_leader = broker.faults.error(ApiKey.LIST_OFFSETS, NotLeaderForPartitionError, times=3)
    assert consumer.end_offsets([tp]) == {tp: 5}
    not_available = broker.faults.error(ApiKey.LIST_OFFSETS, LeaderNotAvailableError, times=3)
    found = consumer.offsets_for_times({tp: 0})[tp]
    assert found is not None
    assert found.offset == 0
    assert (not_leader.hits, not_available.hits) == (3, 3)


@pytest.mark.parametrize("clean", [True, False])
def test_survives_broker_restart(tmp_path, open_consumer, clean: bool):
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path / "data") as broker:
        tp = TopicPartition("t", 0)
        write(broker, tp, 0, 1)
        consumer = open_consumer(broker.bootstrap_servers)
        consumer.assign([tp])
        assert read(consumer, 2) == [0, 1]
        for number in range(2, 5):
            broker.restart(clean=clean)
            write(broker, tp, number)
            assert read(consumer, 1) == [number]


def test_survives_paused_broker(broker, tp, open_consumer):
    write(broker, tp, 0)
    consumer = open_consumer(broker.bootstrap_servers, request_timeout_ms=500, fetch_max_wait_ms=100)
    consumer.assign([tp])
    assert read(consumer, 1) == [0]
    broker.pause()
    try:
        assert consumer.poll(1500) == {}
    finally:
        broker.resume()
    write(broker, tp, 1)
    assert read(consumer, 1) == [1]


LEAST_BYTES_OF_TWO_FETCHES, MOST_BYTES_OF_TWO_FETCHES = 500, 2000
"""With the ApiVersions response, which alone has more than half of it."""


def test_cut_at_every_byte_of_a_fetch(open_consumer):
    """Cuts the fetch connection after each byte, from the first of ApiVersions to the last of the second fetch. All
    records are read in order every time."""
    with CuttingProxy() as proxy, EmbeddedBroker(proxy.properties, topics={"t": 1}) as broker:
        proxy.target = broker.address
        tp = TopicPartition("t", 0)
        write(broker, tp, *range(3))
        write(broker, tp, *range(3, 6))

        # Each fetch returns one batch. The third one waits at the end of the log, so that no further response bytes
        # arrive, however slow the machine is.
        consumer = open_consumer(proxy.bootstrap_servers, max_partition_fetch_bytes=1, fetch_max_wait_ms=25_000)
        consumer.assign([tp])
        read(consumer, 6)
        pool = consumer._core.client.pool
        (node_id,) = pool.nodes

        def is_cut(size: int) -> bool:
            """Reads everything over a connection that is cut after `size` bytes. Returns False if fewer were needed."""
            cuts = proxy.cuts
            proxy.cut_after(size)
            consumer._core.call(pool.disconnect, node_id, PURPOSE)
            consumer.seek(tp, 0)
            assert read(consumer, 6) == list(range(6)), f"cut after {size} bytes"
            return proxy.cuts > cuts

        # How many bytes two fetches need is known when the connection is no longer cut. A busy machine may let another
        # connection take the cut, so one attempt does not prove it.
        size = 1
        while any(is_cut(size) for _ in range(3)):
            size += 1
            assert size < MOST_BYTES_OF_TWO_FETCHES, "the connection is cut outside of the fetches"
        assert size > LEAST_BYTES_OF_TWO_FETCHES


def test_frequently_cut_connections(open_consumer):
    """Every record is read once and in order while connections are cut during writes."""
    with CuttingProxy() as proxy, EmbeddedBroker(proxy.properties, topics={"t": 1}) as broker:
        proxy.target = broker.address
        tp = TopicPartition("t", 0)
        consumer = open_consumer(proxy.bootstrap_servers, max_partition_fetch_bytes=300)
        consumer.assign([tp])
        over = threading.Event()

        def cut() -> None:
            while not over.wait(0.02):
                proxy.cut_now()

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            found: list[int] = []
            for start in range(0, 400, 20):
                write(broker, tp, *range(start, start + 20))
                found += read(consumer, 1)
            found += read(consumer, 400 - len(found)) if len(found) < 400 else []
        finally:
            over.set()
            thread.join()
        assert found == list(range(400))
