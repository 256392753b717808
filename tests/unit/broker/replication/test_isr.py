"""ISR changes on their way to the controller or to the coordination store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker.replicas import FOLLOWER, NODE, SLOW_FOLLOWER, TP, TP_1, Replicas, isr_change

from headrace.broker.partition import Partition
from headrace.broker.replication.isr import (
    LINGER_MS,
    MAX_WAIT_MS,
    PROPAGATION_CHECK_MS,
    RETRY_MS,
    AlterPartitionManager,
    StoreIsrManager,
)
from headrace.cluster import znodes
from headrace.cluster.controller_requests import IsrChange
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.registration import prepare_cluster
from headrace.cluster.store import ConnectionLoss
from headrace.cluster.znodes import Leadership
from headrace.common.errors import (
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
)
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition

ISR, ALL = (NODE, FOLLOWER), (NODE, FOLLOWER, SLOW_FOLLOWER)
Answers = Callable[[Mapping[TopicPartition, IsrChange]], dict[TopicPartition, Leadership | KafkaError]]


class FakeController:
    """Answers requests when the test says so."""

    def __init__(self) -> None:
        self.requests: list[dict[TopicPartition, IsrChange]] = []
        self._answers: asyncio.Queue[Answers | Exception] = asyncio.Queue()

    async def alter_partition(
        self, changes: Mapping[TopicPartition, IsrChange]
    ) -> dict[TopicPartition, Leadership | KafkaError]:
        self.requests.append(dict(changes))
        answers = await self._answers.get()
        if isinstance(answers, Exception):
            raise answers
        return answers(changes)

    async def answer(self, answers: Answers | Exception) -> None:
        self._answers.put_nowait(answers)
        await settle()


def accept(changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, Leadership | KafkaError]:
    return {
        tp: Leadership(NODE, change.leader_epoch, change.isr, 1, change.partition_epoch + 1)
        for tp, change in changes.items()
    }


def reject(error: KafkaError) -> Answers:
    return lambda changes: dict.fromkeys(changes, error)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def call(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(test(*arguments, **fixtures))

    return call


async def settle() -> None:
    """Lets the tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def propose(replicas: Replicas, *tps: TopicPartition, **changes: Any) -> None:
    """Makes this broker leader, and a follower catch up."""
    for tp in tps:
        replicas.lead(tp, isr=ISR, replicas=ALL, **changes).follower_fetched(SLOW_FOLLOWER, 0)


class TestAlterPartition:
    @pytest.fixture
    def replicas(self, tmp_path: Path) -> Any:
        with Replicas(tmp_path) as replicas:
            yield replicas

    @staticmethod
    def connect(replicas: Replicas) -> tuple[FakeController, AlterPartitionManager]:
        controller = FakeController()
        manager = AlterPartitionManager(controller, replicas.timer, replicas.isr_change_answered)
        replicas.context.submit_isr_change = manager.submit
        return controller, manager

    @in_loop
    async def test_sends_one_request_at_a_time(self, replicas: Replicas) -> None:
        controller, _ = self.connect(replicas)
        third = TopicPartition("orders", 2)
        propose(replicas, TP)
        await settle()
        propose(replicas, TP_1, third)
        await settle()
        assert controller.requests == [{TP: isr_change(0, 0, ALL)}]
        await controller.answer(accept)
        assert controller.requests[1:] == [{TP_1: isr_change(0, 0, ALL), third: isr_change(0, 0, ALL)}]
        await controller.answer(accept)
        assert len(controller.requests) == 2
        assert [partition.isr for partition in replicas] == [[*ALL]] * 3

    @in_loop
    async def test_retries_what_failed(self, replicas: Replicas) -> None:
        controller, _ = self.connect(replicas)
        propose(replicas, TP, TP_1)
        await settle()
        await controller.answer(lambda changes: {**accept(changes), TP_1: RequestTimedOutError("late")})
        replicas.pass_time(RETRY_MS - 1)
        await settle()
        assert len(controller.requests) == 1
        replicas.pass_time(1)
        await settle()
        assert controller.requests[1:] == [{TP_1: isr_change(0, 0, ALL)}]
        await controller.answer(accept)
        assert replicas.find(*TP_1).isr == [*ALL]

    @in_loop
    async def test_retries_until_there_is_a_controller(
        self, replicas: Replicas, caplog: pytest.LogCaptureFixture
    ) -> None:
        controller, _ = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        for _ in range(3):
            await controller.answer(NotControllerError("not me"))
            replicas.pass_time(RETRY_MS)
            await settle()
        assert len(controller.requests) == 4
        assert len([record for record in caplog.records if "will retry: not me" in record.message]) == 1
        await controller.answer(accept)
        assert replicas.find(*TP).isr == [*ALL]

    @in_loop
    async def test_retries_after_an_internal_error(self, replicas: Replicas, caplog: pytest.LogCaptureFixture) -> None:
        controller, _ = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        await controller.answer(ValueError("a bug"))
        replicas.pass_time(RETRY_MS)
        await settle()
        assert "failed with an internal error, will retry" in caplog.text
        await controller.answer(accept)
        assert replicas.find(*TP).isr == [*ALL]

    @in_loop
    async def test_final_error(self, replicas: Replicas) -> None:
        controller, _ = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        await controller.answer(reject(IneligibleReplicaError("dead")))
        replicas.pass_time(RETRY_MS)
        await settle()
        assert len(controller.requests) == 1
        replicas.find(*TP).follower_fetched(SLOW_FOLLOWER, 0)
        await settle()
        assert len(controller.requests) == 2, "the next fetch proposes it again"

    @in_loop
    async def test_does_not_retry_what_is_abandoned(self, replicas: Replicas) -> None:
        controller, _ = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        replicas.lead(TP, isr=ISR, replicas=ALL, partition_epoch=5)
        await controller.answer(reject(RequestTimedOutError("late")))
        replicas.pass_time(RETRY_MS)
        await settle()
        assert len(controller.requests) == 1

    @in_loop
    async def test_new_epoch_does_not_wait_for_an_abandoned_change(self, replicas: Replicas) -> None:
        controller, _ = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        await controller.answer(reject(RequestTimedOutError("late")))
        propose(replicas, TP, leader_epoch=1, partition_epoch=1)
        replicas.pass_time(RETRY_MS)
        await settle()
        assert controller.requests[1:] == [{TP: isr_change(1, 1, ALL)}]

    @in_loop
    async def test_refuses_a_second_change_of_a_partition_in_flight(self, replicas: Replicas) -> None:
        controller, manager = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        replicas.lead(TP, isr=ISR, replicas=ALL, partition_epoch=5)
        replicas.find(*TP).follower_fetched(SLOW_FOLLOWER, 0)
        assert replicas.find(*TP).pending_isr is None
        await controller.answer(reject(RequestTimedOutError("late")))
        replicas.find(*TP).follower_fetched(SLOW_FOLLOWER, 0)
        replicas.pass_time(RETRY_MS)
        await settle()
        assert controller.requests[1:] == [{TP: isr_change(0, 5, ALL)}]
        await manager.close()

    @in_loop
    async def test_close(self, replicas: Replicas) -> None:
        controller, manager = self.connect(replicas)
        propose(replicas, TP)
        await settle()
        await manager.close()
        propose(replicas, TP_1)
        await settle()
        assert len(controller.requests) == 1
        assert replicas.find(*TP_1).pending_isr is None


