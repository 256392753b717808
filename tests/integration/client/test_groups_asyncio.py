"""Groups of asyncio consumers, with coroutine functions as listeners."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from headrace import TopicPartition, aio
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener
from headrace.testing import EmbeddedBroker

PATIENCE = 60.0
TPS = {TopicPartition("t", index) for index in range(4)}


class Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: aio.Consumer):
        self._consumer = consumer
        self.told: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        await self._consumer.commit()  # commit before other members continue
        self.told.append(("revoked", set(revoked)))

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.told.append(("assigned", set(assigned)))


class Program:
    def __init__(self, broker: EmbeddedBroker, strategy: str):
        self.consumer = aio.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=f"group-{strategy}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=strategy,
        )
        self.listener = Listener(self.consumer)
        self.read: list[tuple[int, int]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Program":
        await self.consumer.start()
        self.consumer.subscribe(["t"], listener=self.listener)
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        while True:
            for tp, records in (await self.consumer.getmany(timeout_ms=20)).items():
                self.read += [(tp.partition, record.offset) for record in records]

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.consumer.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_join_and_leave(strategy: str) -> None:
    async def test() -> None:
        settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
        async with EmbeddedBroker(settings, topics={"t": 4}) as broker:
            async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for number in range(40):
                    await producer.send("t", b"value", partition=number % 4)
            first = await Program(broker, strategy).start()
            await until(lambda: len(first.read) == 40)
            second = await Program(broker, strategy).start()
            await until(lambda: len(second.consumer.assignment()) == len(first.consumer.assignment()) == 2)
            assert first.consumer.assignment() | second.consumer.assignment() == TPS
            await first.stop()
            await until(lambda: second.consumer.assignment() == TPS)
            await until(lambda: sum(len(tps) for kind, tps in second.listener.told if kind == "assigned") >= 4)
            await second.stop()
            assert ("assigned", TPS) in first.listener.told
            assert first.listener.told[-1][0] == "revoked"
            assert second.read == [], "the first member committed its offsets when its partitions were revoked"

    asyncio.run(test())
