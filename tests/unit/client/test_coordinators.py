import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeNetwork
from tests.support.net.virtual_loop import run

from headrace.client.coordinators import CoordinatorFinder, CoordinatorType
from headrace.client.errors import KafkaTimeoutError
from headrace.common.backoff import Backoff
from headrace.common.errors import CoordinatorNotAvailableError, GroupAuthorizationFailedError
from headrace.net.broker_pool import BrokerPool, NetConfig, Node
from headrace.protocol import ApiKey
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

GROUP, TRANSACTION = CoordinatorType.GROUP, CoordinatorType.TRANSACTION


class Setup:
    def __init__(self, newest: int = 6) -> None:
        self.network = FakeNetwork()
        self.broker = self.network.add(1)
        self.broker.versions[ApiKey.FIND_COORDINATOR] = (0, newest)
        self.broker.on(ApiKey.FIND_COORDINATOR, self.answer)
        self.error_code = 0
        self.node = Node(7, "seven", 9092)
        self.pool = BrokerPool([self.broker.address], NetConfig(), dialer=self.network)
        self.finder = CoordinatorFinder(self.pool, Backoff(100, 1000, random.Random(1)))

    @property
    def questions(self) -> int:
        return len(self.broker.asked(ApiKey.FIND_COORDINATOR))

    def answer(self, request: Any) -> FindCoordinatorResponse:
        text = "because" if self.error_code else None
        where: dict[str, Any] = {"node_id": self.node.id, "host": self.node.host, "port": self.node.port}
        if self.error_code:
            where = {"node_id": -1, "host": "", "port": -1}
        coordinators = [
            Coordinator(key=key, error_code=self.error_code, error_message=text, **where)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(
            error_code=self.error_code, error_message=text, coordinators=coordinators, **where
        )

    async def close(self) -> None:
        await self.finder.close()
        await self.pool.close()


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def call() -> None:
        run(test())

    call.__name__ = test.__name__
    return call


@pytest.mark.parametrize("newest", [0, 1, 3, 4, 6])
def test_coordinator_is_cached(newest: int) -> None:
    async def main() -> None:
        setup = Setup(newest)
        found = await asyncio.gather(*[setup.finder.find(GROUP, "g", 1000) for _ in range(5)])
        assert found == [7] * 5
        assert await setup.finder.find(GROUP, "g", 1000) == 7
        assert setup.questions == 1
        assert setup.pool.nodes[7] == setup.node
        assert setup.finder.known(GROUP, "g") == 7
        assert setup.finder.known(TRANSACTION, "g") is None
        await setup.close()

    run(main())


@virtual
async def test_group_and_transaction_coordinators_are_separate() -> None:
    setup = Setup()
    await setup.finder.find(GROUP, "same", 1000)
    await setup.finder.find(TRANSACTION, "same", 1000)
    assert [each.message.key_type for each in setup.broker.asked(ApiKey.FIND_COORDINATOR)] == [0, 1]
    await setup.close()


@virtual
async def test_forgotten_coordinator_is_looked_up_again() -> None:
    setup = Setup()
    await setup.finder.find(GROUP, "g", 1000)
    setup.finder.forget(GROUP, "g", 99)
    assert setup.finder.known(GROUP, "g") == 7
    setup.finder.forget(GROUP, "g", 7)
    setup.node = Node(8, "eight", 9092)
    assert await setup.finder.find(GROUP, "g", 1000) == 8
    await setup.close()


@virtual
async def test_coordinator_missing_from_metadata_is_looked_up_again() -> None:
    setup = Setup()
    await setup.finder.find(GROUP, "g", 1000)
    setup.pool.set_nodes([Node(1, *setup.broker.address)])
    assert await setup.finder.find(GROUP, "g", 1000) == 7
    assert setup.questions == 2
    await setup.close()


@virtual
async def test_find_retries_until_coordinator_is_available() -> None:
    setup = Setup()
    setup.error_code = CoordinatorNotAvailableError.code
    finding = asyncio.create_task(setup.finder.find(GROUP, "g", 60_000))
    await asyncio.sleep(5)
    setup.error_code = 0
    assert await finding == 7
    assert 5 <= setup.questions <= 15
    await setup.close()


@virtual
async def test_find_times_out() -> None:
    setup = Setup()
    setup.error_code = CoordinatorNotAvailableError.code
    with pytest.raises(KafkaTimeoutError, match="No coordinator found for 'g' within 3000 ms; the last error: because"):
        await setup.finder.find(GROUP, "g", 3000)
    await setup.close()


@virtual
async def test_authorization_error_is_raised_at_once() -> None:
    setup = Setup()
    setup.error_code = GroupAuthorizationFailedError.code
    with pytest.raises(GroupAuthorizationFailedError, match="because"):
        await setup.finder.find(GROUP, "g", 3000)
    await setup.close()
