"""The addresses of a broker as its configuration writes them: `NAME://host:port`, several with commas between.

    listeners=PLAINTEXT://:9092,INTERNAL://[::1]:9094,CONTROLLER://:9093
    advertised.listeners=PLAINTEXT://broker1.example.com:9092
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
    controller.listener.names=CONTROLLER

A name stands for a way in. Clients are told the advertised address of the listener that they came in by. An empty host
means all addresses of the machine; port 0 any free port.
"""

import re
import socket
from collections.abc import Iterable, Mapping

from headrace.common.errors import ConfigError
from headrace.net.listeners import Listener

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SERVED_PROTOCOLS = ("PLAINTEXT",)
EVERYWHERE = ("", "0.0.0.0", "::")
"""Hosts that mean all addresses of a machine, and so none that a client could connect to."""

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.\-]+)://(?:\[(?P<bracketed>[^\]]*)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d+)")


def parse_listeners(key: str, texts: Iterable[str]) -> tuple[Listener, ...]:
    """The listeners of a list; `key` is named in errors. Names are taken as upper case, as Kafka does."""
    found: list[Listener] = []
    for text in texts:
        match = _LISTENER.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(
                f"{key}: {text!r} is not a listener: expected NAME://host:port, such as PLAINTEXT://:9092"
            )
        host = match["bracketed"] if match["bracketed"] is not None else match["host"]
        found.append(Listener(match["name"].upper(), host, int(match["port"])))
    names = [listener.name for listener in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key} has two listeners named {name}: each needs a name of its own")
    return tuple(found)


def check_addresses(key: str, listeners: Iterable[Listener]) -> None:
    """Refuses two listeners at one address."""
    taken: dict[tuple[str, int], str] = {}
    for listener in listeners:
        address = listener.host.lower(), listener.port
        if listener.port and address in taken:
            raise ConfigError(f"{key}: {taken[address]} and {listener} are at the same address")
        taken[address] = str(listener)


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...`"""
    key = "listener.security.protocol.map"
    found: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, colon, protocol = item.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(f"{key}: {item!r} is not valid: expected NAME:PROTOCOL, of {', '.join(PROTOCOLS)}")
        if name in found:
            raise ConfigError(f"{key} names {name} twice")
        found[name] = protocol
    return found


def check_protocols(listeners: Iterable[Listener], protocols: Mapping[str, str]) -> None:
    """Each listener has a security protocol, and one that is served."""
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ConfigError(
                f"listener {listener.name} has no security protocol: "
                f"add {listener.name}:PLAINTEXT to listener.security.protocol.map"
            )
        if protocol not in SERVED_PROTOCOLS:
            raise ConfigError(f"listener {listener.name} uses {protocol}: only PLAINTEXT listeners are served so far")


def check_advertised(advertised: Iterable[Listener], listeners: Iterable[Listener]) -> None:
    """Advertised addresses belong to listeners, and are ones that a client can connect to."""
    names = [listener.name for listener in listeners]
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners names {listener.name}, which listeners does not have: {', '.join(names)}"
            )
        if listener.host in EVERYWHERE:
            raise ConfigError(
                f"advertised.listeners: {listener} is no address that a client could connect to; give a host name"
            )


def with_defaults(advertised: Iterable[Listener], listeners: Iterable[Listener]) -> tuple[Listener, ...]:
    """What clients are told of each listener: as configured, or else where the broker listens. Port 0 stands for the
    port that the listener will get."""
    given = {listener.name: listener for listener in advertised}
    found: list[Listener] = []
    for listener in listeners:
        host = socket.gethostname() if listener.host in EVERYWHERE else listener.host
        found.append(given.get(listener.name) or Listener(listener.name, host, listener.port))
    return tuple(found)
