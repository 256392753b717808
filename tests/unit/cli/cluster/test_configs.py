"""The entities of `headrace configs`, which need no broker."""

import pytest

from headrace.cli.cluster import quota_configs
from headrace.cli.cluster.configs import _entities, _names

SHORT = ("topic", "client", "user", "broker", "broker_logger", "group", "ip", "client_metrics")
DEFAULTS = ("client_defaults", "user_defaults", "broker_defaults", "ip_defaults")


def short(**given: str | bool) -> dict[str, str | bool | None]:
    return {**dict.fromkeys(SHORT), **dict.fromkeys(DEFAULTS, False), **given}


def test_names_keep_their_order() -> None:
    assert _names(["--entity-type", "users", "--entity-default", "--entity-name=a=b", "--entity-name", "c"]) == [
        "",
        "a=b",
        "c",
    ]
    assert _names(["--entity-name"]) == [""]


def test_names_belong_to_types_in_order() -> None:
    assert _entities(["users", "clients"], ["", "app"], short()) == [("users", ""), ("clients", "app")]
    assert _entities(["clients", "users"], ["app"], short()) == [("clients", "app"), ("users", None)]
    assert _entities([], [], short(user="alice", client_defaults=True)) == [("users", "alice"), ("clients", "")]
    assert _entities(["topics"], [], short()) == [("topics", None)]


@pytest.mark.parametrize(
    ("types", "names", "given", "message"),
    [
        ([], ["a"], {}, "need --entity-type"),
        (["users"], ["a", "b"], {}, "need --entity-type"),
        ([], [], {}, "Expected exactly one entity"),
        (["topics", "brokers"], [], {}, "Expected exactly one entity"),
        (["users", "ips"], [], {}, "cannot be combined"),
        (["users"], ["a"], {"topic": "t"}, "cannot be combined"),
        (["users", "users"], [], {}, "cannot be combined"),
        (["planets"], [], {}, "expected topics, brokers"),
        (["topics"], [""], {}, "--entity-default is only allowed"),
        (["brokers"], ["one"], {}, "expected a numeric broker id"),
        (["ips"], ["localhost"], {}, "must be a valid IP address"),
    ],
)
def test_wrong_entities(types: list[str], names: list[str], given: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        _entities(types, names, short(**given))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1024.0, "1024.0"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"),
        (1.5e-5, "1.5E-5"),
        (1e100, "1.0E100"),
    ],
)
def test_numbers_as_java_prints_them(value: float, text: str) -> None:
    assert quota_configs._java_double(value) == text
