"""A data directory of another cluster or node is rejected and stays untouched, also its modification times."""

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.support.net.wire_calls import batch, produce
from tests.support.net.wire_client import WireClient

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.server import Broker
from headrace.common.errors import HeadraceError
from headrace.testing import EmbeddedBroker

Listing = dict[str, tuple[int, bytes]]


def listing(directory: Path) -> Listing:
    """Returns modification time and content of everything in a directory, and its own time."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in [directory, *sorted(directory.rglob("*"))]
    }


def make_cluster(directory: Path, **properties: object) -> None:
    settings = {"log.dirs": str(directory), **{key.replace("_", "."): value for key, value in properties.items()}}
    with EmbeddedBroker(settings, topics={"t": 2}) as broker, WireClient(broker.address) as client:
        assert produce(client, batch(b"kept")).error_code == 0


def start(*directories: Path, node_id: int = 0) -> str:
    """Returns the error of a broker that cannot start."""
    properties = {"log.dirs": ",".join(map(str, directories)), "node.id": node_id, "listeners": "PLAINTEXT://:0"}
    config = BrokerConfig.from_properties(properties)

    async def run() -> None:
        await Broker(config).start()

    with pytest.raises(HeadraceError) as refused:
        asyncio.run(run())
    return str(refused.value)


def test_directory_of_another_node(tmp_path: Path) -> None:
    make_cluster(tmp_path / "a")
    before = listing(tmp_path)
    assert "belongs to node 0 of cluster" in start(tmp_path / "a", node_id=5)
    assert listing(tmp_path) == before


def test_missing_coordination_store(tmp_path: Path) -> None:
    make_cluster(tmp_path / "a")
    (tmp_path / "a" / "coordination.sqlite").unlink()
    before = listing(tmp_path)
    error = start(tmp_path / "a")
    assert f"the coordination store {tmp_path / 'a' / 'coordination.sqlite'} does not exist" in error
    assert "restore it, or use empty directories to start a new cluster" in error
    assert listing(tmp_path) == before


def test_new_directory_before_the_one_with_the_store(tmp_path: Path) -> None:
    make_cluster(tmp_path / "a")
    before = listing(tmp_path)
    assert "must be in the first directory of log.dirs" in start(tmp_path / "new", tmp_path / "a")
    assert listing(tmp_path) == before


def test_coordination_store_of_another_cluster(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_cluster(tmp_path / name)
    shutil.copy2(tmp_path / "b" / "coordination.sqlite", tmp_path / "a" / "coordination.sqlite")
    before = listing(tmp_path / "a")
    assert "a/coordination.sqlite belongs to cluster" in start(tmp_path / "a")
    after = listing(tmp_path / "a")
    del before["."], after["."]  # SQLite creates and removes its write-ahead log when it reads
    assert after == before


def test_second_directory_of_another_cluster(tmp_path: Path) -> None:
    """It goes offline; the broker serves the partitions of the first directory."""
    for name in ("a", "b"):
        make_cluster(tmp_path / name)
    before = listing(tmp_path / "b")
    with EmbeddedBroker({"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}) as broker:
        failures = broker.call(lambda running: [directory.failure for directory in running.log_manager.directories])
        assert failures[0] is None
        assert f"Log directory {tmp_path / 'b'} belongs to node 0 of cluster" in str(failures[1])
        with WireClient(broker.address) as client:
            assert produce(client, batch(b"more")).base_offset == 1
    assert listing(tmp_path / "b") == before
