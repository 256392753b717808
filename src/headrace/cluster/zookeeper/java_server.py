"""Apache ZooKeeper's server from the jars of the pyspark package: the command that runs it, and its configuration.

A single server runs `ZooKeeperServerMain`. If the configuration has lines `server.N=host:port:port`, the server is the
member of an ensemble that `dataDir/myid` names, and runs `QuorumPeerMain`.

The effective configuration (file, overrides and defaults) is written to `dataDir/headrace-zookeeper.properties`, which
ZooKeeper reads.
"""

import glob
import importlib.util
import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.common.errors import ConfigError, HeadraceError
from headrace.common.extras import MissingExtraError

DEFAULTS = {
    "dataDir": "zookeeper-data",
    "clientPort": "2181",
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
}
"""The configs that a property file need not have."""
LOCAL_DEFAULTS = {"clientPortAddress": "127.0.0.1"}
"""Configs of a server without a property file: only programs of this machine can connect."""

_EFFECTIVE_FILE = "headrace-zookeeper.properties"
_JARS = ("zookeeper-*", "slf4j-api-*", "log4j-api-*", "log4j-core-*", "log4j-slf4j*", "metrics-core-*", "snappy-java-*")
_OPTIONAL_JARS = ("netty-*",)
"""Netty serves TLS (`serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory`)."""
_JAVA_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/opt/*/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)
_SINGLE = "org.apache.zookeeper.server.ZooKeeperServerMain"
_MEMBER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_SERVER_LINE = re.compile(r"server\.\d+")
_PROBE_SECONDS = 1.0


class JavaNotFoundError(HeadraceError):
    """No Java is installed."""


@dataclass(frozen=True, slots=True)
class JavaServer:
    """A configured server: the command to execute, and the address for clients."""

    command: tuple[str, ...]
    host: str
    port: int
    data_dir: Path

    @property
    def address(self) -> str:
        """The address for clients of this machine."""
        host = _reachable(self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def accepts(self) -> bool:
        """Returns True if the port is open."""
        try:
            socket.create_connection((_reachable(self.host), self.port), timeout=_PROBE_SECONDS).close()
        except OSError:
            return False
        return True

    def is_serving(self) -> bool:
        """Asks the server. A member of an ensemble does not serve before a majority has elected a leader."""
        try:
            with socket.create_connection((_reachable(self.host), self.port), timeout=_PROBE_SECONDS) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read()
        except OSError:
            return False
        # A whitelist without `srvr` hides the state of a server that accepts connections.
        return b"Mode:" in answer or b"not in the whitelist" in answer


def _reachable(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def prepare_server(properties: Mapping[str, str], *, log_level: str = "WARN") -> JavaServer:
    """Checks the configuration, creates the data directory and writes the effective configuration.

    Raises ConfigError for an invalid configuration, JavaNotFoundError without Java, and MissingExtraError without the
    pyspark package.
    """
    effective = {**DEFAULTS, **properties}
    port = effective["clientPort"]
    if not (port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(f"clientPort={port} is invalid: expected a port from 1 to 65535")
    host = effective.get("clientPortAddress", "0.0.0.0")
    _check_port(host, int(port))
    java, jars = find_java(), zookeeper_jars()
    data_dir = Path(effective["dataDir"]).resolve()
    effective["dataDir"] = str(data_dir)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        is_member = any(_SERVER_LINE.fullmatch(key) for key in effective)
        if is_member:
            _check_member(effective, data_dir)
        file = data_dir / _EFFECTIVE_FILE
        file.write_text("".join(f"{key}={_escape(value)}\n" for key, value in effective.items()))
    except OSError as error:
        raise ConfigError(f"dataDir={data_dir} cannot be used: {error.strerror}") from error
    command = (
        java,
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-Dzookeeper.jmx.log4j.disable=true",
        f"-Dorg.apache.logging.log4j.level={log_level}",
        "-cp",
        os.pathsep.join(jars),
        _MEMBER if is_member else _SINGLE,
        str(file),
    )
    return JavaServer(command, host, int(port), data_dir)


def _check_port(host: str, port: int) -> None:
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        raise ConfigError(f"ZooKeeper cannot listen on {host}:{port}: {error.strerror}") from error


def _check_member(effective: Mapping[str, str], data_dir: Path) -> None:
    file = data_dir / "myid"
    members = sorted(key.partition(".")[2] for key in effective if _SERVER_LINE.fullmatch(key))
    if not file.exists():
        raise ConfigError(
            f"{file} does not exist. The configuration has an ensemble of {len(members)} servers "
            f"({', '.join(members)}): write the number of this server to the file"
        )
    number = file.read_text().strip()
    if number not in members:
        raise ConfigError(f"{file} has server {number!r}, but the ensemble has the servers {', '.join(members)}")


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def find_java() -> str:
    """Returns the java program: of JAVA_HOME, of the PATH, or in one of the usual directories."""
    home = os.environ.get("JAVA_HOME")
    candidates = [os.path.join(home, "bin", "java")] if home else []
    candidates += [shutil.which("java") or "", *(path for place in _JAVA_PLACES for path in sorted(glob.glob(place)))]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise JavaNotFoundError(
        "ZooKeeper needs Java, but none was found in JAVA_HOME, the PATH or the usual directories. Install it (Debian "
        "and Ubuntu: apt-get install default-jre-headless), or set JAVA_HOME to its directory"
    )


def zookeeper_jars() -> list[str]:
    """Returns the jars of the pyspark package that ZooKeeper's server needs."""
    spec = importlib.util.find_spec("pyspark")  # finds the package without the time to import it
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "ZooKeeper's jars are in the package pyspark, which is not installed. Run: pip install 'headrace[spark]'"
        )
    directory = os.path.join(next(iter(spec.submodule_search_locations)), "jars")
    found: list[str] = []
    for pattern in (*_JARS, *_OPTIONAL_JARS):
        names = sorted(glob.glob(os.path.join(glob.escape(directory), f"{pattern}.jar")))
        if not names and pattern not in _OPTIONAL_JARS:
            raise HeadraceError(
                f"The package pyspark has no {pattern}.jar in {directory}. A pyspark 4 installed with pip has "
                "ZooKeeper's jars; run: pip install 'headrace[spark]'"
            )
        found += names
    return found
