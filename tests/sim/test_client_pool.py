"""Many users of one connection pool while brokers close or refuse connections, hang, send invalid bytes and leave the
cluster: every call completes, and nothing leaks. Runs in virtual time; the seed of a run is its test id."""

import asyncio
import random
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeBroker, FakeNetwork
from tests.support.net.virtual_loop import run

from headrace.common.errors import KafkaError
from headrace.net.broker_pool import BrokerPool, NetConfig, Node
from headrace.protocol import ApiKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

USERS, CALLS, EVENTS = 20, 30, 20
REQUEST = HeartbeatRequest(group_id="g")


class Sim:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.network = FakeNetwork()
        self.brokers = [self.network.add(number + 1, latency=0.01) for number in range(3)]
        for broker in self.brokers:
            broker.on(ApiKey.HEARTBEAT, lambda _, broker=broker: self.answer(broker))
        self.pool = BrokerPool(
            [self.brokers[0].address],
            NetConfig(request_timeout_ms=500, max_in_flight=3, max_idle_ms=300),
            dialer=self.network,
            random=random.Random(seed),
        )
        self.pool.set_nodes(self.nodes)
        self.answers = self.errors = self.given_up = 0

    @property
    def nodes(self) -> list[Node]:
        return [Node(broker.id, *broker.address) for broker in self.brokers]

    def answer(self, broker: FakeBroker) -> Any:
        chance = self.random.random()
        if chance < 0.03:
            return None
        if chance < 0.05:
            asyncio.get_running_loop().call_later(0.005, broker.hang_up)
        if chance < 0.06:
            return b"HTTP/1.1 400 Bad Request"
        return HeartbeatResponse(throttle_time_ms=50 if chance > 0.95 else 0)

    async def user(self) -> None:
        for _ in range(CALLS):
            patience = self.random.random() * 0.05 if self.random.random() < 0.1 else None
            try:
                async with asyncio.timeout(patience):
                    if self.random.random() < 0.3:
                        await self.pool.send_to_any(REQUEST)
                    else:
                        await self.pool.send(self.random.choice([1, 2, 3]), REQUEST)
                self.answers += 1
            except KafkaError:
                self.errors += 1
            except TimeoutError:
                self.given_up += 1
            await asyncio.sleep(self.random.random() * 0.05)

    async def trouble(self) -> None:
        for _ in range(EVENTS):
            await asyncio.sleep(self.random.random() * 0.5)
            broker = self.random.choice(self.brokers)
            broker.accepts = self.random.random() < 0.7
            broker.hangs = self.random.random() < 0.1
            if self.random.random() < 0.3:
                broker.hang_up()
            if self.random.random() < 0.3:
                self.pool.set_nodes(node for node in self.nodes if self.random.random() < 0.9)
        for broker in self.brokers:
            broker.accepts, broker.hangs = True, False
        self.pool.set_nodes(self.nodes)


@pytest.mark.parametrize("seed", range(10))
def test_every_call_ends_and_nothing_is_left(seed: int) -> None:
    async def main() -> None:
        sim = Sim(seed)
        await asyncio.gather(sim.trouble(), *[sim.user() for _ in range(USERS)])
        assert sim.answers + sim.errors + sim.given_up == USERS * CALLS
        assert sim.answers > USERS * CALLS / 4
        assert all(link.load == 0 for link in sim.pool.links())
        await sim.pool.close()
        assert not any(broker.transports for broker in sim.brokers)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())
