"""A parsed configuration as a mapping."""

import pytest

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.producer import PRODUCER_KEYS


def test_values_by_key() -> None:
    config = PRODUCER_KEYS.load(acks="all", linger_ms=7)
    assert config["linger_ms"] == config["linger.ms"] == config.linger_ms == 7
    assert config["acks"] == -1
    assert config["value_serializer"] is None
    assert config.get("no_such_key", "default") == "default"
    assert "explicit" not in config
    for key in ("no_such_key", "explicit", "__class__", 5):
        with pytest.raises(KeyError):
            config[key]


def test_iteration_yields_every_key_once() -> None:
    for table in (PRODUCER_KEYS, ADMIN_KEYS):
        config = table.load()
        assert sorted(config) == sorted(name.replace(".", "_") for name in table.known())
        assert len(config) == len(list(config))
        assert dict(config) == {name: getattr(config, name) for name in config}


def test_equal_configurations_are_equal() -> None:
    assert PRODUCER_KEYS.load(linger_ms=7) == PRODUCER_KEYS.load({"linger.ms": "7"})
    assert PRODUCER_KEYS.load(linger_ms=7) != PRODUCER_KEYS.load(linger_ms=8)
