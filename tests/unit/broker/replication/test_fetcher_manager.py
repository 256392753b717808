"""Which fetcher fetches which partition."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, OTHER, TP, TP_1, Replicas
from tests.support.net.virtual_loop import run

from headrace.broker.config.replication import FetcherConfig
from headrace.broker.replication.fetcher_manager import FetcherManager, fetcher_of
from headrace.common.types import TopicPartition
from headrace.net.errors import KafkaConnectionError
from headrace.protocol import Message

ALL = (NODE, FOLLOWER, OTHER)


class Unreachable:
    """Counts requests by broker and connection."""

    def __init__(self) -> None:
        self.requested: list[tuple[int, str]] = []

    async def send(self, broker_id: int, _: Message, *, purpose: str = "", **__: Any) -> Any:
        self.requested.append((broker_id, purpose))
        raise KafkaConnectionError("unreachable")


class World:
    def __init__(self, directory: Path, fetchers: int):
        self.client = Unreachable()
        self.replicas = Replicas(directory)
        self.manager = FetcherManager(NODE, self.client, self.replicas, FetcherConfig(fetchers=fetchers))
        self.replicas.on_role_assigned = self.manager.update

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.manager.close()
        self.replicas.manager.close()

    async def requested(self) -> set[tuple[int, str]]:
        """Returns the connections that are used from now on."""
        self.client.requested.clear()
        await asyncio.sleep(5)
        return set(self.client.requested)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def call(*arguments: Any, **fixtures: Any) -> None:
        run(test(*arguments, **fixtures))

    return call


@pytest.mark.parametrize(
    ("topic", "partition", "fetchers", "expected"),
    [("a", 0, 100, 7), ("orders", 3, 1, 0), ("orders", 0, 7, 3), ("orders", 1, 7, 4), ("", 5, 3, 2)],
)
def test_hash_as_in_kafka(topic: str, partition: int, fetchers: int, expected: int) -> None:
    """31 * "orders".hashCode() = 31 * -1008770331, as an int."""
    assert fetcher_of(TopicPartition(topic, partition), fetchers) == expected


@in_virtual_time
async def test_follows_the_leaders(tmp_path: Path) -> None:
    async with World(tmp_path, 2) as world:
        world.replicas.lead(TP, isr=ALL, leader=FOLLOWER)
        world.replicas.lead(TP_1, isr=ALL, leader=FOLLOWER)
        assert len(world.manager) == 2
        assert await world.requested() == {(FOLLOWER, "fetcher-0"), (FOLLOWER, "fetcher-1")}
        world.replicas.lead(TP, isr=ALL, leader=OTHER, leader_epoch=1)
        world.replicas.lead(TP_1, isr=ALL, leader=NODE, leader_epoch=1)
        assert len(world.manager) == 1
        assert {broker for broker, _ in await world.requested()} == {OTHER}
        world.replicas.stop_replica(TP, delete=True)
        assert len(world.manager) == 0
        assert await world.requested() == set()


@in_virtual_time
async def test_another_number_of_fetchers(tmp_path: Path) -> None:
    async with World(tmp_path, 1) as world:
        world.replicas.lead(TP, isr=ALL, leader=FOLLOWER)
        world.replicas.lead(TP_1, isr=ALL, leader=FOLLOWER)
        assert await world.requested() == {(FOLLOWER, "fetcher-0")}
        world.manager.resize(2, world.replicas)
        assert await world.requested() == {(FOLLOWER, "fetcher-0"), (FOLLOWER, "fetcher-1")}
        world.manager.resize(1, world.replicas)
        assert await world.requested() == {(FOLLOWER, "fetcher-0")}
        assert len(world.manager) == 1


@in_virtual_time
async def test_another_number_of_fetchers_during_a_shutdown(tmp_path: Path) -> None:
    """The broker stays in sync until its leaderships have moved."""
    async with World(tmp_path, 1) as world:
        world.replicas.lead(TP, isr=ALL, leader=FOLLOWER)
        world.manager.begin_shutdown()
        world.manager.resize(2, world.replicas)
        assert await world.requested() == {(FOLLOWER, "fetcher-0")}


@in_virtual_time
async def test_failed_directory(tmp_path: Path) -> None:
    async with World(tmp_path, 1) as world:
        world.replicas.lead(TP, isr=ALL, leader=FOLLOWER)
        world.replicas.manager.fail_directory(world.replicas.manager.directories[0], "pulled out")
        assert len(world.manager) == 0


@in_virtual_time
async def test_closed(tmp_path: Path) -> None:
    async with World(tmp_path, 1) as world:
        world.replicas.lead(TP, isr=ALL, leader=FOLLOWER)
        await world.manager.close()
        world.replicas.lead(TP_1, isr=ALL, leader=FOLLOWER)
        assert len(world.manager) == 0
        assert await world.requested() == set()


@in_virtual_time
async def test_no_new_fetches_during_a_shutdown(tmp_path: Path) -> None:
    """The leaderships of this broker move. It would only ask to join the ISR that it is leaving."""
    async with World(tmp_path, 1) as world:
        world.replicas.lead(TP, isr=ALL, leader=FOLLOWER)
        world.replicas.lead(TP_1, isr=ALL)
        world.manager.begin_shutdown()
        assert await world.requested() == {(FOLLOWER, "fetcher-0")}
        world.replicas.lead(TP_1, isr=ALL, leader=OTHER, leader_epoch=1, partition_epoch=1)
        assert await world.requested() == {(FOLLOWER, "fetcher-0")}
        world.replicas.lead(TP, isr=ALL, leader=OTHER, leader_epoch=1, partition_epoch=1)
        assert await world.requested() == set()
