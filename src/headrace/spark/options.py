"""Parses and checks the options of the source, and converts `kafka.*` options to client configs.

Pure: no connection, no Spark. Runs in the driver's planners. Option names are case-insensitive. Names, defaults and
checks are the same as in Spark's Kafka connector.

Invariant: invalid options are reported here, before any request to a broker, with the option's name, its value and the
expected value.
"""

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.config.admin import ADMIN_KEYS
from headrace.client.config.consumer import CONSUMER_KEYS
from headrace.client.config.producer import PRODUCER_KEYS
from headrace.client.config.table import ALIASES, ClientTable
from headrace.common.config import unknown_key
from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition
from headrace.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Earliest,
    Latest,
    OffsetSpec,
    SpecificOffsets,
    SpecificTimestamps,
    Timestamp,
    parse_assign,
    parse_offsets,
    parse_timestamps,
)

__all__ = ["SourceOptions", "Subscription", "client_config", "lower_keys", "parse_duration_ms"]

_logger = logging.getLogger(__name__)

_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"

_TABLES: dict[str, ClientTable[Any]] = {"consumer": CONSUMER_KEYS, "producer": PRODUCER_KEYS, "admin": ADMIN_KEYS}

_JAVA_ONLY = frozenset(
    (
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "config.providers",
        "enable.metrics.push",
        "group.remote.assignor",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "metrics.recording.level",
        "partitioner.class",
        "security.providers",
        "share.acknowledgement.mode",
    )
)
"""Configs of Kafka's Java clients that have no meaning here and are safe to ignore."""

MANAGED_BY_SOURCE: dict[str, str] = {
    "auto.offset.reset": "set the option 'startingOffsets'; the query then tracks its offsets itself",
    "key.deserializer": "keys are binary: cast or parse the column 'key'",
    "value.deserializer": "values are binary: cast or parse the column 'value'",
    "enable.auto.commit": "the source commits no offsets: Spark's checkpoint stores them",
    "interceptor.classes": "interceptors could change the records",
}
"""Kafka configs that cannot be set for a read, and why."""