class TestStore:
    @staticmethod
    @asynccontextmanager
    async def connect(directory: Path) -> AsyncIterator[tuple[Replicas, EmbeddedStore, list[Leadership | KafkaError]]]:
        """Yields replicas that write their changes to a store with one partition."""
        answers: list[Leadership | KafkaError] = []
        with Replicas(directory) as replicas:
            store = EmbeddedStore(None, replicas.clock)
            await prepare_cluster(store, make_random(0))
            await store.create(znodes.topic_path("orders"))
            await store.create(znodes.partitions_path("orders"))
            await store.create(znodes.partition_path(TP))
            await store.create(znodes.state_path(TP), znodes.encode_leadership(Leadership(NODE, 0, ISR, 1)))

            def on_answer(partition: Partition, change: IsrChange, answer: Leadership | KafkaError) -> bool:
                answers.append(answer)
                return replicas.isr_change_answered(partition, change, answer)

            manager = StoreIsrManager(
                store,
                NODE,
                replicas.timer,
                on_answer,
                now_ms=replicas.context.now_ms,
                controller_epoch=lambda: 3,
            )
            replicas.context.submit_isr_change = manager.submit
            try:
                yield replicas, store, answers
            finally:
                await manager.close()
                await store.close()

    @staticmethod
    async def state(store: EmbeddedStore) -> Leadership:
        data, stat = await store.get(znodes.state_path(TP))
        return znodes.decode_leadership(TP, data, stat.version)

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)

    @in_loop
    async def test_writes_the_state(self, tmp_path: Path) -> None:
        async with self.connect(tmp_path) as (replicas, store, _):
            propose(replicas, TP)
            partition = replicas.find(*TP)
            await self.until(lambda: partition.isr == [*ALL])
            assert await self.state(store) == Leadership(NODE, 0, ALL, 3, 1)
            assert (partition.partition_epoch, partition.pending_isr) == (1, None)

    @in_loop
    async def test_other_version(self, tmp_path: Path) -> None:
        async with self.connect(tmp_path) as (replicas, store, answers):
            await store.set(znodes.state_path(TP), znodes.encode_leadership(Leadership(FOLLOWER, 1, ISR, 2)))
            propose(replicas, TP)
            await self.until(lambda: bool(answers))
            assert isinstance(answers[0], InvalidUpdateVersionError)
            assert replicas.find(*TP).pending_isr is not None, "it waits for the controller"
            assert (await self.state(store)).leader == FOLLOWER

    @in_loop
    async def test_own_write_with_a_lost_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.connect(tmp_path) as (replicas, store, _):
            write, failures = store.set, [ConnectionLoss("cut")]

            async def lose_answer(*arguments: Any) -> Any:
                stat = await write(*arguments)
                if failures:
                    raise failures.pop()
                return stat

            monkeypatch.setattr(store, "set", lose_answer)
            propose(replicas, TP)
            partition = replicas.find(*TP)

            def is_done() -> bool:
                replicas.pass_time(RETRY_MS)
                return partition.isr == [*ALL]

            await self.until(is_done)
            assert (await self.state(store)).partition_epoch == partition.partition_epoch == 1

    @in_loop
    async def test_tells_the_controller_after_a_while(self, tmp_path: Path) -> None:
        async with self.connect(tmp_path) as (replicas, store, _):
            propose(replicas, TP)
            await self.until(lambda: replicas.find(*TP).isr == [*ALL])
            replicas.pass_time(PROPAGATION_CHECK_MS)
            await settle()
            assert await store.children(znodes.ISR_CHANGES) == []
            replicas.pass_time(LINGER_MS - PROPAGATION_CHECK_MS)
            async with asyncio.timeout(60):
                while not (names := await store.children(znodes.ISR_CHANGES)):
                    await asyncio.sleep(0.001)
            data, _ = await store.get(f"{znodes.ISR_CHANGES}/{names[0]}")
            assert data == znodes.encode_isr_change([TP])
            replicas.pass_time(MAX_WAIT_MS)
            await settle()
            assert await store.children(znodes.ISR_CHANGES) == names, "nothing has changed since"
