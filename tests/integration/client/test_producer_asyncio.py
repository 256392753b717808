"""The asyncio producer with a real broker."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.support.client.producer_logs import read_values

from headrace.aio.producer import Producer
from headrace.client.errors import IllegalStateError, KafkaTimeoutError, TransactionAbortedError
from headrace.common.errors import (
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
)
from headrace.protocol import ApiKey
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0
PATIENCE_MS = 60_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"transaction.state.log.num.partitions": 2}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Iterator[str]:
    name = f"asyncio-{next(_numbers)}"
    broker.create_topic(name, 2)
    yield name
    broker.faults.clear()
    broker.resume()


def with_producer(broker: EmbeddedBroker, test: Callable[[Producer], Awaitable[None]], /, **settings: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            async with Producer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
                await test(producer)

    asyncio.run(main())


def test_futures_can_be_awaited(broker: EmbeddedBroker, topic: str) -> None:
    async def test(producer: Producer) -> None:
        future = await producer.send(topic, b"0", key=b"k", partition=0)
        assert not future.is_done
        assert (await future).offset == 0
        assert (await future).offset == 0, "a completed future can be awaited again"
        assert (await producer.send_and_wait(topic, b"1", partition=0)).offset == 1
        assert await producer.partitions_for(topic) == {0, 1}
        assert (await producer.metrics())["type"] == "producer"
        too_large = await producer.send(topic, b"v" * 2_000_000)
        with pytest.raises(MessageSizeTooLargeError):
            await too_large

    with_producer(broker, test)
    assert read_values(broker, topic) == [b"0", b"1"]


def test_many_tasks_share_a_producer(broker: EmbeddedBroker, topic: str) -> None:
    async def test(producer: Producer) -> None:
        async def write(number: int) -> list[int]:
            futures = [await producer.send(topic, b"%d %d" % (number, n), partition=number % 2) for n in range(300)]
            return [(await future).offset for future in futures]

        offsets = await asyncio.gather(*(write(number) for number in range(6)))
        assert sorted(itertools.chain(*offsets[::2])) == list(range(900))
        assert producer._core.buffers.available_bytes == 20_000

    with_producer(broker, test, **{"buffer.memory": 20_000, "batch.size": 1000})
    for partition in range(2):
        values = [value.split() for value in read_values(broker, topic, partition) if value]
        for number in range(partition, 6, 2):
            assert [int(n) for who, n in values if int(who) == number] == list(range(300))


def test_full_buffer_times_out(broker: EmbeddedBroker, topic: str) -> None:
    async def test(producer: Producer) -> None:
        await producer.send_and_wait(topic, b"first", partition=0)
        await asyncio.to_thread(broker.pause)

        async def fill() -> None:
            for _ in range(100):
                await producer.send(topic, b"v" * 1000, partition=0)

        with pytest.raises(KafkaTimeoutError):
            await fill()
        waiting = asyncio.create_task(producer.send(topic, b"v" * 1000, partition=0))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(broker.resume)
        await producer.flush(timeout_ms=PATIENCE_MS)
        assert producer._core.buffers.available_bytes == 20_000

    with_producer(broker, test, **{"buffer.memory": 20_000, "batch.size": 2000, "max.block.ms": 100})


def test_send_arrow(broker: EmbeddedBroker, topic: str) -> None:
    async def test(producer: Producer) -> None:
        data = pa.table({"value": pa.array([b"%05d" % n + b"v" * 500 for n in range(2000)], pa.binary())})
        metadata = await (await producer.send_arrow(topic, data, partition=1))
        assert sum(part.rows for part in metadata.ranges) == 2000

    with_producer(broker, test, **{"buffer.memory": 200_000})
    assert [value[:5] for value in read_values(broker, topic, 1) if value] == [b"%05d" % n for n in range(2000)]


def test_survives_faults(broker: EmbeddedBroker, topic: str) -> None:
    async def test(producer: Producer) -> None:
        broker.faults.error(ApiKey.PRODUCE, NotLeaderForPartitionError, times=3)
        broker.faults.drop_reply(ApiKey.PRODUCE, times=2, close=True)
        futures = [await producer.send(topic, b"%d" % n, partition=0) for n in range(300)]
        assert [(await future).offset for future in futures] == list(range(300))

    with_producer(broker, test, **{"batch.size": 300, "retry.backoff.ms": 1, "reconnect.backoff.ms": 1})
    assert read_values(broker, topic) == [b"%d" % n for n in range(300)]


def test_batch_after_rejected_retry_is_written(broker: EmbeddedBroker, topic: str) -> None:
    """The retry of a batch that was written is rejected: the next batch must not be taken for a duplicate of it."""

    async def test(producer: Producer) -> None:
        await producer.send_and_wait(topic, b"0", partition=0)
        broker.faults.drop_reply(ApiKey.PRODUCE, times=1, close=True)
        broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(topic, b"1", partition=0)
        assert (await producer.send_and_wait(topic, b"2", partition=0)).offset == 2

    with_producer(broker, test, **{"retry.backoff.ms": 1, "reconnect.backoff.ms": 1})
    assert read_values(broker, topic) == [b"0", b"1", b"2"]


def test_transactions(broker: EmbeddedBroker, topic: str) -> None:
    async def test(producer: Producer) -> None:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
        lost: list[Any] = []

        async def spoilt() -> None:
            async with producer.transaction():
                lost.append(await producer.send(topic, b"lost", partition=0))
                raise ValueError("changed my mind")

        with pytest.raises(ValueError, match="changed my mind"):
            await spoilt()
        with pytest.raises(TransactionAbortedError):
            await lost[0]
        broker.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError, times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            async with producer.transaction():
                await producer.send(topic, b"refused when it is committed", partition=0)
        await producer.begin_transaction()
        await producer.send(topic, b"kept too", partition=0)
        await producer.commit_transaction()

    with_producer(broker, test, transactional_id=topic, linger_ms=60_000, delivery_timeout_ms=200_000)
    assert read_values(broker, topic, committed=True) == [b"kept", b"kept too"]


def test_calls_before_start_and_after_close(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> None:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        with pytest.raises(IllegalStateError, match="not started"):
            await producer.send(topic, b"v")
        await producer.start()
        with pytest.raises(IllegalStateError, match="already started"):
            await producer.start()
        future = await producer.send(topic, b"v", partition=0)
        await producer.stop()
        await producer.close()
        assert (await future).offset == 0
        for call in (producer.send(topic, b"v"), producer.flush(), producer.begin_transaction()):
            with pytest.raises(IllegalStateError, match="closed"):
                await call

    asyncio.run(main())
