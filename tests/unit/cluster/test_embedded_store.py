import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cluster.fake_cluster import async_test

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.journal import Journal
from headrace.cluster.store import ConnectionLoss, Create, Delete, StoreError
from headrace.testing.clock import ManualClock

ROOT = Path(__file__).parents[3]


def open_store(directory: Path) -> EmbeddedStore:
    return EmbeddedStore(directory / "coordination.db", ManualClock())


@async_test
async def test_data_survives_reopening(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.create("/a", b"one")
    await store.create("/a/s_", sequential=True)
    before = [await store.get("/a"), await store.children("/a")]
    await store.close()
    store = open_store(tmp_path)
    assert [await store.get("/a"), await store.children("/a")] == before
    assert (await store.create("/a/s_", sequential=True)).endswith("1")
    await store.close()


@async_test
async def test_ephemeral_nodes_do_not_survive_reopening(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.create("/ids")
    await store.create("/ids/1", ephemeral=True)
    # As after a crash: the session is not closed.
    assert store._shared.journal is not None
    store._shared.journal.close()
    again = open_store(tmp_path)
    assert await again.children("/ids") == []
    await again.close()


@async_test
async def test_zxids_increase_across_restarts(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        store = open_store(tmp_path)
        await store.create("/live", ephemeral=True)
        stat = await store.exists("/live")
        assert stat is not None
        assert stat.czxid > last
        last = stat.czxid
        await store.close()


@async_test
async def test_ephemeral_node_replaces_persistent_node(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    await store.create("/a", b"kept")
    await store.multi([Delete("/a"), Create("/a", b"mine", ephemeral=True)])
    await store.close()
    store = open_store(tmp_path)
    assert await store.exists("/a") is None
    await store.close()


def test_file_in_use_names_its_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreError, match=rf"coordination.db is in use by process {os.getpid()}"):
        open_store(tmp_path)
    asyncio.run(store.close())
    asyncio.run(open_store(tmp_path).close())


def test_file_can_be_opened_again_after_its_owner_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("headrace.cluster.journal.os.ftruncate", fail)
    with pytest.raises(StoreError, match=r"coordination.db: .*No space left on device"):
        open_store(tmp_path)
    monkeypatch.undo()
    asyncio.run(open_store(tmp_path).close())


def test_rejects_file_that_is_not_a_database(tmp_path: Path) -> None:
    (tmp_path / "coordination.db").write_bytes(b"these are not the bytes of a database" * 100)
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"Cannot read coordination store .*coordination.db: file is not a database"
        ):
            open_store(tmp_path)


def test_rejects_database_of_another_application(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE songs (name TEXT)")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is not a coordination store"):
        open_store(tmp_path)
    assert path.read_bytes() == before


def test_rejects_corrupt_database(tmp_path: Path) -> None:
    async def fill() -> None:
        store = open_store(tmp_path)
        for number in range(50):
            await store.create(f"/node-{number}", b"x" * 500)
        await store.close()

    asyncio.run(fill())
    path = tmp_path / "coordination.db"
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"Cannot read .*: database disk image is malformed"):
        open_store(tmp_path)


def test_rejects_node_without_parent(tmp_path: Path) -> None:
    asyncio.run(open_store(tmp_path).close())
    database = sqlite3.connect(tmp_path / "coordination.db")
    database.execute("INSERT INTO nodes VALUES ('/a/b', x'', 0, 0, 0, 0, 0, 0)")
    database.commit()
    database.close()
    with pytest.raises(StoreError, match=r"is corrupt: Node /a/b has no parent"):
        open_store(tmp_path)


def test_missing_directory_raises(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Cannot open coordination store"):
        open_store(tmp_path / "nowhere")


def test_empty_database_counts_as_new(tmp_path: Path) -> None:
    (tmp_path / "coordination.db").write_bytes(b"")

    async def use(creates: bool) -> list[str]:
        store = open_store(tmp_path)
        if creates:
            await store.create("/a", b"0")
        children = await store.children("/")
        await store.close()
        return children

    assert asyncio.run(use(creates=True)) == ["a"]
    assert asyncio.run(use(creates=False)) == ["a"]


@async_test
async def test_failed_commit_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    await store.create("/a", b"0")

    def fail(self: Journal, nodes: object) -> None:
        raise ConnectionLoss("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "commit", fail)
        with pytest.raises(ConnectionLoss, match="the disk is full"):
            await store.set("/a", b"1")
        await store.create("/live", ephemeral=True)
    assert (await store.get("/a"))[0] == b"0"
    assert (await store.set("/a", b"2", 0)).version == 1
    await store.close()


@async_test
async def test_full_disk_fails_only_that_change(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    journal = store._shared.journal
    assert journal is not None
    pages = journal._database.execute("PRAGMA page_count").fetchone()[0]
    journal._database.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(ConnectionLoss, match=r"Cannot write .*: database or disk is full"):
        await store.create("/big", bytes(100_000))
    assert await store.exists("/big") is None
    await store.create("/small")
    await store.close()


WRITER = """
import asyncio, itertools, sys
from pathlib import Path
from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import Create, Set
from headrace.common.clock import SystemClock

async def main():
    store = EmbeddedStore(Path(sys.argv[1]), SystemClock())
    if await store.exists("/n") is None:
        await store.create("/n", b"0")
    first = int((await store.get("/n"))[0])
    for number in itertools.count(first + 1):
        await store.multi([Set("/n", b"%d" % number), Create("/n/%d" % number, b"x" * (number % 700))])
        print(number, flush=True)

asyncio.run(main())
"""


async def check_numbers(path: Path, acknowledged: int) -> None:
    store = EmbeddedStore(path, ManualClock())
    last = int((await store.get("/n"))[0])
    assert acknowledged <= last <= acknowledged + 1
    assert sorted(map(int, await store.children("/n"))) == list(range(1, last + 1))
    for number in range(1, last + 1):
        assert (await store.get(f"/n/{number}"))[0] == b"x" * (number % 700)
    await store.close()


def test_sigkill_loses_no_acknowledged_change(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    acknowledged = 0
    for round_number in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                acknowledged = int(line)
                if acknowledged % (17 + round_number) == 0:
                    break
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split("\n")
            acknowledged = max([acknowledged, *(int(line) for line in rest[:-1] if line)])
        asyncio.run(check_numbers(path, acknowledged))
