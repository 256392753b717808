"""Starts and stops that fail or are cancelled: everything is released, and the next start works."""

import asyncio
import errno
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.support.cluster.fake_cluster import async_test
from tests.support.net.wire_calls import batch, fetch, fetch_request, produce
from tests.support.net.wire_client import ConnectionEnded, WireClient

import headrace
from headrace.admin import ConfigResource
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.control.channel import ControllerChannel
from headrace.broker.environment import STORE_FILE
from headrace.broker.server import Broker
from headrace.cluster import fenced_store, znodes
from headrace.cluster.command_batch import CommandBatch
from headrace.cluster.commands import UpdateMetadata
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import CoordinationStore, Operation, OperationResult, delete_tree
from headrace.cluster.topic_deletion_manager import TopicDeletionManager
from headrace.cluster.topics import TopicSpec
from headrace.common.clock import SystemClock
from headrace.common.errors import HeadraceError
from headrace.common.ids import Uuid
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.testing import EmbeddedBroker


def make(*directories: Path, port: int = 0, **properties: object) -> Broker:
    given = {key.replace("_", "."): value for key, value in properties.items()}
    dirs = ",".join(map(str, directories))
    return Broker(BrokerConfig.load({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": dirs, **given}))


async def make_topic(broker: Broker, name: str, partitions: int = 1) -> None:
    await broker.topic_admin.create_topic(TopicSpec(name, partitions))
    assert await broker.image.wait_for(lambda image: image.topic_is_ready(name, partitions), 20)


class Gate:
    """Blocks a thread in a method until `open`."""

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
async def test_start_cancelled_while_logs_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_stop_cancelled_while_logs_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_stop_cancelled_while_responses_drain(tmp_path: Path) -> None:
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


START_STEPS = [
    "_open_store",
    "_start_logs",
    "_create_coordinators",
    "_create_controller",
    "_bind_sockets",
    "_join_cluster",
    "_start_serving",
]


@pytest.mark.parametrize("step", START_STEPS)
@async_test
async def test_failed_start_undoes_all_steps(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(Broker, step)

    def fail(*arguments: object) -> NoReturn:
        original(*arguments)
        raise HeadraceError("no")

    async def fail_later(*arguments: object) -> NoReturn:
        await original(*arguments)
        raise HeadraceError("no")

    monkeypatch.setattr(Broker, step, fail_later if asyncio.iscoroutinefunction(original) else fail)
    broker = make(tmp_path)
    with pytest.raises(HeadraceError, match="no"):
        await broker.start()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await broker.abandon()
    monkeypatch.undo()
    again = make(tmp_path)
    await again.start()
    await make_topic(again, "t")
    await again.stop()


@async_test
async def test_port_in_use(tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    await first.start()
    with pytest.raises(HeadraceError, match=r"127\.0\.0\.1"):
        await make(tmp_path / "second", port=first.endpoints[0].port).start()
    second = make(tmp_path / "second")
    await second.start()
    await second.stop()
    await first.stop()


@async_test
async def test_directory_in_use(tmp_path: Path) -> None:
    first = make(tmp_path)
    await first.start()
    with pytest.raises(HeadraceError, match="in use"):
        await make(tmp_path).start()
    await make_topic(first, "t")
    await first.stop()


@async_test
async def test_disk_fails_during_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker reports a failed directory to the controller, which has stopped by then."""
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
    assert all(directory.online for directory in again.log_manager.directories)
    await again.stop()


@async_test
async def test_failed_stop_releases_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_stop_completes_waiting_requests() -> None:
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


async def forget(directory: Path, topic: str) -> None:
    """Deletes a topic from the store while the broker is down."""
    store = EmbeddedStore(directory / STORE_FILE, SystemClock())
    await delete_tree(store, znodes.topic_path(topic))
    await store.close()


def test_moves_stray_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1, "other": 1}) as broker:
        with WireClient(broker.address) as client:
            produce(client, batch(b"old"))
            produce(client, batch(b"kept"), topic="other")
        broker.stop()
        asyncio.run(forget(tmp_path, "t"))
        broker.start()
        (stray,) = tmp_path.glob("t-0.*-stray")
        assert str(stray) in caplog.text
        broker.create_topic("t")
        broker.restart()
        with WireClient(broker.address) as client:
            assert fetch(client, 0).high_watermark == 0
            assert fetch(client, 0, "other").high_watermark == 1
        assert stray.exists()


def test_recreated_topic_does_not_find_old_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As if the topic was deleted and created again while this broker was down."""
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}) as broker:
        with WireClient(broker.address) as client:
            produce(client, batch(b"old"))
        broker.stop()
        (tmp_path / "t-0").rename(tmp_path / "moved")
        broker.start()
        broker.delete_topic("t")
        broker.create_topic("t")
        broker.stop()
        shutil.rmtree(tmp_path / "t-0")
        (tmp_path / "moved").rename(tmp_path / "t-0")
        broker.start()
        (stray,) = tmp_path.glob("t-0.*-stray")
        assert str(stray) in caplog.text
        with WireClient(broker.address) as client:
            assert fetch(client, 0).high_watermark == 0
            assert produce(client, batch(b"new")).base_offset == 0


async def damage(store: CoordinationStore, topic: str) -> bytes:
    """Overwrites the assignment of a topic. Returns what it was."""
    data, stat = await store.get(znodes.topic_path(topic))
    await store.set(znodes.topic_path(topic), b"{", stat.version)
    return data


def commit(broker: EmbeddedBroker) -> None:
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {headrace.TopicPartition("t", 0): 1})


def committed(broker: EmbeddedBroker) -> int:
    with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return admin.list_group_offsets(["g"])["g"].offsets[headrace.TopicPartition("t", 0)].offset


def test_damaged_topic_keeps_its_log_and_offsets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1}) as broker:
        with WireClient(broker.address) as client:
            produce(client, batch(b"kept"))
        commit(broker)
        broker.stop()

        async def change(data: bytes | None) -> bytes:
            store = EmbeddedStore(tmp_path / STORE_FILE, SystemClock())
            try:
                if data is None:
                    return await damage(store, "t")
                _, stat = await store.get(znodes.topic_path("t"))
                await store.set(znodes.topic_path("t"), data, stat.version)
                return data
            finally:
                await store.close()

        data = asyncio.run(change(None))
        broker.start()
        assert "Ignoring topic t, its assignment is unreadable" in caplog.text
        assert (tmp_path / "t-0").exists()
        broker.stop()
        asyncio.run(change(data))
        broker.start()
        with WireClient(broker.address) as client:
            assert fetch(client, 0).high_watermark == 1
        assert committed(broker) == 1


