import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.control import ControlConfig
from headrace.common.errors import ConfigError


def test_defaults_are_kafkas() -> None:
    config = ControlConfig.from_properties()
    assert str(config.protocol) == "3.9-IV0"
    assert config.request_timeout_ms == 30_000
    assert config.controller_socket_timeout_ms == 30_000
    assert config.setup_timeout_ms == 10_000
    assert config.setup_timeout_max_ms == 30_000


def test_the_brokers_config_has_them() -> None:
    config = BrokerConfig.from_properties({"inter.broker.protocol.version": "2.6", "request.timeout.ms": "5000"})
    assert str(config.control.protocol) == "2.6-IV0"
    assert config.control.request_timeout_ms == 5000
    with pytest.raises(ConfigError, match=r"inter.broker.protocol.version=9 is not a supported version"):
        BrokerConfig.from_properties({"inter.broker.protocol.version": "9"})


def test_the_control_plane_listener() -> None:
    listeners = {
        "listeners": "PLAINTEXT://:9092,CONTROL://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
    }
    config = BrokerConfig.from_properties({**listeners, "control.plane.listener.name": "control"})
    assert config.control.control_plane_listener_name == "CONTROL"
    assert config.inter_broker_listener_name == "PLAINTEXT"
    with pytest.raises(
        ConfigError, match=r"control\.plane\.listener\.name=X must be a listener name defined in listeners"
    ):
        BrokerConfig.from_properties({**listeners, "control.plane.listener.name": "X"})
    with pytest.raises(ConfigError, match="must not be the inter-broker listener"):
        BrokerConfig.from_properties({**listeners, "control.plane.listener.name": "PLAINTEXT"})
