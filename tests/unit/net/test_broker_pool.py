"""The pool with fake brokers, in virtual time."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.client.fake_brokers import FakeNetwork
from tests.support.net.virtual_loop import run

from headrace.common.errors import (
    KafkaError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    UnsupportedVersionError,
)
from headrace.net.broker_connection import BrokerConnection
from headrace.net.broker_link import BrokerLink, LinkState
from headrace.net.broker_pool import BrokerPool, NetConfig, Node
from headrace.net.errors import KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError
from headrace.protocol import ApiKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

REQUEST = HeartbeatRequest(group_id="g")


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def connected(self, node: Node, purpose: str) -> None:
        self.seen.append(("connected", node.id))

    def disconnected(self, node: Node, purpose: str, error: KafkaError | None) -> None:
        self.seen.append(("disconnected" if error is None else "lost", node.id))

    def connect_failed(self, node: Node, purpose: str, error: KafkaError) -> None:
        self.seen.append(("failed", node.id))

    def throttled(self, node: Node, api_key: int, throttle_time_ms: int) -> None:
        self.seen.append(("throttled", throttle_time_ms))


class Net:
    """A few brokers and a pool that knows them."""

    def __init__(self, brokers: int = 1, known: bool = True, **settings: Any):
        self.network = FakeNetwork()
        self.brokers = [self.network.add(number + 1) for number in range(brokers)]
        for broker in self.brokers:
            broker.on(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=0))
        self.events = Events()
        self.pool = BrokerPool(
            [broker.address for broker in self.brokers],
            NetConfig(client_id="me", **settings),
            dialer=self.network,
            random=random.Random(5),
            events=self.events,
        )
        if known:
            self.pool.set_nodes(self.nodes)

    @property
    def nodes(self) -> list[Node]:
        return [Node(broker.id, *broker.address) for broker in self.brokers]

    def link(self, node_id: int = 1) -> BrokerLink:
        (found,) = [link for link in self.pool.links() if link.node.id == node_id]
        return found


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def call() -> None:
        run(test())

    call.__name__ = test.__name__
    return call


def elapsed(since: float) -> float:
    return asyncio.get_running_loop().time() - since


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual
async def test_connects_once_on_first_use() -> None:
    net = Net()
    replies = await asyncio.gather(*[net.pool.send(1, REQUEST) for _ in range(10)])
    assert len(replies) == 10
    assert len(net.brokers[0].dials) == 1
    assert net.brokers[0].requests[0].api_key == ApiKey.API_VERSIONS
    assert net.pool.is_ready(1)
    await net.pool.close()
    assert net.events.seen == [("connected", 1), ("disconnected", 1)]


@virtual
async def test_each_purpose_has_its_own_connection() -> None:
    net = Net()
    await net.pool.send(1, REQUEST)
    await net.pool.send(1, REQUEST, purpose="coordinator")
    assert len(net.brokers[0].dials) == 2
    assert net.pool.is_ready(1, "coordinator")
    await net.pool.close()


@virtual
async def test_send_now_writes_in_the_same_call() -> None:
    net = Net()
    with pytest.raises(NodeNotReadyError):
        net.pool.send_now(1, REQUEST)
    await net.pool.connect(1)
    future = net.pool.send_now(1, REQUEST)
    assert len(net.brokers[0].asked(ApiKey.HEARTBEAT)) == 1
    assert net.pool.in_flight(1) == 1
    assert (await future).error_code == 0
    await net.pool.close()


@virtual
async def test_unknown_broker_id_raises() -> None:
    net = Net()
    with pytest.raises(UnknownBrokerIdError, match="no broker with id 7 is known"):
        await net.pool.send(7, REQUEST)
    await net.pool.close()


@virtual
async def test_error_without_message_shows_its_class() -> None:
    async def dial(*_: object) -> None:
        raise ConnectionResetError  # the outcome of a TLS handshake on a plaintext port

    net = Net()
    net.network.dial = dial  # type: ignore[method-assign]
    with pytest.raises(KafkaConnectionError, match=r"could not connect to .*: ConnectionResetError"):
        await net.pool.send(1, REQUEST)
    await net.pool.close()


@virtual
async def test_refused_connections_back_off() -> None:
    net = Net(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1000)
    broker = net.brokers[0]
    broker.accepts = False
    for _ in range(9):
        with pytest.raises(
            KafkaConnectionError, match=r"could not connect to host1:9092 \(broker 1\): .*refused"
        ) as caught:
            await net.pool.send(1, REQUEST)
        assert not caught.value.sent
    gaps = [later - sooner for sooner, later in zip(broker.dials, broker.dials[1:], strict=False)]
    for gap, wanted in zip(gaps, [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], strict=True):
        assert wanted * 0.8 <= gap <= wanted * 1.2 + 0.01
    assert len(set(gaps)) == len(gaps)  # jitter
    assert net.pool.is_backing_off(1)
    assert net.pool.ready_in_ms(1) > 0
    broker.accepts = True
    await net.pool.send(1, REQUEST)
    assert net.link().failures == 0
    await net.pool.close()


@virtual
async def test_failed_attempt_fails_all_callers() -> None:
    net = Net()
    net.brokers[0].accepts = False
    results = await asyncio.gather(*[net.pool.send(1, REQUEST) for _ in range(5)], return_exceptions=True)
    assert [type(result) for result in results] == [KafkaConnectionError] * 5
    assert len(net.brokers[0].dials) == 1
    await net.pool.close()


@virtual
async def test_cancelled_caller_does_not_cancel_the_attempt() -> None:
    net = Net()
    waiting = asyncio.create_task(net.pool.send(1, REQUEST))
    await asyncio.sleep(0)
    waiting.cancel()
    await net.pool.send(1, REQUEST)
    assert waiting.cancelled()
    assert len(net.brokers[0].dials) == 1
    await net.pool.close()


@virtual
async def test_setup_timeout_grows_with_each_failure() -> None:
    net = Net(setup_timeout_ms=1000, setup_timeout_max_ms=3000, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    net.brokers[0].hangs = True
    for wanted in (1.0, 2.0, 3.0, 3.0):
        since = now()
        with pytest.raises(KafkaConnectionError, match="not established within"):
            await net.pool.send(1, REQUEST)
        assert wanted * 0.8 <= elapsed(since) <= wanted * 1.2
    await net.pool.close()


@virtual
async def test_missing_api_versions_response_fails_the_attempt() -> None:
    net = Net(setup_timeout_ms=1000)
    net.brokers[0].on(ApiKey.API_VERSIONS, lambda _: None)
    with pytest.raises(KafkaConnectionError, match="not established within"):
        await net.pool.send(1, REQUEST)
    assert not net.brokers[0].transports
    await net.pool.close()


@virtual
async def test_other_protocols_are_recognized() -> None:
    net = Net()
    net.brokers[0].on(ApiKey.API_VERSIONS, lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(KafkaConnectionError, match="looks like an HTTP server"):
        await net.pool.send(1, REQUEST)
    await net.pool.close()


@virtual
async def test_authentication_precedes_other_requests() -> None:
    order: list[str] = []

    async def authenticate(connection: BrokerConnection) -> None:
        assert connection.version_for(ApiKey.HEARTBEAT) == 4
        order.append("authenticated")

    net = Net(authenticate=authenticate)
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: order.append("asked") or HeartbeatResponse())  # type: ignore[func-returns-value]
    await net.pool.send(1, REQUEST)
    assert order == ["authenticated", "asked"]
    await net.pool.close()


@virtual
async def test_lost_connection_is_reestablished_after_backoff() -> None:
    net = Net()
    await net.pool.send(1, REQUEST)
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: None)
    waiting = asyncio.create_task(net.pool.send(1, REQUEST))
    await asyncio.sleep(0.1)
    net.brokers[0].hang_up()
    with pytest.raises(KafkaConnectionError, match="closed the connection"):
        await waiting
    since = now()
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse())
    await net.pool.send(1, REQUEST)
    assert elapsed(since) >= 0.04
    assert net.events.seen == [("connected", 1), ("lost", 1), ("connected", 1)]
    await net.pool.close()


@virtual
async def test_timeout_counts_from_sending() -> None:
    net = Net(request_timeout_ms=2000)
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: None)
    since = now()
    with pytest.raises(RequestTimedOutError):
        await net.pool.send(1, REQUEST)
    assert elapsed(since) == pytest.approx(2.0, abs=0.1)
    since = now()
    with pytest.raises(RequestTimedOutError):
        await net.pool.send(1, REQUEST, timeout_ms=500)
    assert elapsed(since) == pytest.approx(0.55, abs=0.1)  # including the back-off before reconnecting
    await net.pool.close()


@virtual
async def test_limits_requests_in_flight() -> None:
    net = Net(max_in_flight=2)
    broker = net.brokers[0]
    broker.latency = 1.0
    most = 0

    def note(_: Any) -> HeartbeatResponse:
        nonlocal most
        most = max(most, net.pool.in_flight(1) + 1)
        return HeartbeatResponse()

    broker.on(ApiKey.HEARTBEAT, note)
    await asyncio.gather(*[net.pool.send(1, REQUEST) for _ in range(7)])
    assert len(broker.asked(ApiKey.HEARTBEAT)) == 7
    assert most <= 3
    assert all(
        sum(1 for other in broker.asked(ApiKey.HEARTBEAT) if each.at <= other.at < each.at + 1.0) <= 2
        for each in broker.asked(ApiKey.HEARTBEAT)
    )
    await net.pool.close()


@virtual
async def test_waiting_requests_survive_a_lost_connection() -> None:
    net = Net(max_in_flight=1)
    broker = net.brokers[0]
    broker.on(ApiKey.HEARTBEAT, lambda _: None)
    first = asyncio.create_task(net.pool.send(1, REQUEST))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(net.pool.send(1, REQUEST))
    await asyncio.sleep(0.1)
    broker.on(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=5))
    broker.hang_up()
    with pytest.raises(KafkaConnectionError):
        await first
    assert (await second).error_code == 5
    await net.pool.close()


@virtual
async def test_throttled_client_waits() -> None:
    net = Net()
    answers = [HeartbeatResponse(throttle_time_ms=3000), HeartbeatResponse()]
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: answers.pop(0))
    await net.pool.send(1, REQUEST)
    since = now()
    assert not net.pool.is_ready(1)
    assert 2900 < net.pool.ready_in_ms(1) <= 3000
    with pytest.raises(NodeNotReadyError):
        net.pool.send_now(1, REQUEST)
    await net.pool.send(1, REQUEST)
    assert elapsed(since) >= 2.9
    assert ("throttled", 3000) in net.events.seen
    await net.pool.close()


@virtual
async def test_idle_connections_are_closed_and_reopened_without_backoff() -> None:
    net = Net(max_idle_ms=60_000)
    await net.pool.send(1, REQUEST)
    await asyncio.sleep(40)
    assert net.pool.is_ready(1)
    await net.pool.send(1, REQUEST)
    await asyncio.sleep(40)
    assert net.pool.is_ready(1)  # used in between
    await asyncio.sleep(60)
    assert not net.pool.is_ready(1)
    assert net.pool.ready_in_ms(1) == 0
    assert not net.pool.is_backing_off(1)
    assert net.events.seen == [("connected", 1), ("disconnected", 1)]
    await net.pool.send(1, REQUEST)
    await net.pool.close()


@virtual
async def test_connection_with_request_in_flight_is_not_idle() -> None:
    net = Net(max_idle_ms=1000, request_timeout_ms=100_000)
    net.brokers[0].latency = 30.0
    with pytest.raises(KafkaConnectionError):
        await net.pool.send(1, REQUEST)  # even establishing the connection takes too long
    net.brokers[0].latency = 0.01
    await net.pool.connect(1)
    net.brokers[0].latency = 30.0
    assert (await net.pool.send(1, REQUEST)).error_code == 0
    await net.pool.close()


# ---- nodes


@virtual
async def test_bootstrap_connection_is_handed_over_to_the_broker() -> None:
    net = Net(known=False)
    await net.pool.send_to_any(REQUEST)
    assert net.link(-1).state is LinkState.READY
    net.pool.set_nodes(net.nodes)
    await net.pool.send(1, REQUEST)
    assert len(net.brokers[0].dials) == 1
    assert [link.node.id for link in net.pool.links()] == [1]
    await net.pool.close()


@virtual
async def test_unclaimed_bootstrap_connection_is_closed() -> None:
    net = Net(known=False)
    await net.pool.send_to_any(REQUEST)
    net.pool.set_nodes([Node(9, "elsewhere", 9092)])
    assert not list(net.pool.links())
    assert not net.brokers[0].transports
    await net.pool.close()


@virtual
async def test_removed_broker_is_forgotten() -> None:
    net = Net(2)
    await net.pool.send(1, REQUEST)
    await net.pool.send(2, REQUEST)
    net.pool.set_nodes(net.nodes[:1])
    with pytest.raises(UnknownBrokerIdError):
        await net.pool.send(2, REQUEST)
    assert not net.brokers[1].transports
    assert net.pool.is_ready(1)
    await net.pool.close()


@virtual
async def test_moved_broker_is_dialled_at_its_new_address() -> None:
    net = Net()
    await net.pool.send(1, REQUEST)
    moved = net.network.add(1, "elsewhere")
    moved.on(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=9))
    net.pool.set_nodes([Node(1, "elsewhere", 9092)])
    assert (await net.pool.send(1, REQUEST)).error_code == 9
    assert not net.brokers[0].transports
    await net.pool.close()


# ---- least loaded


@virtual
async def test_least_loaded_has_the_fewest_requests_in_flight() -> None:
    net = Net(3)
    for node_id in (1, 2, 3):
        await net.pool.connect(node_id)
    for broker in net.brokers:
        broker.on(ApiKey.HEARTBEAT, lambda _: None)
    waiting = [net.pool.send_now(node_id, REQUEST) for node_id in (1, 1, 2)]
    assert net.pool.least_loaded() == 3
    waiting += [net.pool.send_now(3, REQUEST), net.pool.send_now(3, REQUEST)]
    assert net.pool.least_loaded() == 2
    await net.pool.close()
    await asyncio.gather(*waiting, return_exceptions=True)


@virtual
async def test_connected_brokers_rank_first_and_failing_ones_last() -> None:
    net = Net(3)
    net.brokers[0].accepts = False
    with pytest.raises(KafkaConnectionError):
        await net.pool.connect(1)
    assert {net.pool.least_loaded() for _ in range(50)} == {2, 3}
    await net.pool.connect(2)
    assert {net.pool.least_loaded() for _ in range(50)} == {2}
    await net.pool.close()


@virtual
async def test_ties_are_broken_at_random() -> None:
    net = Net(3)
    assert {net.pool.least_loaded() for _ in range(100)} == {1, 2, 3}
    await net.pool.close()


@virtual
async def test_bootstrap_addresses_are_used_if_no_broker_is_reachable() -> None:
    net = Net(known=False)
    net.pool.set_nodes([Node(5, "gone", 9092)])
    assert net.pool.least_loaded() == 5
    with pytest.raises(KafkaConnectionError):
        await net.pool.connect(5)
    assert net.pool.least_loaded() == -1
    await net.pool.send_to_any(REQUEST)
    await net.pool.close()


@virtual
async def test_bootstrap_addresses_are_not_used_without_rebootstrap() -> None:
    net = Net(known=False, rebootstrap=False)
    net.pool.set_nodes([Node(5, "gone", 9092)])
    with pytest.raises(KafkaConnectionError):
        await net.pool.connect(5)
    assert net.pool.least_loaded() == 5
    await net.pool.close()


@virtual
async def test_rebootstrap_forgets_all_brokers() -> None:
    net = Net(2)
    await net.pool.send(2, REQUEST)
    net.pool.rebootstrap()
    assert not net.pool.nodes
    assert net.pool.least_loaded() < 0
    await net.pool.close()


@virtual
async def test_version_respects_bounds() -> None:
    net = Net()
    net.brokers[0].versions[ApiKey.HEARTBEAT] = (0, 2)
    assert net.pool.version(1, ApiKey.HEARTBEAT) is None
    await net.pool.send(1, REQUEST)
    assert net.brokers[0].asked(ApiKey.HEARTBEAT)[0].version == 2
    assert net.pool.version(1, ApiKey.HEARTBEAT) == 2
    with pytest.raises(UnsupportedVersionError):
        await net.pool.send(1, REQUEST, min_version=3)
    assert net.pool.is_ready(1)
    await net.pool.close()


# ---- closing


@virtual
async def test_close_while_connecting() -> None:
    net = Net()
    net.brokers[0].hangs = True
    waiting = asyncio.create_task(net.pool.send(1, REQUEST))
    await asyncio.sleep(1)
    await net.pool.close()
    with pytest.raises(KafkaConnectionError, match="closed"):
        await waiting
    with pytest.raises(KafkaConnectionError, match="the client is closed"):
        await net.pool.send(1, REQUEST)


@virtual
async def test_close_with_requests_in_flight_and_waiting() -> None:
    net = Net(max_in_flight=1)
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: None)
    waiting = [asyncio.create_task(net.pool.send(1, REQUEST)) for _ in range(3)]
    await asyncio.sleep(1)
    await net.pool.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, KafkaConnectionError) for result in results)


@virtual
async def test_authenticates_again_while_requests_wait() -> None:
    order: list[str] = []

    async def authenticate(connection: BrokerConnection) -> float | None:
        order.append("begins")
        await asyncio.sleep(1)
        order.append("done")
        return 10.0 if order.count("done") < 2 else None

    net = Net(authenticate=authenticate, setup_timeout_ms=5000)
    net.brokers[0].on(ApiKey.HEARTBEAT, lambda _: order.append("asked") or HeartbeatResponse(error_code=0))
    await net.pool.send(1, REQUEST)
    await asyncio.sleep(10.5)
    assert order == ["begins", "done", "asked", "begins"]
    assert not net.pool.is_ready(1)
    assert net.pool.ready_in_ms(1) > 0  # the producer looks again then
    with pytest.raises(NodeNotReadyError):
        net.pool.send_now(1, REQUEST)
    await net.pool.send(1, REQUEST)
    assert order == ["begins", "done", "asked", "begins", "done", "asked"]
    await asyncio.sleep(60)
    assert order.count("begins") == 2
    assert len(net.brokers[0].dials) == 1
    await net.pool.close()


@virtual
async def test_failed_reauthentication_closes_the_connection() -> None:
    calls: list[BrokerConnection] = []

    async def authenticate(connection: BrokerConnection) -> float | None:
        calls.append(connection)
        if len(calls) > 1:
            raise SaslAuthenticationFailedError("wrong password")
        return 10.0

    net = Net(authenticate=authenticate)
    await net.pool.send(1, REQUEST)
    await asyncio.sleep(11)
    assert calls[0].closed
    with pytest.raises(SaslAuthenticationFailedError, match="wrong password"):
        await net.pool.send(1, REQUEST)
    await net.pool.close()


@virtual
async def test_closes_during_a_reauthentication() -> None:
    async def authenticate(connection: BrokerConnection) -> float | None:
        if connection.in_flight or net.events.seen:
            await asyncio.sleep(1000)
        return 10.0

    net = Net(authenticate=authenticate)
    await net.pool.send(1, REQUEST)
    await asyncio.sleep(11)
    assert net.link().is_reauthenticating
    await net.pool.close()
    assert not net.link().is_reauthenticating if list(net.pool.links()) else True
