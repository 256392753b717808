"""The addresses of a broker in its config: a comma-separated list of `NAME://host:port`.

    listeners=PLAINTEXT://:9092,INTERNAL://[::1]:9094,CONTROLLER://:9093
    advertised.listeners=PLAINTEXT://broker1.example.com:9092
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
    controller.listener.names=CONTROLLER

Clients get the advertised addresses of the listener that they are connected to. An empty host means all addresses of
the machine, port 0 any free port.
"""

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.common.errors import ConfigError
from headrace.net.listeners import Listener

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ALL_ADDRESSES = ("", "0.0.0.0", "::")
"""Hosts that mean all addresses of the machine. A client cannot connect to them."""

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.\-]+)://(?:\[(?P<bracketed>[^\]]*)\]|(?P<host>[^:\[\]/]*)):(?P<port>\d+)")


def parse_listeners(key: str, texts: Iterable[str]) -> tuple[Listener, ...]:
    """Parses listeners. Error messages name `key`. Listener names are converted to upper case, as in Kafka."""
    listeners: list[Listener] = []
    for text in texts:
        match = _LISTENER.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(
                f"{key}: {text!r} is not a listener: expected NAME://host:port, such as PLAINTEXT://:9092"
            )
        host = match["bracketed"] if match["bracketed"] is not None else match["host"]
        listeners.append(Listener(match["name"].upper(), host, int(match["port"])))
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key}: each listener must have a different name, {name} is used twice")
    return tuple(listeners)


def check_addresses(key: str, listeners: Iterable[Listener]) -> None:
    """Raises ConfigError if two listeners have the same address."""
    taken: dict[tuple[str, int], str] = {}
    for listener in listeners:
        address = listener.host.lower(), listener.port
        if listener.port and address in taken:
            raise ConfigError(
                f"{key}: each listener must have a different port, {taken[address]} and {listener} have the same"
            )
        taken[address] = str(listener)


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parses `NAME:PROTOCOL,...`."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, colon, protocol = item.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(f"{key}: {item!r} is not valid: expected NAME:PROTOCOL, of {', '.join(PROTOCOLS)}")
        if name in protocols:
            raise ConfigError(f"{key} has the listener {name} twice")
        protocols[name] = protocol
    return protocols


def with_protocols(listeners: Iterable[Listener], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Returns the listeners with their security protocols. Raises ConfigError if one has none."""
    result: list[Listener] = []
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise ConfigError(
                f"No security protocol defined for listener {listener.name}: "
                f"add {listener.name}:PLAINTEXT to listener.security.protocol.map"
            )
        result.append(replace(listener, security_protocol=protocol))
    return tuple(result)


def check_advertised(advertised: Iterable[Listener], listeners: Iterable[Listener]) -> None:
    """Checks that advertised addresses belong to listeners and that clients can connect to them."""
    names = [listener.name for listener in listeners]
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(
                f"advertised.listeners must be a subset of the listeners {', '.join(names)}, but it has {listener.name}"
            )
        if listener.host in ALL_ADDRESSES:
            raise ConfigError(f"advertised.listeners cannot use the nonroutable address {listener}: use a host name")


def with_defaults(advertised: Iterable[Listener], listeners: Iterable[Listener]) -> tuple[Listener, ...]:
    """Returns the advertised address of each listener: as configured, or else its own. Port 0 stands for the port that
    is bound."""
    advertised_by_name = {listener.name: listener for listener in advertised}
    result: list[Listener] = []
    for listener in listeners:
        host = socket.gethostname() if listener.host in ALL_ADDRESSES else listener.host
        address = advertised_by_name.get(listener.name) or replace(listener, host=host)
        result.append(replace(address, security_protocol=listener.security_protocol))
    return tuple(result)
