"""Which addresses are dialled, and in which order."""

import asyncio
import socket
from typing import Any

import pytest

from headrace.net.dialer import SocketDialer, _resolve


class Names:
    """A resolver that counts its calls."""

    def __init__(self, addresses: list[str]):
        self.addresses = addresses
        self.asked: list[str] = []

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked.append(host)
        if not host.isascii():
            raise UnicodeError("label too long")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]


def resolve(names: Names, host: str) -> list[Any]:
    return asyncio.run(_resolve(names, host, 9092))  # type: ignore[arg-type]


def test_ip_addresses_are_not_resolved() -> None:
    names = Names([])
    assert resolve(names, "127.0.0.1") == [(socket.AF_INET, ("127.0.0.1", 9092))]
    assert resolve(names, "::1") == [(socket.AF_INET6, ("::1", 9092, 0, 0))]
    assert names.asked == []


def test_resolves_all_addresses_once() -> None:
    names = Names(["10.0.0.1", "10.0.0.2", "10.0.0.1"])
    assert [address[1][0] for address in resolve(names, "broker")] == ["10.0.0.1", "10.0.0.2"]


def test_unresolvable_and_invalid_names_raise() -> None:
    with pytest.raises(OSError, match="host name 'broker' has no address"):
        resolve(Names([]), "broker")
    with pytest.raises(OSError, match="invalid host name"):
        resolve(Names([]), "bröker")


class Dialled(SocketDialer):
    """Connects only to the reachable addresses."""

    def __init__(self, good: set[str]):
        super().__init__()
        self.good = good
        self.tried: list[str] = []

    async def _connect(self, loop: Any, family: Any, address: Any) -> Any:
        self.tried.append(address[0])
        if address[0] not in self.good:
            raise ConnectionRefusedError(111, f"refused by {address[0]}")
        return object()

    async def _hand_over(self, loop: Any, sock: Any, host: str, connection: Any) -> None: ...


def dial(dialer: Dialled, attempt: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names = Names(["10.0.0.1", "10.0.0.2", "10.0.0.3"])

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
        await dialer.dial("broker", 9092, attempt, None)  # type: ignore[arg-type]

    dialer.tried.clear()
    asyncio.run(main())
    return dialer.tried


def test_next_address_is_tried_after_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dial(Dialled({"10.0.0.2"}), 0, monkeypatch) == ["10.0.0.1", "10.0.0.2"]


def test_each_attempt_starts_with_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    dialer = Dialled({"10.0.0.1", "10.0.0.2", "10.0.0.3"})
    assert [dial(dialer, attempt, monkeypatch)[0] for attempt in range(4)] == [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.1",
    ]


def test_first_error_is_raised_if_no_address_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionRefusedError, match=r"refused by 10\.0\.0\.2"):
        dial(Dialled(set()), 1, monkeypatch)
