"""Starts and stops that fail, are broken off, or come at a bad moment: nothing stays open, and the next start works."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.cluster import async_test
from tests.support.wire import ConnectionEnded, WireClient
from tests.support.wire_calls import batch, fetch, fetch_request, produce

from headrace.broker.config import BrokerConfig
from headrace.broker.server import Broker
from headrace.cluster.topics import NewTopic
from headrace.common.errors import HeadraceError
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.testing import EmbeddedBroker


def make(*directories: Path, port: int = 0, **properties: object) -> Broker:
    given = {key.replace("_", "."): value for key, value in properties.items()}
    dirs = ",".join(map(str, directories))
    return Broker(BrokerConfig.load({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": dirs, **given}))


async def make_topic(broker: Broker, name: str, partitions: int = 1) -> None:
    await broker.topics.create_topic(NewTopic(name, partitions))
    assert await broker.image.wait_for(lambda image: image.topic_is_ready(name, partitions), 20)


class Gate:
    """Has a thread wait in a method until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str):
        self._entered, self._open = threading.Event(), threading.Event()
        original: Callable[..., object] = getattr(owner, name)

        def wait_first(*arguments: object) -> object:
            self._entered.set()
            assert self._open.wait(20)
            return original(*arguments)

        monkeypatch.setattr(owner, name, wait_first)

    async def entered(self) -> None:
        assert await asyncio.to_thread(self._entered.wait, 20)

    def open(self) -> None:
        self._open.set()


@async_test
async def test_a_start_that_is_broken_off_while_logs_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, LogManager, "start")
    starting = asyncio.create_task(make(tmp_path).start())
    await gate.entered()
    starting.cancel()
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await starting
    monkeypatch.undo()
    broker = make(tmp_path)
    await broker.start()
    await broker.stop()


@async_test
async def test_a_stop_that_is_broken_off_while_logs_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make(tmp_path)
    await broker.start()
    await make_topic(broker, "t")
    gate = Gate(monkeypatch, LogManager, "close")
    stopping = asyncio.create_task(broker.stop())
    await gate.entered()
    stopping.cancel()
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    monkeypatch.undo()
    again = make(tmp_path)
    await again.start()
    assert again.image.has_topic("t")
    await again.stop()


@async_test
async def test_a_stop_that_is_broken_off_while_it_waits_for_replies(tmp_path: Path) -> None:
    broker = make(tmp_path)
    await broker.start()
    drained = asyncio.Event()

    async def never(_: float) -> bool:
        drained.set()
        await asyncio.Event().wait()
        return True

    broker.server.drain = never  # type: ignore[method-assign]
    stopping = asyncio.create_task(broker.stop())
    await drained.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    again = make(tmp_path)
    await again.start()
    await again.stop()


@async_test
async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    await first.start()
    with pytest.raises(HeadraceError, match=r"127\.0\.0\.1"):
        await make(tmp_path / "second", port=first.endpoints[0].port).start()
    second = make(tmp_path / "second")
    await second.start()
    await second.stop()
    await first.stop()


@async_test
async def test_a_directory_that_is_in_use(tmp_path: Path) -> None:
    first = make(tmp_path)
    await first.start()
    with pytest.raises(HeadraceError, match="in use"):
        await make(tmp_path).start()
    await make_topic(first, "t")
    await first.stop()


@async_test
async def test_a_disk_that_fails_during_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of several the broker would tell the controller; when it stops there is none any more."""
    broker = make(tmp_path / "a", tmp_path / "b")
    await broker.start()
    await make_topic(broker, "t", 2)
    close = Log.close

    def fail(log: Log) -> None:
        if log.tp.partition == 1:
            raise OSError(errno.EIO, "Input/output error")
        close(log)

    monkeypatch.setattr(Log, "close", fail)
    await broker.stop()
    monkeypatch.undo()
    again = make(tmp_path / "a", tmp_path / "b")
    await again.start()
    assert all(directory.online for directory in again.logs.directories)
    await again.stop()


@async_test
async def test_a_stop_that_fails_lets_go_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: LogManager) -> NoReturn:
        raise RuntimeError("bug")

    broker = make(tmp_path)
    await broker.start()
    monkeypatch.setattr(LogManager, "close", fail)
    with pytest.raises(RuntimeError, match="bug"):
        await broker.stop()
    monkeypatch.undo()
    again = make(tmp_path)
    await again.start()
    await again.stop()


def test_who_waits_is_answered_by_a_stop() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker, WireClient(broker.address) as client:
        waiting = client.send(fetch_request(0, max_wait_ms=600_000), 12)
        broker.wait_until(lambda running: running.replicas.fetches.delayed == 1)
        broker.stop()
        assert client.receive(waiting).responses[0].partitions[0].error_code == 0
        with pytest.raises((ConnectionEnded, ConnectionResetError)):
            client.receive_frame()
        broker.start()
        with WireClient(broker.address) as again:
            assert produce(again, batch()).error_code == 0
            assert fetch(again, 0).high_watermark == 1
