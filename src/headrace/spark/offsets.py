"""Offsets in Spark's JSON format, and the offsets that users give in options. Pure.

A stream's offset is JSON with the shape that Spark's Kafka connector stores in its checkpoints, so that a query can
continue where that connector stopped:

    {"topic": {"0": 23, "1": 7}, "other": {"0": 0}}      the next offset of each partition
    {"topic": {...}, "@from": {"topic": {"1": 4}}}       with the start of partitions that the previous offset lacks
    {"@from": "options"}                                 before the first offset: the options decide where to begin

`@` cannot occur in a topic name. The start of a partition is stored because a replay must begin there too, and neither
Spark nor the log stores it: the latest and earliest offsets change. Spark compares offsets as text, so topics and
partitions are always sorted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.common.errors import ConfigError
from headrace.common.types import TopicPartition

__all__ = [
    "EARLIEST_OFFSET",
    "INITIAL",
    "LATEST_OFFSET",
    "Earliest",
    "Latest",
    "OffsetSpec",
    "Offsets",
    "SpecificOffsets",
    "SpecificTimestamps",
    "Timestamp",
    "from_spark",
    "parse_assign",
    "parse_offsets",
    "parse_timestamps",
    "start_of",
    "to_spark",
]

Offsets = dict[TopicPartition, int]
LATEST_OFFSET = -1
EARLIEST_OFFSET = -2
_FROM = "@from"
INITIAL: dict[str, Any] = {_FROM: "options"}
"""The result of `initialOffset`. Spark does not store it, so it must not depend on the time of the call."""


@dataclass(frozen=True)
class Earliest:
    """The first offset of each partition."""


@dataclass(frozen=True)
class Latest:
    """The end offset of each partition."""


@dataclass(frozen=True)
class SpecificOffsets:
    """An offset for each partition, -2 for the earliest, -1 for the latest."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class SpecificTimestamps:
    """A timestamp in ms for each partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Timestamp:
    """One timestamp in ms for all partitions."""

    timestamp: int


OffsetSpec = Earliest | Latest | SpecificOffsets | SpecificTimestamps | Timestamp


def to_spark(
    offsets: Mapping[TopicPartition, int], start: Mapping[TopicPartition, int] | None = None
) -> dict[str, Any]:
    """Returns an offset for Spark. `start` has the partitions that the previous offset lacks."""
    offset: dict[str, Any] = _nested(offsets)
    if start:
        offset[_FROM] = _nested(start)
    return offset


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def from_spark(offset: Mapping[str, Any]) -> Offsets:
    """Returns the offsets in an offset of Spark's."""
    return {
        TopicPartition(topic, int(partition)): int(next_offset)
        for topic, partitions in offset.items()
        if topic != _FROM
        for partition, next_offset in partitions.items()
    }


def start_of(end: Mapping[str, Any]) -> Offsets:
    """Returns the start offsets of the partitions that are new in this offset."""
    start = end.get(_FROM)
    return from_spark(start) if isinstance(start, Mapping) else {}


def parse_offsets(option: str, text: str) -> Mapping[TopicPartition, int]:
    """Parses offsets by partition: `{"topic": {"0": 23, "1": -1}}`."""
    offsets = _parse(option, text, '{"topic": {"0": 23, "1": -1}}')
    for tp, offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise ConfigError(
                f"the option '{option}' has offset {offset} for {tp}: expected 0 or more, -1 for the latest or -2 "
                "for the earliest"
            )
    return offsets


def parse_timestamps(option: str, text: str) -> Mapping[TopicPartition, int]:
    """Parses timestamps by partition: `{"topic": {"0": 1700000000000}}`."""
    return _parse(option, text, '{"topic": {"0": 1700000000000}}')


def _parse(option: str, text: str, example: str) -> dict[TopicPartition, int]:
    loaded = _load(option, text, example)
    values: dict[TopicPartition, int] = {}
    try:
        for topic, partitions in loaded.items():
            for partition, value in partitions.items():
                if isinstance(value, bool) or int(value) != value:
                    raise ValueError(value)
                values[TopicPartition(topic, int(partition))] = value
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"the option '{option}' is {text!r}: expected JSON such as {example}") from None
    return values


def parse_assign(option: str, text: str) -> frozenset[TopicPartition]:
    """Parses partitions: `{"topic": [0, 1]}`."""
    example = '{"topic": [0, 1], "other": [2]}'
    loaded = _load(option, text, example)
    try:
        if not all(isinstance(partitions, list) for partitions in loaded.values()):
            raise TypeError
        tps = frozenset(
            TopicPartition(topic, int(partition)) for topic, partitions in loaded.items() for partition in partitions
        )
    except (TypeError, ValueError):
        raise ConfigError(f"the option '{option}' is {text!r}: expected JSON such as {example}") from None
    if not tps:
        raise ConfigError(f"the option '{option}' is {text!r}, which contains no partition: expected {example}")
    return tps


def _load(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        loaded = json.loads(text)
    except ValueError:
        loaded = None
    if not isinstance(loaded, dict):
        raise ConfigError(f"the option '{option}' is {text!r}: expected JSON such as {example}")
    return loaded
