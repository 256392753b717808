"""Checks and conversions of the arguments of the consumer's public methods."""

from collections.abc import Mapping

from headrace.client.arguments import OffsetLike, to_offset
from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition

__all__ = [
    "Offsets",
    "check_max_records",
    "check_timeout",
    "check_timestamp",
    "seek_target",
    "split_topics_and_config",
]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def split_topics_and_config(
    arguments: "tuple[str | Mapping[str, object], ...]",
) -> tuple[list[str], dict[str, object]]:
    """Splits a consumer's positional arguments into topic names and configuration."""
    topics: list[str] = []
    config: dict[str, object] = {}
    for argument in arguments:
        if isinstance(argument, str):
            topics.append(argument)
        elif isinstance(argument, Mapping):
            config.update(argument)
        else:
            raise TypeError(
                f"topics must be str, each a separate argument, not {type(argument).__name__}: "
                "Consumer('orders', 'payments')"
            )
    return topics, config


def check_timeout(timeout_ms: float) -> None:
    if not isinstance(timeout_ms, int | float):
        raise TypeError(
            f"timeout_ms must be a number of milliseconds, not {type(timeout_ms).__name__}; float('inf') waits forever"
        )
    if not timeout_ms >= 0:
        raise ValueError(f"timeout_ms must be at least 0, not {timeout_ms}")


def check_max_records(max_records: int) -> int:
    if not isinstance(max_records, int):
        raise TypeError(f"max_records must be an int, not {type(max_records).__name__}")
    if max_records <= 0:
        raise ValueError(f"max_records must be at least 1, not {max_records}")
    return max_records


def check_timestamp(timestamp: int) -> int:
    """Returns the timestamp as an int. Fractions of milliseconds are cut off."""
    if not isinstance(timestamp, int | float) or isinstance(timestamp, bool):
        raise TypeError(f"a timestamp must be milliseconds since 1970, not {type(timestamp).__name__}")
    if not 0 <= timestamp < 2**63:
        raise ValueError(f"a timestamp must be milliseconds since 1970, not {timestamp}")
    return int(timestamp)


def seek_target(offset: OffsetLike) -> OffsetAndMetadata:
    """Returns the offset to seek to, with its leader epoch."""
    try:
        target = to_offset(offset)
    except TypeError:
        target = None
    if target is None or target.offset < 0:
        raise ValueError(f"the seek offset must be an int and must not be negative, not {offset!r}")
    return target
