"""The limits of automatic topic creation, in virtual time."""

import asyncio
from typing import Any, cast

import pytest

from headrace.broker.auto_topic_creation import AutoTopicCreation, CreationRate
from headrace.cluster.metadata_image import MetadataImage
from headrace.cluster.topics import TopicAdmin, TopicSpec
from headrace.common.errors import InvalidReplicationFactorError, InvalidTopicError
from headrace.testing.clock import ManualClock


class Admin:
    """Creates topics when the test says so."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.may_finish = asyncio.Event()
        self.error: Exception | None = None

    async def create_topic(self, spec: TopicSpec) -> None:
        self.created.append(spec.name)
        await self.may_finish.wait()
        if self.error is not None:
            raise self.error


class Image:
    """An image that has every topic at once."""

    brokers: dict[int, Any] = {}  # noqa: RUF012

    async def wait_for(self, *_: object) -> bool:
        return True


class Setup:
    def __init__(self, per_second: int = 10, max_in_flight: int = 3):
        self.clock = ManualClock()
        self.admin = Admin()
        self.creation = AutoTopicCreation(
            cast(TopicAdmin, self.admin),
            cast(MetadataImage, Image()),
            {},
            self.clock,
            per_second=per_second,
            max_in_flight=max_in_flight,
        )

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def test_rate_allows_a_burst_and_then_so_many_per_second() -> None:
    clock = ManualClock()
    rate = CreationRate(per_second=10, burst=4, clock=clock)
    assert [rate.take() for _ in range(5)] == [True] * 4 + [False]
    taken = 0
    for _ in range(20):
        clock.advance(50)
        taken += rate.take()
    assert taken == 10
    clock.advance(60_000)
    assert [rate.take() for _ in range(5)] == [True] * 4 + [False]


def test_creates_topics_up_to_the_limit_in_flight() -> None:
    async def flood() -> None:
        setup = Setup(per_second=1000, max_in_flight=3)
        names = [f"t{number}" for number in range(10)]
        assert [setup.creation.request(name) for name in names] == [True] * 3 + [False] * 7
        assert setup.creation.request("t0"), "it is being created"
        await setup.settle()
        assert setup.admin.created == names[:3]
        setup.admin.may_finish.set()
        await setup.settle()
        setup.clock.advance(1000)
        assert [setup.creation.request(name) for name in names[3:]] == [True] * 3 + [False] * 4
        await setup.creation.close()

    asyncio.run(flood())


def test_refuses_invalid_names_without_using_up_the_limit() -> None:
    async def request() -> None:
        setup = Setup(max_in_flight=1)
        for _ in range(3):
            with pytest.raises(InvalidTopicError):
                setup.creation.request("a b")
        assert setup.creation.request("valid")
        await setup.creation.close()

    asyncio.run(request())


def test_logs_postponed_topics_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async def log() -> None:
        setup = Setup()
        for _ in range(50):
            setup.creation.log_postponed("client c", 7, 10)
        setup.clock.advance(10_000)
        setup.creation.log_postponed("client c", 8, 10)

    asyncio.run(log())
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "client c names 10 topics that do not exist"
    ] * 2


def test_logs_a_failed_creation(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        setup = Setup()
        setup.admin.error = InvalidReplicationFactorError("too few brokers")
        setup.admin.may_finish.set()
        assert setup.creation.request("a")
        assert setup.creation.request("b")
        await setup.settle()

    asyncio.run(fail())
    (record,) = caplog.records
    assert record.message.startswith("Topic a cannot be created automatically")
    assert "too few brokers" in record.message
