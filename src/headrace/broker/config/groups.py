"""The configs of groups (KIP-848, KIP-932, KIP-1071) and of client metrics subscriptions (KIP-714).

They are checked, stored and returned as in Kafka. Those of groups have no effect yet: the groups that use them are not
supported. The limits of group configs are the defaults of broker configs (`group.consumer.min.session.timeout.ms`
and so on).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from headrace.common.config import ConfigKey, ConfigTable, ConfigType, Synonym
from headrace.common.errors import ConfigError, InvalidConfigurationError, InvalidRequestError

_NO_EFFECT_YET = "(No effect yet.)"
_RESET = re.compile(r"earliest|latest|by_duration:P(?!$)(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_MATCH_NAMES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_LOWEST_INTERVAL_MS, _HIGHEST_INTERVAL_MS = 100, 3_600_000


class _Limit(NamedTuple):
    """The range that Kafka's broker configs `group.<kind>.min.<rest>` and `group.<kind>.max.<rest>` allow."""

    low: int | None
    high: int | None


_LIMITS = {
    "consumer.assignment.interval.ms": _Limit(0, 15_000),
    "consumer.heartbeat.interval.ms": _Limit(5_000, 15_000),
    "consumer.session.timeout.ms": _Limit(45_000, 60_000),
    "share.assignment.interval.ms": _Limit(0, 15_000),
    "share.delivery.count.limit": _Limit(2, 10),
    "share.heartbeat.interval.ms": _Limit(5_000, 15_000),
    "share.partition.max.record.locks": _Limit(100, 4_000),
    "share.record.lock.duration.ms": _Limit(15_000, 60_000),
    "share.session.timeout.ms": _Limit(45_000, 60_000),
    "streams.assignment.interval.ms": _Limit(0, 15_000),
    "streams.heartbeat.interval.ms": _Limit(5_000, 15_000),
    "streams.session.timeout.ms": _Limit(45_000, 60_000),
    "streams.num.standby.replicas": _Limit(None, 2),
}


def _check_reset(value: str) -> str | None:
    if _RESET.fullmatch(value):
        return None
    return (
        f"Invalid value `{value}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
        "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    )


def _group_key(
    name: str,
    default: object,
    doc: str,
    *,
    kind: ConfigType = ConfigType.INT,
    low: int | None = None,
    choices: tuple[str, ...] | None = None,
    check: Callable[[str], str | None] | None = None,
) -> ConfigKey:
    # A group's key has the default of a broker key, or is its own default.
    broker_key = f"group.{name}" if kind is ConfigType.INT else name
    return ConfigKey(
        name,
        kind,
        default,
        f"{doc} {_NO_EFFECT_YET}",
        low=low,
        choices=choices,
        check=check,
        synonyms=(Synonym(broker_key),),
    )


def _keys_of_each_kind() -> Iterator[ConfigKey]:
    for kind in ("consumer", "share", "streams"):
        yield _group_key(f"{kind}.session.timeout.ms", 45_000, "The session timeout of members.", low=1)
        yield _group_key(f"{kind}.heartbeat.interval.ms", 5_000, "The heartbeat interval of members.", low=1)
        yield _group_key(f"{kind}.assignment.interval.ms", 1_000, "The time between two assignments.", low=0)


GROUP_KEYS = ConfigTable(
    [
        *_keys_of_each_kind(),
        _group_key(
            "share.auto.offset.reset",
            "latest",
            "Where a share group starts.",
            kind=ConfigType.STRING,
            check=_check_reset,
        ),
        _group_key("share.delivery.count.limit", 5, "How often a record is delivered at most.", low=2),
        _group_key(
            "share.isolation.level",
            "read_uncommitted",
            "Whether a share group reads records of aborted transactions.",
            kind=ConfigType.STRING,
            choices=("read_committed", "read_uncommitted"),
        ),
        _group_key("share.partition.max.record.locks", 2_000, "How many records of a partition are locked.", low=100),
        _group_key("share.record.lock.duration.ms", 30_000, "How long a record is locked.", low=1_000),
        _group_key("share.renew.acknowledge.enable", True, "Whether locks can be renewed.", kind=ConfigType.BOOLEAN),
        _group_key("streams.initial.rebalance.delay.ms", 3_000, "The delay of the first assignment.", low=0),
        _group_key("streams.num.standby.replicas", 0, "The number of standby replicas of a task.", low=0),
    ]
)
"""The keys of groups, with Kafka's defaults. The synonym is the broker config with the default."""

CLIENT_METRICS_KEYS = ConfigTable(
    [
        ConfigKey("interval.ms", ConfigType.INT, 300_000, "How often clients push their metrics."),
        ConfigKey("match", ConfigType.LIST, (), "Which clients push metrics: `name=pattern`."),
        ConfigKey("metrics", ConfigType.LIST, (), "The prefixes of the metrics, or `*`."),
    ]
)


def check_group(overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfigurationError if a group cannot have these configs."""
    for name, value in overrides.items():
        if name not in GROUP_KEYS.keys:
            raise InvalidConfigurationError(f"Unknown group config name: {name}")
        try:
            number = GROUP_KEYS.keys[name].parse(value)
        except ConfigError as error:
            raise InvalidConfigurationError(str(error)) from error
        low, high = _LIMITS.get(name, _Limit(None, None))
        kind, rest = name.split(".", 1)
        if low is not None and number < low:
            raise InvalidConfigurationError(f"{name} must be greater than or equal to group.{kind}.min.{rest}")
        if high is not None and number > high:
            limit = rest.removeprefix("num.")
            raise InvalidConfigurationError(f"{name} must be less than or equal to group.{kind}.max.{limit}")


def check_client_metrics(overrides: Mapping[str, str]) -> None:
    """Raises an error if a client metrics subscription cannot have these configs."""
    for name, value in overrides.items():
        if name not in CLIENT_METRICS_KEYS.keys:
            raise InvalidRequestError(f"Unknown client metrics configuration: {name}")
        try:
            parsed = CLIENT_METRICS_KEYS.keys[name].parse(value)
        except ConfigError as error:
            raise InvalidConfigurationError(str(error)) from error
        if name == "interval.ms" and not _LOWEST_INTERVAL_MS <= parsed <= _HIGHEST_INTERVAL_MS:
            raise InvalidRequestError(
                f"Invalid value {value} for interval.ms, interval must be between {_LOWEST_INTERVAL_MS} and "
                f"{_HIGHEST_INTERVAL_MS} (1 hour)"
            )
        if name == "match":
            for pattern in parsed:
                _check_match(pattern)


def _check_match(pattern: str) -> None:
    name, equals, expression = (part.strip() for part in pattern.partition("="))
    try:
        if not equals or not expression or name not in _MATCH_NAMES:
            raise ValueError
        re.compile(expression)
    except (ValueError, re.error):
        raise InvalidConfigurationError(f"Illegal client matching pattern: {pattern}") from None
