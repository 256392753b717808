from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.zookeeper import ZooKeeper


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One ZooKeeper server for the tests of a file. Each test uses its own chroot."""
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """Three ZooKeeper servers for the tests of a file."""
    with ZooKeeper(tmp_path_factory.mktemp("ensemble"), servers=3) as servers:
        yield servers


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """One ZooKeeper server that the test may kill."""
    with ZooKeeper(tmp_path) as server:
        yield server
