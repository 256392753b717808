"""Throttling by the dispatcher: throttle times in responses, and muted connections, with a clock of the test."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker import handlers
from headrace.broker.apis import NO_REPLY, REGISTRY
from headrace.broker.config.quotas import QuotaConfig
from headrace.broker.dispatch import Dispatcher, RequestContext
from headrace.broker.quotas.quotas import MutedConnections, Quotas
from headrace.cluster.config_store import ConfigEntity
from headrace.common.metrics import Metrics
from headrace.common.principal import ANONYMOUS, Principal
from headrace.common.timing_wheel import Timer
from headrace.net.connection import ServerConnection
from headrace.protocol import decode, encode_request
from headrace.protocol.apis import APIS, ApiKey
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from headrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from headrace.testing.clock import ManualClock


class Connection:
    """A connection that keeps the order of responses, holds and releases."""

    listener_name = "PLAINTEXT"
    peer = ("127.0.0.1", 1)
    context: Any = None
    authentication: Any = None
    closed = False

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.events: list[Any] = []

    def expect_response(self) -> Any:
        return SimpleNamespace(send=self.events.append)

    def hold_requests(self, retained_bytes: int = 0) -> None:
        assert not retained_bytes
        self.events.append("held")

    def release_requests(self, retained_bytes: int = 0) -> None:
        assert not retained_bytes
        self.events.append("released")


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, key: ApiKey, handler: Callable[[Any, RequestContext], Any]):
        handlers.load()
        self.key = key
        self.clock = ManualClock()
        api = REGISTRY[key]
        changed = SimpleNamespace(
            key=key,
            lowest=api.lowest,
            highest=api.highest,
            request=api.request,
            handler=handler,
            is_async=False,
            needs=api.needs,
        )
        changed.bind = lambda _: changed
        monkeypatch.setattr("headrace.broker.dispatch.REGISTRY", {key: changed})
        self.dispatcher = Dispatcher(cast(Any, None), self.clock, Metrics(), 1000, 1000)
        self.timer = Timer(self.clock)
        self.quotas = Quotas(QuotaConfig.from_properties(), self.clock, self.timer)
        self.dispatcher.quotas = self.quotas
        self.dispatcher.muted = self.quotas.muted
        self.connection = Connection(ANONYMOUS)

    def limit(self, **quotas: float) -> None:
        self.quotas.config_changed(ConfigEntity.user(None), {key: str(value) for key, value in quotas.items()})

    def send(self, request: Any, version: int) -> None:
        frame = bytes(encode_request(request, version, 1, "client"))[4:]
        self.dispatcher.frame_received(cast(ServerConnection, self.connection), memoryview(bytearray(frame)))

    def response(self, index: int, version: int) -> Any:
        api = APIS[self.key]
        return decode(api.response, version, bytes(self.connection.events[index])[8 + api.is_flexible(version) :])

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance()


def test_produced_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.PRODUCE, lambda *_: ProduceResponse())
    setup.limit(producer_byte_rate=1)
    request = ProduceRequest(acks=1)
    size = len(bytes(encode_request(request, 7, 1, "client"))) - 4
    setup.send(request, 7)
    throttle_ms = round((size / 10 - 1) * 10_000)
    assert setup.response(0, 7).throttle_time_ms == throttle_ms > 0
    # The response first; then nothing is read until the time has passed.
    assert setup.connection.events[1:] == ["held"]
    setup.advance(throttle_ms - 1)
    assert setup.connection.events[1:] == ["held"]
    setup.advance(1)
    assert setup.connection.events[1:] == ["held", "released"]


def test_produced_bytes_without_response(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.PRODUCE, lambda *_: NO_REPLY)
    setup.limit(producer_byte_rate=1, request_percentage=0)
    setup.send(ProduceRequest(acks=0), 7)
    assert setup.connection.events == ["held"]
    setup.advance(3_600_000)
    assert setup.connection.events == ["held", "released"]


def test_request_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: Any, context: RequestContext) -> Any:
        setup.clock.advance(500)  # of work: 50 % of a second
        context.begin_wait()
        setup.clock.advance(100_000)
        return HeartbeatResponse()

    setup = Setup(monkeypatch, ApiKey.HEARTBEAT, work)
    setup.limit(request_percentage=4)
    for version in (0, 4):
        setup.connection.events.clear()
        setup.send(HeartbeatRequest(group_id="g", member_id="m"), version)
        # 50 % in 10 s are 5 %: (5 - 4) / 4 * 10 s, but at most one window. Old versions have no field for it.
        assert setup.response(0, version).throttle_time_ms == (1000 if version else 0)
        assert setup.connection.events[1:] == ["held"]
        setup.advance(1000)
        assert setup.connection.events[1:] == ["held", "released"]


def test_requests_of_brokers_have_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.LEADER_AND_ISR, lambda *_: LeaderAndIsrResponse())
    setup.limit(request_percentage=0)
    setup.send(LeaderAndIsrRequest(), 7)
    assert len(setup.connection.events) == 1


def test_clients_within_their_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.PRODUCE, lambda *_: ProduceResponse())
    setup.limit(producer_byte_rate=1_000_000, request_percentage=100)
    setup.send(ProduceRequest(acks=1), 7)
    assert len(setup.connection.events) == 1
    assert setup.response(0, 7).throttle_time_ms == 0


@pytest.mark.parametrize("limited", [True, False])
def test_the_fast_path_serves_clients_without_a_quota(monkeypatch: pytest.MonkeyPatch, limited: bool) -> None:
    setup = Setup(monkeypatch, ApiKey.PRODUCE, lambda *_: ProduceResponse())
    name = ANONYMOUS.name if limited else "alice"
    setup.quotas.config_changed(ConfigEntity.user(name), {"producer_byte_rate": "1000000"})
    setup.dispatcher.fast_produce = cast(Any, SimpleNamespace(handle=lambda *_: b"fast"))
    setup.send(ProduceRequest(acks=1), 7)
    assert (setup.connection.events == [b"fast"]) is not limited


def test_closed_connections_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.PRODUCE, lambda *_: ProduceResponse())
    setup.limit(producer_byte_rate=1)
    setup.send(ProduceRequest(acks=1), 7)
    assert len(setup.quotas.muted) == len(setup.timer) == 1
    setup.dispatcher.connection_lost(cast(ServerConnection, setup.connection), None)
    assert len(setup.quotas.muted) == len(setup.timer) == 0
    setup.advance(3_600_000)
    assert setup.connection.events[1:] == ["held"]


def test_the_longest_throttle_time_counts() -> None:
    clock = ManualClock()
    timer = Timer(clock)
    muted = MutedConnections(timer)
    connection = Connection(ANONYMOUS)
    for throttle_ms in (100, 300, 200):
        muted.mute(cast(ServerConnection, connection), throttle_ms)
    assert connection.events == ["held"]
    for ms, events in ((299, ["held"]), (1, ["held", "released"]), (1000, ["held", "released"])):
        clock.advance(ms)
        timer.advance()
        assert connection.events == events
    assert len(muted) == len(timer) == 0
