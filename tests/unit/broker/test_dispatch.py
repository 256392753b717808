"""Dispatching: slow requests, for which only the broker's work counts, and long requests that fail."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker import dispatch, handlers
from headrace.broker.apis import DEFERRED, REGISTRY
from headrace.broker.dispatch import Dispatcher, RequestContext
from headrace.broker.yielding import InTurns
from headrace.common.metrics import Metrics
from headrace.net.connection import ServerConnection
from headrace.protocol import decode, encode_request
from headrace.protocol.apis import ApiKey
from headrace.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from headrace.testing.clock import ManualClock

MAX_ELEMENTS = 1000
SLOW_MS = 1000


class Connection:
    """A connection that keeps the responses."""

    listener_name = "PLAINTEXT"
    peer = ("127.0.0.1", 1)
    context: Any = None
    closed = False
    authentication: Any = None

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.kept_frames = 0
        self.held_bytes = 0

    def __str__(self) -> str:
        return "127.0.0.1:1"

    def expect_response(self) -> Any:
        return SimpleNamespace(send=self.sent.append)

    def keep_frame(self, frame: memoryview) -> memoryview:
        self.kept_frames += 1
        return frame

    def release_frame(self) -> None:
        self.kept_frames -= 1

    def hold_requests(self, retained_bytes: int = 0) -> None:
        self.held_bytes += retained_bytes

    def release_requests(self, retained_bytes: int = 0) -> None:
        self.held_bytes -= retained_bytes

    def retain(self, retained_bytes: int) -> None:
        self.held_bytes += retained_bytes

    def close(self, _: str) -> None:
        self.closed = True


class Setup:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, key: ApiKey, handler: Callable[[Any, RequestContext], Any]):
        handlers.load()
        self.clock = ManualClock()
        services = cast(Any, SimpleNamespace(**dict.fromkeys(REGISTRY[key].services)))
        api = REGISTRY[key]
        changed = self.api = SimpleNamespace(
            key=key, lowest=api.lowest, highest=api.highest, request=api.request, handler=handler, is_async=False
        )
        changed.bind = lambda _: changed
        monkeypatch.setattr("headrace.broker.dispatch.REGISTRY", {key: changed})
        self.dispatcher = Dispatcher(services, self.clock, Metrics(), SLOW_MS, MAX_ELEMENTS)
        self.connection = Connection()

    def send(self, request: Any, version: int, client_id: str = "client") -> None:
        frame = bytes(encode_request(request, version, 1, client_id))[4:]
        self.dispatcher.frame_received(cast(ServerConnection, self.connection), memoryview(bytearray(frame)))


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.FETCH])
def test_waiting_is_not_slow(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: ApiKey) -> None:
    waiting: list[RequestContext] = []

    def wait(_: Any, context: RequestContext) -> Any:
        waiting.append(context)
        return DEFERRED

    setup = Setup(monkeypatch, key, wait)
    request, response = {
        ApiKey.JOIN_GROUP: (JoinGroupRequest(group_id="g"), JoinGroupResponse(protocol_name="")),
        ApiKey.FETCH: (FetchRequest(), FetchResponse()),
    }[key]
    setup.send(request, 4)
    setup.clock.advance(300_000)
    waiting[0].reply(response)
    assert len(setup.connection.sent) == 1
    assert "took" not in caplog.text


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.FETCH])
def test_work_is_slow_also_before_a_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: ApiKey
) -> None:
    waiting: list[RequestContext] = []

    def work(_: Any, context: RequestContext) -> Any:
        setup.clock.advance(1_500)
        waiting.append(context)
        return DEFERRED

    setup = Setup(monkeypatch, key, work)
    setup.send(JoinGroupRequest(group_id="g") if key is ApiKey.JOIN_GROUP else FetchRequest(), 4)
    setup.clock.advance(300_000)
    waiting[0].reply(JoinGroupResponse(protocol_name="") if key is ApiKey.JOIN_GROUP else FetchResponse())
    assert f"{key.name} v4" in caplog.text
    assert "took 1500 ms of work, and 300000 ms of waiting" in caplog.text


class Coroutines:
    """Requests whose handlers work for 500 ms, wait for 20 s, and work for 600 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start: str):
        self.handler_starts = start
        self.setup = Setup(monkeypatch, ApiKey.JOIN_GROUP, self.handle)
        self.setup.api.is_async = start == "by the dispatcher"
        self.waiting: asyncio.Future[None] | None = None
        self.deferred: list[RequestContext] = []

    def handle(self, _: Any, context: RequestContext) -> Any:
        if self.handler_starts == "in order":
            return context.run(self.work(context))
        if self.handler_starts == "concurrently":
            return context.run_concurrently(self.work(context))
        return self.work(context)

    async def work(self, context: RequestContext) -> Any:
        self.setup.clock.advance(500)
        self.waiting = asyncio.get_running_loop().create_future()
        await asyncio.shield(self.waiting)
        self.setup.clock.advance(600)
        if self.handler_starts == "concurrently":
            self.deferred.append(context)
            return DEFERRED
        return JoinGroupResponse(protocol_name="")

    async def send(self) -> None:
        self.setup.send(JoinGroupRequest(group_id="g"), 4)
        await self.until(lambda: self.waiting is not None)
        assert self.waiting is not None
        self.setup.clock.advance(20_000)
        self.waiting.set_result(None)
        await self.until(lambda: self.deferred or self.setup.connection.sent)
        for context in self.deferred:
            await asyncio.sleep(0)  # the dispatcher gets DEFERRED
            self.setup.clock.advance(1_000)
            context.reply(JoinGroupResponse(protocol_name=""))
        assert len(self.setup.connection.sent) == 1

    @staticmethod
    async def until(condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("start", "waited_ms"), [("by the dispatcher", 20_000), ("in order", 20_000), ("concurrently", 21_000)]
)
def test_what_a_coroutine_awaits_is_not_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, start: str, waited_ms: int
) -> None:
    coroutines = Coroutines(monkeypatch, start)
    asyncio.run(coroutines.send())
    assert f"took 1100 ms of work, and {waited_ms} ms of waiting" in caplog.text