SOURCE_OPTIONS = (
    BOOTSTRAP,
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "pushFilters",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
SINK_OPTIONS = ("topic", "deliveryGuarantee", "queryId", "batchId", "sinkName")


def check_option_names(options: Mapping[str, str], known_names: Iterable[str]) -> None:
    """Raises ConfigError for a misspelled option. Other unknown options are Spark's, or of another data source."""
    known = {name.lower(): name for name in known_names}
    for name in options:
        if name.lower() not in known and not name.lower().startswith(_PREFIX):
            similar = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
            if similar:
                raise ConfigError(f"unknown option {name!r}: did you mean {known[similar[0]]!r}?")


def lower_keys(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options with lower-case names, as Spark passes them anyway."""
    return {name.lower(): value for name, value in options.items()}


def client_config(
    options: Mapping[str, str], kind: str = "consumer", refused: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns the configs of a client ("consumer", "producer" or "admin") from the `kafka.*` options, by Kafka's names.

    Configs in `refused` raise `ConfigError` with the reason. Configs of other kinds of clients are ignored, because
    users pass the same options to reads and writes. A config that no client has raises `ConfigError`.
    """
    lowered = lower_keys(options)
    table = _TABLES[kind]
    config: dict[str, str] = {}
    for name, value in lowered.items():
        if not name.startswith(_PREFIX):
            continue
        key = name.removeprefix(_PREFIX)
        key = ALIASES.get(key, key)
        if refused is not None and key in refused:
            raise ConfigError(f"the option 'kafka.{key}' cannot be set: {refused[key]}")
        if _has(table, key):
            config[key] = value
        elif key in _JAVA_ONLY or any(_has(client_table, key) for client_table in _TABLES.values()):
            continue
        else:
            error = unknown_key(key, table.known())
            raise ConfigError(f"the option 'kafka.{key}': {error}")
    if not config.get("bootstrap.servers", "").strip():
        raise ConfigError(
            f"the option '{BOOTSTRAP}' is missing: expected host:port of one or more brokers, separated by commas"
        )
    return config


def _has(table: ClientTable[Any], key: str) -> bool:
    return key in table.keys or key in table.objects or key in table.unused or key in table.refused


@dataclass(frozen=True)
class Subscription:
    """The subscription of a read: named topics, topics that match a pattern, or single partitions. One of them is
    set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern!r}"
        if self.partitions:
            return f"assign {', '.join(map(str, sorted(self.partitions)))}"
        return f"subscribe {', '.join(self.topics)}"


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of a read. Small and picklable, because tasks receive them."""

    config: Mapping[str, str]
    """Client configs by Kafka's names."""
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    latest_if_no_match: bool
    """If no record is at or after the starting timestamp: start at the latest offset instead of raising an error."""
    fail_on_data_loss: bool
    include_headers: bool
    push_filters: bool
    """Use the query's filters to read less in a batch. Spark's connector has no such option. Only for frames that
    are used once."""
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None = None) -> "SourceOptions":
        """Parses and checks all options. If `streaming` is None, skips the checks that apply only to batches or only to
        streams."""
        check_option_names(options, [*SOURCE_OPTIONS, *SINK_OPTIONS])
        lowered = lower_keys(options)
        config = client_config(lowered, refused=MANAGED_BY_SOURCE)
        if "client.id" not in config:
            config["client.id"] = config.get("group.id") or lowered.get("groupidprefix") or "headrace-spark"
        if "group.id" in config and "groupidprefix" in lowered:
            _logger.warning("Spark source: the option 'groupIdPrefix' is ignored because 'kafka.group.id' is set")
        config.setdefault("max.partition.fetch.bytes", str(_FETCH_BYTES))
        try:
            CONSUMER_KEYS.load(config)
        except ConfigError as error:
            raise ConfigError(f"the options 'kafka.*': {error}") from None
        parsed = cls(
            config=config,
            subscription=_subscription(lowered),
            starting=_spec(lowered, "starting", Latest() if streaming else Earliest()),
            ending=_spec(lowered, "ending", Latest()),
            latest_if_no_match=_choice(lowered, "startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
            == "latest",
            fail_on_data_loss=_boolean(lowered, "failOnDataLoss", True),
            include_headers=_boolean(lowered, "includeHeaders", False),
            push_filters=_boolean(lowered, "pushFilters", False),
            min_partitions=_positive(lowered, "minPartitions"),
            max_records_per_partition=_positive(lowered, "maxRecordsPerPartition"),
            max_offsets_per_trigger=_positive(lowered, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_positive(lowered, "minOffsetsPerTrigger"),
            max_trigger_delay_ms=parse_duration_ms("maxTriggerDelay", lowered.get("maxtriggerdelay", "15m")),
            poll_timeout_ms=_number(lowered, "kafkaConsumer.pollTimeoutMs", 120_000, 1),
            offset_retries=_number(lowered, "fetchOffset.numRetries", 3, 1),
            offset_retry_interval_ms=_number(lowered, "fetchOffset.retryIntervalMs", 10, 0),
        )
        if streaming is True:
            _check_stream(lowered, parsed)
        elif streaming is False:
            _check_batch(lowered, parsed)
        return parsed


_FETCH_BYTES = 4 * 1024 * 1024
"""The default of `max.partition.fetch.bytes`: large, because a task reads a long range of one partition."""
_STRATEGIES = ("assign", "subscribe", "subscribePattern")
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


def _subscription(options: Mapping[str, str]) -> Subscription:
    strategies = [name for name in _STRATEGIES if name.lower() in options]
    names = ", ".join(f"'{name}'" for name in _STRATEGIES)
    if not strategies:
        raise ConfigError(f"no topic to read: expected one of the options {names}")
    if len(strategies) > 1:
        raise ConfigError(
            f"the options {' and '.join(repr(name) for name in strategies)} are set together: expected only one"
        )
    (name,) = strategies
    value = options[name.lower()].strip()
    if name == "assign":
        return Subscription(partitions=parse_assign(name, value))
    if name == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in value.split(",")} - {""}))
        if not topics:
            raise ConfigError(f"the option 'subscribe' is {value!r}: expected topic names, separated by commas")
        return Subscription(topics=topics)
    if not value:
        raise ConfigError("the option 'subscribePattern' is empty: expected a regular expression for topic names")
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(
            f"the option 'subscribePattern' is {value!r}, which is not a regular expression: {error}"
        ) from None
    return Subscription(pattern=value)


