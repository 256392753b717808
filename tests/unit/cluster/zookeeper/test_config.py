import pytest

from headrace.cluster.zookeeper.config import ZooKeeperConfig, parse_connect
from headrace.common.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost", ("localhost:2181",), ""),
        ("a:1, b:2,c", ("a:1", "b:2", "c:2181"), ""),
        ("a:1,b:2/kafka/one", ("a:1", "b:2"), "/kafka/one"),
        ("a:1/", ("a:1",), ""),
        ("[::1]:2181,10.0.0.1:3/x/", ("[::1]:2181", "10.0.0.1:3"), "/x"),
    ],
)
def test_servers_and_chroot(text: str, servers: tuple[str, ...], chroot: str) -> None:
    assert parse_connect(text) == (servers, chroot)


@pytest.mark.parametrize("text", ["a:x", ",", "a:1,,b", "a:0", "a:70000", "a b:1", "a:1/x//y", "a:1/../b", "/chroot"])
def test_rejects_connect(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect="):
        parse_connect(text)


def test_defaults() -> None:
    assert ZooKeeperConfig.from_properties({}) is None
    assert ZooKeeperConfig.from_properties({"zookeeper.connect": " "}) is None
    config = ZooKeeperConfig.from_properties({"zookeeper.connect": "a/x"})
    assert config == ZooKeeperConfig(("a:2181",), "/x", 18_000, 18_000, 10, False, None)
    assert config.connect == "a:2181/x"


def test_connection_timeout_defaults_to_session_timeout() -> None:
    properties = {"zookeeper.connect": "a", "zookeeper.session.timeout.ms": "5000"}
    config = ZooKeeperConfig.from_properties(properties)
    assert config is not None
    assert (config.session_timeout_ms, config.connection_timeout_ms) == (5000, 5000)
    config = ZooKeeperConfig.from_properties({**properties, "zookeeper.connection.timeout.ms": 7})
    assert config is not None
    assert (config.session_timeout_ms, config.connection_timeout_ms) == (5000, 7)


def test_tls() -> None:
    config = ZooKeeperConfig.from_properties(
        {
            "zookeeper.connect": "a",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": "/k.pem",
            "zookeeper.ssl.keystore.password": "secret",
            "zookeeper.ssl.truststore.location": "/t.pem",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
            "zookeeper.set.acl": "true",
        }
    )
    assert config is not None
    assert config.tls is not None
    assert (config.tls.keystore, config.tls.truststore, config.tls.check_hostname) == ("/k.pem", "/t.pem", False)
    assert config.set_acl
    assert "secret" not in repr(config)


def test_acls_need_authentication() -> None:
    with pytest.raises(ConfigError, match="needs an authenticated connection"):
        ZooKeeperConfig.from_properties({"zookeeper.connect": "a", "zookeeper.set.acl": "true"})
