import pytest

from headrace.client.config.admin import ADMIN_KEYS
from headrace.common.errors import ConfigError
from headrace.net.nodes import Node, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker:9093", ("broker", 9093)),
        ("broker", ("broker", 9092)),
        (" broker:1 ", ("broker", 1)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
        ("PLAINTEXT://broker:9093", ("broker", 9093)),
        ("SSL://[fe80::1]:9093/", ("fe80::1", 9093)),
        ("fe80::1%eth0", ("fe80::1%eth0", 9092)),
        ("[fe80::1%eth0]:9093", ("fe80::1%eth0", 9093)),
        ("127.0.0.1", ("127.0.0.1", 9092)),
        ("bücher.example:9093", ("bücher.example", 9093)),
        ("kafka_1.my-net:9093", ("kafka_1.my-net", 9093)),
    ],
)
def test_parse_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", ":9092", "broker:", "broker:x", "broker:0", "broker:65536", "broker:-1", "broker:９"),
        *("[::1", "[::1]9092", "[::1]:", "[broker]:9092", "[127.0.0.1]:9092", "a:b:c"),
        *("9092", "a b:9092", "a : 9092", "a:9092;b:9092", "a:9092 b:9092", "a,b:9092", "user@a:9092"),
    ],
)
def test_invalid_addresses_raise(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address: expected host:port"):
        parse_address(text)


def test_duplicate_addresses_are_dropped_and_empty_list_raises() -> None:
    assert parse_addresses(["a:1", "b:2", "a:1"]) == [("a", 1), ("b", 2)]
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is empty"):
        parse_addresses([])


def test_node_format() -> None:
    assert str(Node(-1, "a", 9092)) == "a:9092"
    assert str(Node(3, "a", 9092)) == "a:9092 (broker 3)"
    assert str(Node(3, "::1", 9092)) == "[::1]:9092 (broker 3)"


@pytest.mark.parametrize(
    "servers", ["a, [::1]:9093 ,b:1", ["a", "[::1]:9093", " b:1"], ("a:9092", "[::1]:9093", "b:1")]
)
def test_lists_and_strings_of_addresses(servers: object) -> None:
    config = ADMIN_KEYS.load(bootstrap_servers=servers)
    assert parse_addresses(config.bootstrap_servers) == [("a", 9092), ("::1", 9093), ("b", 1)]
