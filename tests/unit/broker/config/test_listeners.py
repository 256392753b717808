import socket

import pytest

from headrace.broker.config import listeners as module
from headrace.broker.config.listeners import parse_listeners, parse_protocol_map
from headrace.common.errors import ConfigError
from headrace.net.listeners import Listener


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("PLAINTEXT://127.0.0.1:0", Listener("PLAINTEXT", "127.0.0.1", 0)),
        ("plaintext://broker-1.example.com:65535", Listener("PLAINTEXT", "broker-1.example.com", 65535)),
        ("IN_2://[::1]:9092", Listener("IN_2", "::1", 9092)),
        ("X://[fe80::1%eth0]:1", Listener("X", "fe80::1%eth0", 1)),
        (" PLAINTEXT://:9092 ", Listener("PLAINTEXT", "", 9092)),
    ],
)
def test_parses_listeners(text: str, expected: Listener) -> None:
    assert parse_listeners("listeners", [text]) == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "9092",
        "localhost:9092",
        "PLAINTEXT://",
        "PLAINTEXT://localhost",
        "PLAINTEXT://:",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://a:65536",
        "PLAINTEXT://a:-1",
        "://a:1",
        "PLAINTEXT://a:9092/",
        "PLAINTEXT:/a:1",
        "A B://a:1",
    ],
)
def test_refuses_invalid_listeners(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listeners("advertised.listeners", [text])
    assert str(caught.value) == (
        f"advertised.listeners: {text!r} is not a listener: expected NAME://host:port, such as PLAINTEXT://:9092"
    )


def test_refuses_duplicate_listener_names() -> None:
    with pytest.raises(ConfigError, match="listeners: each listener must have a different name, A is used twice"):
        parse_listeners("listeners", ["A://:1", "a://:2"])


def test_parses_protocol_maps() -> None:
    assert parse_protocol_map("") == {}
    assert parse_protocol_map(" a:plaintext, B : SASL_SSL,") == {"A": "PLAINTEXT", "B": "SASL_SSL"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A", "'A' is not valid"),
        ("A:B", "expected NAME:PROTOCOL, of PLAINTEXT"),
        (":SSL", "':SSL' is not valid"),
        ("A:SSL,a:SSL", "has the listener A twice"),
    ],
)
def test_refuses_invalid_protocol_maps(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"listener.security.protocol.map.*{message}"):
        parse_protocol_map(text)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_advertises_the_host_name_for_all_addresses(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    assert module.with_defaults([], [Listener("A", host, 0)]) == (Listener("A", "box", 0),)
    given = Listener("A", "elsewhere", 1)
    assert module.with_defaults([given], [Listener("A", host, 0)]) == (given,)
