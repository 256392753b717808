"""Requests between brokers, with fake brokers in virtual time."""

import random
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeBroker, FakeNetwork
from tests.support.net.virtual_loop import run

from headrace.broker.inter_broker_client import InterBrokerClient
from headrace.cluster.commands import BrokerEndpoint, BrokerInfo
from headrace.common.errors import RequestTimedOutError, UnsupportedVersionError
from headrace.net.errors import KafkaConnectionError, UnknownBrokerIdError
from headrace.protocol import ApiKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

REQUEST = HeartbeatRequest(group_id="g")


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def call() -> None:
        run(test())

    return call


def info(broker: FakeBroker, listener: str = "INSIDE", broker_id: int | None = None) -> BrokerInfo:
    host, port = broker.address
    endpoints = (BrokerEndpoint("OUTSIDE", "no-such-host", 1), BrokerEndpoint(listener, host, port))
    return BrokerInfo(broker.id if broker_id is None else broker_id, endpoints)


class Net:
    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.brokers = [self.network.add(number) for number in (1, 2)]
        for broker in self.brokers:
            broker.on(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=0))
        self.client = InterBrokerClient(
            0, "INSIDE", dialer=self.network, random=random.Random(1), request_timeout_ms=1000
        )


@in_virtual_time
async def test_requests_go_to_the_inter_broker_listener() -> None:
    net = Net()
    net.client.set_brokers(info(broker) for broker in net.brokers)
    assert net.client.brokers == {1, 2}
    response = await net.client.send(2, REQUEST, min_version=3, max_version=3)
    assert isinstance(response, HeartbeatResponse)
    (received,) = net.brokers[1].asked(ApiKey.HEARTBEAT)
    assert (received.version, received.client_id) == (3, "broker-0")
    assert not net.brokers[0].asked(ApiKey.HEARTBEAT)
    await net.client.close()


@in_virtual_time
async def test_a_purpose_has_its_own_connection() -> None:
    net = Net()
    net.client.set_brokers(info(broker) for broker in net.brokers)
    await net.client.send(1, REQUEST)
    await net.client.send(1, REQUEST, purpose="fetcher-0")
    await net.client.send(1, REQUEST, purpose="fetcher-0")
    assert len(net.brokers[0].transports) == 2
    net.client.disconnect(1, "fetcher-0")
    assert len(net.brokers[0].transports) == 1
    await net.client.close()
    assert not net.brokers[0].transports


@in_virtual_time
async def test_a_broker_that_is_gone_cannot_be_reached() -> None:
    net = Net()
    with pytest.raises(UnknownBrokerIdError):
        await net.client.send(1, REQUEST)
    net.client.set_brokers([info(net.brokers[0])])
    await net.client.send(1, REQUEST)
    net.client.set_brokers([info(net.brokers[1])])
    assert not net.brokers[0].transports
    with pytest.raises(UnknownBrokerIdError):
        await net.client.send(1, REQUEST)
    await net.client.close()


@in_virtual_time
async def test_a_broker_without_the_listener_cannot_be_reached() -> None:
    net = Net()
    net.client.set_brokers([info(net.brokers[0], "ELSEWHERE")])
    with pytest.raises(UnknownBrokerIdError):
        await net.client.send(1, REQUEST)
    await net.client.close()


@in_virtual_time
async def test_a_broker_with_a_new_address() -> None:
    net = Net()
    net.client.set_brokers([info(net.brokers[0])])
    await net.client.send(1, REQUEST)
    net.client.set_brokers([info(net.brokers[1], broker_id=1)])
    await net.client.send(1, REQUEST)
    assert len(net.brokers[1].asked(ApiKey.HEARTBEAT)) == 1
    await net.client.close()


@in_virtual_time
async def test_errors() -> None:
    net = Net()
    net.client.set_brokers(info(broker) for broker in net.brokers)
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: None)
    with pytest.raises(RequestTimedOutError):
        await net.client.send(1, REQUEST)
    with pytest.raises(UnsupportedVersionError):
        await net.client.send(2, REQUEST, min_version=90)
    await net.client.close()
    with pytest.raises(KafkaConnectionError, match="has closed its connections"):
        await net.client.send(2, REQUEST)
