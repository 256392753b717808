from typing import Any

import pytest

from headrace.common.config import INT_MAX, LONG_MAX, ConfigKey, ConfigTable, ConfigType, Synonym
from headrace.common.errors import ConfigError


def key(kind: ConfigType, **fields: Any) -> ConfigKey:
    return ConfigKey("some.key", kind, fields.pop("default", None), "What it does.", **fields)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (ConfigType.INT, "42", 42),
        (ConfigType.INT, " 42 ", 42),
        (ConfigType.INT, 42, 42),
        (ConfigType.INT, 42.0, 42),
        (ConfigType.INT, "-2147483648", -INT_MAX - 1),
        (ConfigType.LONG, str(LONG_MAX), LONG_MAX),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, 1, 1.0),
        (ConfigType.BOOLEAN, "true", True),
        (ConfigType.BOOLEAN, " FALSE ", False),
        (ConfigType.BOOLEAN, True, True),
        (ConfigType.STRING, " text ", "text"),
        (ConfigType.LIST, "a, b,,a , c", ("a", "b", "c")),
        (ConfigType.LIST, ["a", " b "], ("a", "b")),
        (ConfigType.LIST, "", ()),
    ],
)
def test_parses_text_and_native_values(kind: ConfigType, raw: object, value: object) -> None:
    parsed = key(kind).parse(raw)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (ConfigType.INT, "many"),
        (ConfigType.INT, ""),
        (ConfigType.INT, None),
        (ConfigType.INT, True),
        (ConfigType.INT, 1.5),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, INT_MAX + 1),
        (ConfigType.INT, -INT_MAX - 2),
        (ConfigType.LONG, LONG_MAX + 1),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, True),
        (ConfigType.DOUBLE, "1_0.5"),
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, 1),
        (ConfigType.STRING, 7),
        (ConfigType.LIST, 7),
    ],
)
def test_rejects_value_of_wrong_type(kind: ConfigType, raw: object) -> None:
    with pytest.raises(ConfigError) as refused:
        key(kind).parse(raw)
    problem = {
        ConfigType.LIST: "Expected a comma-separated list",
        ConfigType.STRING: "Expected value to be a string",
        ConfigType.BOOLEAN: "Expected value to be either true or false",
    }.get(kind, f"Not a number of type {kind.name}")
    assert str(refused.value) == f"Invalid value {raw} for configuration some.key: {problem}"


@pytest.mark.parametrize(
    ("fields", "good", "bad", "problem"),
    [
        ({"low": 1}, 1, 0, "Value must be at least 1"),
        ({"low": 1, "high": 9}, 9, 10, "Value must be no more than 9"),
        ({"low": 1, "high": 9}, 1, 0, "Value must be at least 1"),
        ({"low": 1, "high": 9, "also_allowed": (-1,)}, -1, 0, "Value must be between 1 and 9 or equal to -1"),
        ({"check": lambda value: None if value % 2 else "Not odd"}, 3, 2, "Not odd"),
    ],
)
def test_checks_bounds(fields: dict[str, object], good: int, bad: int, problem: str) -> None:
    bounded = key(ConfigType.INT, **fields)
    assert bounded.parse(good) == good
    with pytest.raises(ConfigError) as refused:
        bounded.parse(str(bad))
    assert str(refused.value) == f"Invalid value {bad} for configuration some.key: {problem}"


def test_checks_choices() -> None:
    one = key(ConfigType.STRING, choices=("red", "green"))
    assert one.parse("green") == "green"
    with pytest.raises(ConfigError, match=r"Invalid value blue .* some\.key: String must be one of: red, green$"):
        one.parse("blue")
    several = key(ConfigType.LIST, choices=("red", "green"))
    assert several.parse("green,red") == ("green", "red")
    with pytest.raises(ConfigError, match=r"Invalid value blue .* some\.key: String must be one of: red, green$"):
        several.parse("red,blue")


TABLE = ConfigTable(
    [
        ConfigKey(
            "retention.ms",
            ConfigType.LONG,
            1000,
            "How long.",
            low=-1,
            synonyms=(Synonym("log.retention.ms"), Synonym("log.retention.hours", 3_600_000)),
        ),
        ConfigKey("cleanup.policy", ConfigType.LIST, ("delete",), "What happens.", choices=("compact", "delete")),
        ConfigKey("preallocate", ConfigType.BOOLEAN, False, "Whether."),
    ]
)


def test_parse_returns_value_of_every_key() -> None:
    assert TABLE.parse({"preallocate": "true"}) == {
        "retention_ms": 1000,
        "cleanup_policy": ("delete",),
        "preallocate": True,
    }


def test_unknown_key_error_suggests_similar_key() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown configuration key 'retention\.msec', did you mean 'retention\.ms'\?"
    ):
        TABLE.parse({"retention.msec": 1})
    with pytest.raises(ConfigError, match=r"unknown configuration key 'zzz'$"):
        TABLE.parse({"zzz": 1})


@pytest.mark.parametrize(
    ("server", "found"),
    [
        ({}, {}),
        ({"log.retention.hours": "2"}, {"retention.ms": 7_200_000}),
        ({"log.retention.hours": "2", "log.retention.ms": "5"}, {"retention.ms": 5}),
        ({"log.retention.hours": -1}, {"retention.ms": -1}),
        ({"log.retention.hours": 0}, {"retention.ms": 0}),
        ({"listeners": "anything"}, {}),
    ],
)
def test_broker_configs_set_defaults_of_topic_configs(server: dict[str, object], found: dict[str, object]) -> None:
    assert TABLE.defaults_from_server(server) == found


def test_error_names_the_broker_config() -> None:
    with pytest.raises(ConfigError, match=r"^Invalid value soon for configuration log\.retention\.hours: "):
        TABLE.defaults_from_server({"log.retention.hours": "soon"})


def test_rejects_broker_value_that_overflows_in_smaller_unit() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value 9223372036854775807 for configuration log\.retention\.hours"):
        TABLE.defaults_from_server({"log.retention.hours": LONG_MAX})


def test_markdown_reference_table() -> None:
    assert TABLE.markdown().splitlines() == [
        "| key | type | default | allowed | broker key | meaning |",
        "|---|---|---|---|---|---|",
        "| `cleanup.policy` | list | `delete` | a list of compact or delete |  | What happens. |",
        "| `preallocate` | boolean | `false` |  |  | Whether. |",
        "| `retention.ms` | long | `1000` | a value of type long of at least -1 "
        "| `log.retention.ms`, `log.retention.hours` | How long. |",
    ]
