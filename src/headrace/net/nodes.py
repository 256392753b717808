"""Brokers, their addresses, and the parsing of addresses."""

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from headrace.common.errors import ConfigError

DEFAULT_PORT = 9092
_HOST_NAME = re.compile(r"[\w.-]+")
"""Names of hosts, also with letters of other languages, and IPv4 addresses."""


class Node(NamedTuple):
    """A broker. Bootstrap addresses, whose node ids are unknown, have negative ids, as in Kafka's clients."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.id < 0 else f"{host}:{self.port} (broker {self.id})"


def parse_address(text: str) -> tuple[str, int]:
    """Parses `host`, `host:port`, `::1`, `[::1]`, `[::1]:9092` or `PLAINTEXT://host:port`. The default port is 9092."""
    address = text.strip().rpartition("://")[2].rstrip("/")
    if address.startswith("["):
        host, bracket, port = address[1:].partition("]")
        is_valid = bool(bracket) and _is_ipv6(host) and (not port or port.startswith(":"))
        colon, port = port[:1], port[1:]
    elif address.count(":") > 1:
        host, colon, port, is_valid = address, "", "", _is_ipv6(address)  # without a port
    else:
        host, colon, port = address.partition(":")
        is_valid = _HOST_NAME.fullmatch(host) is not None and not host.isdigit()
    if not colon:
        port_number = DEFAULT_PORT
    elif port.isascii() and port.isdigit():
        port_number = int(port)
    else:
        port_number = -1
    if not is_valid or not 0 < port_number < 65_536:
        raise ConfigError(
            f"{text!r} is not an address: expected host:port, with a port from 1 to 65535, or host, for port "
            f"{DEFAULT_PORT}"
        )
    return host, port_number


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def parse_addresses(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Parses `bootstrap.servers`; drops duplicates."""
    addresses = list(dict.fromkeys(parse_address(text) for text in texts))
    if not addresses:
        raise ConfigError("bootstrap.servers is empty: expected host:port, one or more")
    return addresses