def test_cancelled_coroutine_can_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def work(_: Any, context: RequestContext) -> Any:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            ended.append("cleaned up")
            raise

    async def scenario() -> None:
        setup = Setup(monkeypatch, ApiKey.JOIN_GROUP, work)
        setup.api.is_async = True
        setup.send(JoinGroupRequest(group_id="g"), 4)
        await asyncio.sleep(0)
        await setup.dispatcher.cancel_tasks()
        assert setup.connection.sent == []

    asyncio.run(scenario())
    assert ended == ["cleaned up"]


def test_other_requests_between_the_turns_of_a_generator_are_not_its_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def work(_: Any, context: RequestContext) -> InTurns[Any]:
        setup.clock.advance(700)
        asyncio.get_running_loop().call_soon(setup.clock.advance, 9_000)
        yield
        setup.clock.advance(700)
        return FetchResponse()

    async def scenario() -> None:
        setup.send(FetchRequest(), 4)
        async with asyncio.timeout(10):
            while not setup.connection.sent:
                await asyncio.sleep(0)

    setup = Setup(monkeypatch, ApiKey.FETCH, work)
    asyncio.run(scenario())
    assert "took 1400 ms of work, and 9000 ms of waiting" in caplog.text


def test_long_client_id_is_shortened_in_log_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str | None] = []

    def work(_: Any, context: RequestContext) -> FetchResponse:
        seen.append(context.client_id)
        setup.clock.advance(1_500)
        return FetchResponse()

    setup = Setup(monkeypatch, ApiKey.FETCH, work)
    client_id = "a" * 30_000 + "b" * 37
    setup.send(FetchRequest(), 4, client_id)
    with caplog.at_level("INFO"):
        setup.send(FetchRequest(topics=[FetchTopic(topic="t")] * (MAX_ELEMENTS + 1)), 4, client_id)
    assert seen == [client_id]
    assert setup.connection.closed
    shortened = f"client '{'a' * 60}...{'b' * 37}'"
    assert [shortened in record.getMessage() for record in caplog.records] == [True, True]
    assert all(len(record.getMessage()) < 500 for record in caplog.records)