def test_controller_that_cannot_read_a_topic_does_not_delete_its_offsets(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 1, "other": 1}) as broker:
        commit(broker)

        async def fail_over(running: Broker) -> None:
            await damage(running.store, "t")
            await running.store.delete(znodes.CONTROLLER)

        epoch = broker.call(lambda running: running.image.controller_epoch)
        broker.run(fail_over)
        broker.wait_until(lambda running: running.image.controller_epoch > epoch)
        broker.create_topic("later")
        assert broker.call(lambda running: running.image.has_topic("t"))
        assert committed(broker) == 1


def test_incomplete_metadata_does_not_move_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller may send the partitions of a topic in several requests."""
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 3}) as broker:
        broker.stop()
        send = CommandBatch._send

        def send_first_partition(self: CommandBatch, broker_id: int, command: Any) -> None:
            states = [state for state in command.partitions if state.tp.partition == 0]
            send(self, broker_id, replace(command, partitions=states))

        with monkeypatch.context() as patched:
            patched.setattr(CommandBatch, "_send", send_first_partition)
            broker.start()
            assert broker.call(lambda running: len(running.replicas)) == 1
        assert not list(tmp_path.glob("*-stray"))
        broker.restart()
        assert broker.call(lambda running: len(running.replicas)) == 3


def test_recreated_topic_keeps_its_configs() -> None:
    """The broker gets the new topic's metadata without having learned of the old topic's deletion."""
    with EmbeddedBroker(topics={"t": 1}) as broker:
        with headrace.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_configs([ConfigResource("topic", "t", {"retention.ms": "123456"})])
        broker.wait_until(lambda running: running.dynamic_config.topic("t").log.retention_ms == 123456)

        def replace_topic(running: Broker) -> None:
            state = running.image.partition("t", 0)
            assert state is not None
            image = running.image
            brokers = list(image.brokers.values())
            states = [replace(state, topic_id=Uuid(int=99))]
            image.apply(UpdateMetadata(image.controller_id, image.controller_epoch, running.epoch, brokers, states))

        broker.call(replace_topic)
        broker.wait_until(lambda running: not running._tasks)
        assert broker.call(lambda running: running.dynamic_config.topic("t").log.retention_ms) == 123456


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_finishes_an_interrupted_topic_creation(tmp_path: Path, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker dies after some partitions have leaders in the store."""
    monkeypatch.setattr(fenced_store, "BATCH_OPERATIONS", 5)
    multi = fenced_store.FencedStore.multi
    left = batches

    async def die(store: fenced_store.FencedStore, operations: Sequence[Operation]) -> list[OperationResult]:
        nonlocal left
        if any("/topics/t/" in operation.path for operation in operations):
            if left == 0:
                await asyncio.Event().wait()
            left -= 1
        return await multi(store, operations)

    with EmbeddedBroker(data_dir=tmp_path) as broker:
        monkeypatch.setattr(fenced_store.FencedStore, "multi", die)
        with pytest.raises(TimeoutError):
            broker.run(lambda running: asyncio.wait_for(make_topic(running, "t", 7), 0.3))
        broker.kill()
        monkeypatch.setattr(fenced_store.FencedStore, "multi", multi)
        broker.start()
        broker.wait_until(lambda running: running.image.topic_is_ready("t", 7))
        with WireClient(broker.address) as client:
            assert [produce(client, batch(), partition=index).error_code for index in range(7)] == [0] * 7


@pytest.mark.parametrize("step", ["before the logs", "after the logs"])
def test_finishes_an_interrupted_topic_deletion(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(data_dir=tmp_path, topics={"t": 3}) as broker:
        broken: tuple[Any, str] = (
            (ControllerChannel, "send") if step == "before the logs" else (TopicDeletionManager, "_finish")
        )
        monkeypatch.setattr(*broken, _never_done)
        broker.run(lambda running: running.topic_admin.delete_topic("t"))
        broker.wait_until(lambda running: step == "before the logs" or not list(tmp_path.glob("t-?")))
        broker.kill()
        monkeypatch.undo()
        broker.start()
        broker.wait_until(lambda running: "t" not in running.controller.context.topics)
        assert not list(tmp_path.glob("t-?"))
        broker.create_topic("t", 1)
        with WireClient(broker.address) as client:
            assert produce(client, batch()).base_offset == 0


def _never_done(*_: object) -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


def test_unclean_shutdown_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = (
        f"Broker 0: log directory {tmp_path / 'data'} was not shut down cleanly; recovered the logs of its 2 partitions"
    )
    with EmbeddedBroker(topics={"t": 2}, data_dir=tmp_path / "data") as broker:
        broker.restart()
        assert line not in caplog.text
        broker.restart(clean=False)
        assert caplog.messages.count(line) == 1
