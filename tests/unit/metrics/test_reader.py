"""Clients are read on their own event loops, and only while they run."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace import Admin, Consumer, Producer, TopicPartition, aio
from headrace.metrics import reader
from headrace.metrics.reader import ClientReader

NOWHERE = "127.0.0.1:1"


def test_blocking_clients_until_they_are_closed() -> None:
    consumer = Consumer(bootstrap_servers=NOWHERE, client_id="c")
    with Producer(bootstrap_servers=NOWHERE, client_id="c") as producer:
        read = ClientReader([producer, consumer]).read
        assert [(each.kind, each.client_id, each.statistics is None) for each in read()] == [
            ("producer", "c", False),
            ("consumer", "c", False),
        ]
        consumer.close()
        assert [each.kind for each in read()] == ["producer"]
    assert read() == []


def test_equal_client_ids_are_told_apart() -> None:
    with (
        Producer(bootstrap_servers=NOWHERE, client_id="c") as one,
        Producer(bootstrap_servers=NOWHERE, client_id="c") as two,
    ):
        assert [each.client_id for each in ClientReader([one, two]).read()] == ["c", "c#2"]


def test_asyncio_clients_from_their_own_loop_and_from_a_thread() -> None:
    async def check() -> None:
        producer = aio.Producer(bootstrap_servers=NOWHERE)
        found = ClientReader([producer])
        assert found.read() == [], "not started yet"
        async with producer, aio.Consumer(bootstrap_servers=NOWHERE) as consumer:
            found = ClientReader([producer, consumer])
            for readings in (found.read(), await asyncio.to_thread(found.read), await found.read_async()):
                assert [each.statistics is None for each in readings] == [False, False]
        assert found.read() == []

    asyncio.run(check())


def test_busy_event_loop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_READ_SECONDS", 0.05)

    async def run() -> None:
        with ThreadPoolExecutor(1) as threads:
            async with aio.Producer(bootstrap_servers=NOWHERE, client_id="busy") as producer:
                readings = threads.submit(ClientReader([producer]).read).result(60)
                assert [each.statistics for each in readings] == [None]

    asyncio.run(run())


def test_other_objects() -> None:
    with (
        Admin(bootstrap_servers=NOWHERE, client_id="a") as admin,
        pytest.raises(TypeError, match="producers and consumers of Headrace, not Admin"),
    ):
        ClientReader([admin])


def test_reading_keeps_the_windows() -> None:
    with Producer(bootstrap_servers=NOWHERE) as producer:
        traffic = producer._core.sender.traffic
        traffic.note_batch(TopicPartition("t", 0), 3, 60)
        found = ClientReader([producer])
        for _ in range(2):
            statistics = found.read()[0].statistics
            assert statistics["topics"]["t"]["batchsize"]["cnt"] == 1
            assert statistics["topic_totals"] == {"t": (3, 60)}
        assert producer.metrics()["topics"]["t"]["batchsize"]["cnt"] == 1
        assert "t" not in producer.metrics()["topics"]
        assert found.read()[0].statistics["topic_totals"] == {"t": (3, 60)}, "counters only grow"
