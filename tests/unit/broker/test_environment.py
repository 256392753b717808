"""What a broker takes from outside."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import STORE_FILE, BrokerEnvironment, open_store
from headrace.common.clock import SystemClock
from headrace.common.errors import KafkaStorageError
from headrace.storage.checkpoints import MetaProperties
from headrace.storage.files import FileSystem


def config_in(directory: Path) -> BrokerConfig:
    return BrokerConfig.load({"broker.id": 1, "log.dirs": str(directory)})


@async_test
async def test_the_embedded_store_is_a_file_in_the_first_log_directory(tmp_path: Path) -> None:
    store = await open_store(config_in(tmp_path / "new"), SystemClock(), FileSystem())
    await store.close()
    assert (tmp_path / "new" / STORE_FILE).exists()


@async_test
async def test_data_of_a_cluster_without_its_store_is_refused(tmp_path: Path) -> None:
    MetaProperties("some-cluster", 1).write(tmp_path, FileSystem())
    with pytest.raises(KafkaStorageError, match=r"belongs to cluster some-cluster, but the coordination store"):
        await open_store(config_in(tmp_path), SystemClock(), FileSystem())


@async_test
async def test_work_in_a_thread_is_finished_when_its_caller_is_cancelled() -> None:
    started, may_end, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        started.set()
        may_end.wait(10)
        ended.append(True)

    caller = asyncio.create_task(BrokerEnvironment().run_in_thread_to_end(work))
    while not started.is_set():
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended
