import errno
import socket

import pytest

from headrace.net import BindError, BoundListener, Limits, Listener
from headrace.net import listeners as module
from headrace.net.listeners import join_address, open_listener


def test_address_format() -> None:
    assert join_address("127.0.0.1", 9092) == "127.0.0.1:9092"
    assert join_address("::1", 9092) == "[::1]:9092"
    assert str(Listener("PLAINTEXT", "", 0)) == "PLAINTEXT://:0"
    assert str(BoundListener("INTERNAL", "::1", 9093)) == "INTERNAL://[::1]:9093"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EADDRINUSE, "the port is in use"),
        (errno.EACCES, "permission denied"),
        (errno.EADDRNOTAVAIL, "this machine does not have that address"),
        (errno.ENOBUFS, "No buffer space available"),
    ],
)
def test_bind_error_names_the_reason(monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, "whatever the system says")

    monkeypatch.setattr(module, "_bind_all", fail)
    with pytest.raises(BindError, match=rf"cannot listen on INTERNAL://127\.0\.0\.1:80: {reason}"):
        open_listener(Listener("INTERNAL", "127.0.0.1", 80), Limits())


def test_unresolvable_name_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(BindError, match=r"PLAINTEXT://nowhere:9092: cannot resolve 'nowhere': Name or"):
        open_listener(Listener("PLAINTEXT", "nowhere", 9092), Limits())


def test_port_0_is_retried_if_in_use_at_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def fail_twice(*_: object) -> list[socket.socket]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.EADDRINUSE, "in use")
        return []

    monkeypatch.setattr(module, "_bind_all", fail_twice)
    assert open_listener(Listener("PLAINTEXT", "127.0.0.1", 0), Limits()) == []
    assert tries == 3