def test_long_request_that_cannot_be_decoded_frees_its_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Few long requests are in progress at a time: one that fails must not stay among them."""

    def fail_in_thread(*args: Any, gives_way: bool = False) -> Any:
        if gives_way:
            raise MemoryError
        return decode(*args)

    async def scenario() -> None:
        setup = Setup(monkeypatch, ApiKey.FETCH, lambda *_: FetchResponse())
        monkeypatch.setattr(dispatch, "decode", fail_in_thread)
        setup.send(FetchRequest(topics=[FetchTopic(topic="t", partitions=[])] * 600), 4)
        assert (setup.dispatcher.long_requests.in_progress, setup.connection.kept_frames) == (1, 1)
        async with asyncio.timeout(10):
            while setup.dispatcher.long_requests.in_progress:
                await asyncio.sleep(0)
        assert (setup.connection.closed, setup.connection.kept_frames) == (True, 0)
        await setup.dispatcher.cancel_tasks()

    asyncio.run(scenario())
    assert "FETCH v4" in caplog.text
    assert "MemoryError" in caplog.text


def test_no_other_request_waits_for_the_checks_of_a_delayed_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """New data can restart the checks of a long fetch until its timeout."""
    checks: list[int] = []

    def check() -> InTurns[None]:
        while True:
            checks.append(1)
            yield

    def wait(_: Any, context: RequestContext) -> Any:
        context.check_in_turns(check())
        return DEFERRED

    async def scenario() -> None:
        setup = Setup(monkeypatch, ApiKey.FETCH, wait)
        setup.send(FetchRequest(topics=[FetchTopic(topic="t", partitions=[])] * 600), 4)
        async with asyncio.timeout(10):
            while len(checks) < 3:
                await asyncio.sleep(0)
        assert (setup.dispatcher.long_requests.in_progress, setup.connection.kept_frames) == (0, 0)
        assert setup.connection.sent == []
        await setup.dispatcher.cancel_tasks()

    asyncio.run(scenario())


def test_requests_of_clients_wait_until_the_broker_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.FETCH, lambda *_: FetchResponse())
    setup.dispatcher.hold_clients()
    setup.send(FetchRequest(), 4)
    assert setup.connection.sent == []
    assert setup.connection.held_bytes > 0
    setup.dispatcher.open()
    assert len(setup.connection.sent) == 1
    assert setup.connection.held_bytes == 0
    setup.send(FetchRequest(), 4)
    assert len(setup.connection.sent) == 2


def test_a_request_that_waited_is_dropped_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(monkeypatch, ApiKey.FETCH, lambda *_: FetchResponse())
    setup.dispatcher.hold_clients()
    setup.send(FetchRequest(), 4)
    setup.connection.closed = True
    setup.dispatcher.open()
    assert setup.connection.sent == []
    assert setup.connection.held_bytes == 0


def test_commands_of_the_controller_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[int] = []

    def handle(request: UpdateMetadataRequest, _: RequestContext) -> UpdateMetadataResponse:
        received.append(len(request.topic_states[0].partition_states))
        return UpdateMetadataResponse()

    setup = Setup(monkeypatch, ApiKey.UPDATE_METADATA, handle)
    setup.dispatcher.hold_clients()
    # More array elements than a client may send.
    partitions = [UpdateMetadataPartitionState(partition_index=index) for index in range(2 * MAX_ELEMENTS)]
    setup.send(UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState(partition_states=partitions)]), 8)
    assert received == [2 * MAX_ELEMENTS]
    assert len(setup.connection.sent) == 1
