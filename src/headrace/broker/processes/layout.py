"""What each of several broker processes gets: id, ports, directories and rack. Pure.

    one server.properties, --processes 2           broker 1                        broker 2

    broker.id=1                                    1                               2
    listeners=PLAINTEXT://:9092                    PLAINTEXT://:9092               PLAINTEXT://:9093
    log.dirs=/a,/b                                 /a/broker-1,/b/broker-1         /a/broker-2,/b/broker-2
    broker.rack (default: name of the machine)     the same                        the same

All brokers of a machine have one rack, so that the replicas of a partition are placed on different machines. With
several listeners, the ports of the next broker are so many higher that no two listeners share one.

Without `zookeeper.connect`, the embedded store is in the first directory, with the socket on which it is served.
"""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.environment import STORE_FILE
from headrace.common.errors import ConfigError
from headrace.net.listeners import Listener
from headrace.storage.checkpoints import META_PROPERTIES_FILE

SOCKET_FILE = "store.sock"
_LAST_PORT = 65535


@dataclass(frozen=True)
class BrokerLayout:
    """One broker: the configs that differ from the common ones."""

    id: int
    overrides: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name in log lines and of the session with the store."""
        return f"broker {self.id}"


@dataclass(frozen=True)
class Layout:
    """All brokers of this machine, and the directory of their store."""

    brokers: tuple[BrokerLayout, ...]
    directory: Path | None
    """None if the cluster is in ZooKeeper."""

    @property
    def store(self) -> Path | None:
        return None if self.directory is None else self.directory / STORE_FILE

    @property
    def socket(self) -> Path | None:
        return None if self.directory is None else self.directory / SOCKET_FILE


def plan_processes(properties: Mapping[str, str], count: int) -> Layout:
    """Returns the layout of `count` brokers. Raises ConfigError."""
    config = BrokerConfig.from_properties(properties)
    if not config.has_node_id:
        raise ConfigError(
            f"broker.id must be set for --processes {count}: the brokers get the ids broker.id, broker.id+1 and so on"
        )
    for directory in map(Path, config.log_dirs):
        if (directory / META_PROPERTIES_FILE).exists():
            raise ConfigError(
                f"Log directory {directory} contains the data of a single broker. With --processes, each broker has a "
                "directory of its own below log.dirs: use another directory, or start without --processes"
            )
    step = _port_step([listener.port for listener in config.listeners if listener.port], count)
    rack = config.broker_rack or socket.gethostname()
    brokers = []
    for number in range(count):
        broker_id = config.node_id + number
        overrides = {
            "listeners": _shifted(config.listeners, number * step),
            "log.dirs": ",".join(str(Path(directory) / f"broker-{broker_id}") for directory in config.log_dirs),
            "broker.rack": rack,
        }
        if properties.get("advertised.listeners"):
            overrides["advertised.listeners"] = _shifted(config.advertised_listeners, number * step)
        keys = [key for key in ("node.id", "broker.id") if int(properties.get(key, "-1")) >= 0] or ["broker.id"]
        overrides.update(dict.fromkeys(keys, str(broker_id)))
        brokers.append(BrokerLayout(broker_id, overrides))
    return Layout(tuple(brokers), None if config.zookeeper is not None else Path(config.log_dirs[0]))


def _port_step(ports: list[int], count: int) -> int:
    """Returns the smallest distance between the ports of two brokers with which all ports differ."""
    for step in range(1, _LAST_PORT):
        used = {port + number * step for port in ports for number in range(count)}
        if len(used) == len(ports) * count:
            break
    if ports and max(used) > _LAST_PORT:
        raise ConfigError(f"listeners: {count} processes would need ports up to {max(used)}. Use lower ports")
    return step


def _shifted(listeners: Iterable[Listener], distance: int) -> str:
    return ",".join(
        str(replace(listener, port=listener.port + distance if listener.port else 0)) for listener in listeners
    )
