from pathlib import Path

import pytest

from headrace.cluster.zookeeper import java_server
from headrace.cluster.zookeeper.java_server import JavaNotFoundError, find_java, prepare_server, zookeeper_jars
from headrace.common.errors import ConfigError, HeadraceError
from headrace.common.extras import MissingExtraError
from headrace.common.properties import read_properties


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands for Java."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr(java_server, "_check_port", lambda host, port: None)
    return program


def test_single_server(tmp_path: Path, java: Path) -> None:
    server = prepare_server({"dataDir": str(tmp_path / "a" / "b"), "clientPort": "12181", "note": "C:\\x"})
    assert server.command[0] == str(java)
    assert server.command[-2] == "org.apache.zookeeper.server.ZooKeeperServerMain"
    assert "zookeeper-3" in server.command[server.command.index("-cp") + 1]
    assert (server.address, server.host, server.port) == ("127.0.0.1:12181", "0.0.0.0", 12181)
    effective = read_properties(server.command[-1])
    assert effective["dataDir"] == str(tmp_path / "a" / "b")
    assert effective["admin.enableServer"] == "false"
    assert effective["note"] == "C:\\x"


def test_member_of_an_ensemble(tmp_path: Path) -> None:
    properties = {"dataDir": str(tmp_path), "server.1": "a:1:2", "server.2": "b:1:2"}
    with pytest.raises(ConfigError, match=r"myid does not exist. The configuration has an ensemble of 2 servers"):
        prepare_server(properties)
    (tmp_path / "myid").write_text("3\n")
    with pytest.raises(ConfigError, match=r"has server '3', but the ensemble has the servers 1, 2"):
        prepare_server(properties)
    (tmp_path / "myid").write_text("2\n")
    assert prepare_server(properties).command[-2] == "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@pytest.mark.parametrize("port", ["0", "x", "65536", "-1", ""])
def test_rejects_port(port: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="clientPort="):
        prepare_server({"clientPort": port, "dataDir": str(tmp_path)})


def test_unusable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"dataDir=.*file cannot be used"):
        prepare_server({"dataDir": str(tmp_path / "file")})


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java_server, "_JAVA_PLACES", ())
    with pytest.raises(JavaNotFoundError, match="needs Java"):
        find_java()
    monkeypatch.setattr(java_server, "_JAVA_PLACES", (f"{tmp_path}/*/bin/java",))
    assert find_java() == f"{tmp_path}/jdk/bin/java"


def test_without_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headrace\[spark\]'"):
        zookeeper_jars()


def test_pyspark_without_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    with pytest.raises(HeadraceError, match="has no zookeeper"):
        zookeeper_jars()
