"""The session with a kazoo client that is not connected: the test plays kazoo's thread."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from kazoo.client import KazooState
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster.store import EventKind, SessionExpired, WatchEvent
from headrace.cluster.zookeeper import session
from headrace.cluster.zookeeper.config import ZooKeeperConfig
from headrace.cluster.zookeeper.session import RequestLost, Session, Watcher

CONFIG = ZooKeeperConfig(("127.0.0.1:1",))


class Kazoo:
    """A session and its client's callbacks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: list[Session] = []
        self.session = Session(CONFIG, None, self.lost.append)
        self.client = self.session._client
        self.requests: list[Any] = []
        self.replies: list[Any] = []
        monkeypatch.setattr(self.client, "_call", self._call)

    def _call(self, request: Any, reply: Any) -> None:
        self.requests.append(request)
        self.replies.append(reply)

    async def on_thread(self, function: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def connect(self) -> None:
        self.client._session_id, self.client._session_passwd = 7, b"secret"
        await self.on_thread(self.client._session_callback, KeeperState.CONNECTED)

    async def disconnect(self) -> None:
        await self.on_thread(self.client._session_callback, KeeperState.CONNECTING)

    async def expire(self) -> None:
        await self.on_thread(self.client._session_callback, KeeperState.EXPIRED_SESSION)


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


@async_test
async def _calls(patch: pytest.MonkeyPatch) -> None:
    kazoo = Kazoo(patch)
    waiting = asyncio.create_task(kazoo.session.wait_connected())
    await asyncio.sleep(0)
    assert not waiting.done()
    await kazoo.connect()
    await waiting
    assert (kazoo.session.id, kazoo.session.name) == (7, "0x7")
    calls = [asyncio.create_task(kazoo.session.call(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert kazoo.requests == [0, 1, 2], "sent without waiting"
    await kazoo.on_thread(kazoo.replies[0].set, "zero")
    assert await calls[0] == "zero"
    await kazoo.on_thread(kazoo.replies[1].set_exception, ConnectionLoss())
    with pytest.raises(RequestLost):
        await calls[1]
    await kazoo.on_thread(kazoo.replies[2].set_exception, SessionExpiredError())
    with pytest.raises(SessionExpired, match="0x7"):
        await calls[2]
    await kazoo.session.close()


def test_calls(patch: pytest.MonkeyPatch) -> None:
    _calls(patch)


@async_test
async def _failed_request(patch: pytest.MonkeyPatch) -> None:
    kazoo = Kazoo(patch)
    await kazoo.connect()
    call = asyncio.create_task(kazoo.session.call("request"))
    await asyncio.sleep(0)
    # kazoo does this before it announces that the connection is lost.
    await kazoo.on_thread(kazoo.replies[0].set_exception, ConnectionLoss())
    with pytest.raises(RequestLost):
        await call
    assert not kazoo.session.is_connected, "a request that is repeated now would fail again"
    repeated = asyncio.create_task(kazoo.session.wait_connected())
    await kazoo.disconnect()
    assert not repeated.done()
    await kazoo.connect()
    await repeated
    await kazoo.session.close()


def test_no_request_is_repeated_before_the_next_connection(patch: pytest.MonkeyPatch) -> None:
    _failed_request(patch)


@async_test
async def _lost_connection(patch: pytest.MonkeyPatch) -> None:
    kazoo = Kazoo(patch)
    await kazoo.connect()
    seen: list[WatchEvent] = []
    kazoo.client._data_watchers["/a"].add(Watcher(kazoo.session, "/a", False, seen.append))
    kazoo.client._child_watchers["/b"].add(Watcher(kazoo.session, "/b", True, seen.append))
    await kazoo.disconnect()
    assert kazoo.client.state == KazooState.SUSPENDED
    assert seen == [], "not before the connection is back"
    await kazoo.connect()
    assert {(event.kind, event.path) for event in seen} == {(EventKind.CHANGED, "/a"), (EventKind.CHILDREN, "/b")}
    assert kazoo.lost == []
    await kazoo.session.close()


def test_lost_connection(patch: pytest.MonkeyPatch) -> None:
    _lost_connection(patch)


@async_test
async def _expired_session(patch: pytest.MonkeyPatch) -> None:
    kazoo = Kazoo(patch)
    await kazoo.connect()
    seen: list[WatchEvent] = []
    watcher = Watcher(kazoo.session, "/a", False, seen.append)
    kazoo.client._data_watchers["/a"].add(watcher)
    pending = asyncio.create_task(kazoo.session.call("request"))
    await kazoo.disconnect()
    await kazoo.expire()
    assert kazoo.lost == [kazoo.session]
    assert kazoo.client._stopped.is_set(), "the client must not open another session"
    with pytest.raises(SessionExpired):
        await pending
    with pytest.raises(SessionExpired):
        await kazoo.session.call("request")
    with pytest.raises(SessionExpired):
        await kazoo.session.wait_connected()
    await kazoo.on_thread(watcher, WatchedEvent(EventType.CHANGED, KeeperState.CONNECTED, "/a"))
    assert seen == []


def test_expired_session(patch: pytest.MonkeyPatch) -> None:
    _expired_session(patch)


def test_log_of_kazoo_repeats_nothing_within_ten_seconds() -> None:
    repeats = session.RepeatFilter()

    def line(text: str, seconds: float) -> bool:
        return repeats.filter(logging.makeLogRecord({"msg": text, "created": seconds}))

    shown = [second for second in (0, 5, 9, 10, 15, 20) if line("Refused", 1000.0 + second)]
    assert shown == [0, 10, 20]
    assert line("Session has expired", 1001.0)
    assert not line("Transition to CONNECTING", 2000.0)