def _spec(options: Mapping[str, str], side: str, default: OffsetSpec) -> OffsetSpec:
    """Returns the start (`side` is "starting") or the end ("ending") of a read.

    A timestamp for all partitions takes precedence over timestamps per partition. These take precedence over offsets.
    """
    if f"{side}timestamp" in options:
        return Timestamp(_number(options, f"{side}Timestamp", 0, 0))
    if f"{side}offsetsbytimestamp" in options:
        name = f"{side}OffsetsByTimestamp"
        return SpecificTimestamps(parse_timestamps(name, options[name.lower()]))
    name = f"{side}Offsets"
    value = options.get(name.lower())
    if value is None:
        return default
    word = value.strip().lower()
    if word == "latest":
        return Latest()
    if word == "earliest":
        return Earliest()
    return SpecificOffsets(parse_offsets(name, value))


def _check_batch(options: Mapping[str, str], parsed: SourceOptions) -> None:
    if isinstance(parsed.starting, Latest):
        raise ConfigError("the option 'startingOffsets' cannot be 'latest' in a batch read: it would read nothing")
    if isinstance(parsed.ending, Earliest):
        raise ConfigError("the option 'endingOffsets' cannot be 'earliest' in a batch read: it would read nothing")
    for name, spec, wrong in (
        ("startingOffsets", parsed.starting, LATEST_OFFSET),
        ("endingOffsets", parsed.ending, EARLIEST_OFFSET),
    ):
        if isinstance(spec, SpecificOffsets):
            for tp, offset in spec.offsets.items():
                if offset == wrong:
                    word = "latest" if wrong == LATEST_OFFSET else "earliest"
                    raise ConfigError(f"the option '{name}' cannot be {word} ({wrong}) for {tp} in a batch read")
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in options:
            _logger.warning(
                "Spark source: the option '%s' applies only to streams and is ignored in a batch read", name
            )


def _check_stream(options: Mapping[str, str], parsed: SourceOptions) -> None:
    for name in _ENDINGS:
        if name.lower() in options:
            raise ConfigError(f"the option '{name}' cannot be set for a stream, which has no end")
    min_offsets, max_offsets = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
        raise ConfigError(
            f"the option 'minOffsetsPerTrigger' ({min_offsets}) is higher than 'maxOffsetsPerTrigger' ({max_offsets})"
        )


def _number(options: Mapping[str, str], name: str, default: int, minimum: int) -> int:
    value = options.get(name.lower())
    if value is None:
        return default
    try:
        number = int(value.strip())
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise ConfigError(f"the option '{name}' is {value!r}: expected a whole number of at least {minimum}")
    return number


def _positive(options: Mapping[str, str], name: str) -> int | None:
    return _number(options, name, 1, 1) if name.lower() in options else None


def _choice(options: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    value = options.get(name.lower(), default)
    if value.strip().lower() not in choices:
        raise ConfigError(f"the option '{name}' is {value!r}: expected {' or '.join(map(repr, choices))}")
    return value.strip().lower()


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    return _choice(options, name, "true" if default else "false", ("true", "false")) == "true"


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(name: str, text: str) -> int:
    """Parses a duration in Spark's notation: `15m`, `30s`, `100ms`. A number without a unit is in ms."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] and match[2] not in _UNITS_MS):
        raise ConfigError(f"the option '{name}' is {text!r}: expected a duration such as 500ms, 30s, 15m or 1h")
    return int(match[1]) * _UNITS_MS.get(match[2], 1)
