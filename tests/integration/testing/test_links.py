"""Network partitions on real connections between brokers."""

import asyncio
from collections.abc import Iterator

import pytest

from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.common.errors import KafkaError
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.testing import EmbeddedBroker
from headrace.testing.links import LinkDialer, Links

ME, OTHER = 1, 2


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


class Peer:
    """The connections of broker 1 to broker 2."""

    def __init__(self, broker: EmbeddedBroker, timeout_ms: float = 60_000):
        self.links = Links()
        self.dialer = LinkDialer(ME, self.links, {broker.port: OTHER}.get)
        self.links.add_listener(self.dialer.links_changed)
        self.client = InterBrokerClient(ME, "PLAINTEXT", dialer=self.dialer, request_timeout_ms=timeout_ms)
        self.client.set_brokers([BrokerInfo(OTHER, (BrokerEndpoint("PLAINTEXT", *broker.address),))])

    async def ask(self) -> MetadataResponse:
        return await self.client.send(OTHER, MetadataRequest(topics=[]))

    async def close(self) -> None:
        await self.client.close()
        self.dialer.close()


@pytest.mark.parametrize("direction", [(ME, OTHER), (OTHER, ME)])
@pytest.mark.parametrize("connected", [True, False])
def test_requests_continue_after_a_partition(
    broker: EmbeddedBroker, direction: tuple[int, int], connected: bool
) -> None:
    async def run() -> None:
        peer = Peer(broker)
        if connected:
            assert (await peer.ask()).brokers
        peer.links.block(*direction)
        waiting = [asyncio.create_task(peer.ask()) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, timeout=0.2)
        assert not done
        peer.links.heal()
        assert all(response.brokers for response in await asyncio.gather(*waiting))
        await peer.close()

    asyncio.run(run())


def test_requests_time_out_during_a_partition(broker: EmbeddedBroker) -> None:
    async def run() -> None:
        peer = Peer(broker, timeout_ms=100)
        await peer.ask()
        peer.links.block(ME, OTHER)
        with pytest.raises(KafkaError):
            await peer.ask()
        # The broker has not noticed that the connection was closed.
        assert await asyncio.to_thread(broker.call, lambda inside: inside.server.connections_open) == 1
        peer.links.heal()
        assert (await peer.ask()).brokers
        await asyncio.to_thread(broker.wait_until, lambda inside: inside.server.connections_open == 1)
        await peer.close()

    asyncio.run(run())
