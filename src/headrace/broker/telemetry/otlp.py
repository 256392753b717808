"""Reads OpenTelemetry's MetricsData message, which clients push: numbers with names and attributes.

    MetricsData      1: ResourceMetrics   → 2: ScopeMetrics → 2: Metric
    ResourceMetrics  1: Resource          → 1: KeyValue
    Metric           1: name   5: gauge   7: sum   (both: 1: NumberDataPoint)
    NumberDataPoint  4: double   6: sfixed64   7: KeyValue
    KeyValue         1: key   2: AnyValue (1: string   2: bool   3: int   4: double)

Kafka's clients push only gauges and sums; other kinds are skipped. Each length is checked against the bytes that are
left, and the number of data points is limited.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headrace.common.errors import InvalidRecordError

MAX_POINTS = 20_000
_MAX_TEXT = 1000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_double = struct.Struct("<d").unpack
_sfixed64 = struct.Struct("<q").unpack


class MetricPoint(NamedTuple):
    """One number of a client."""

    name: str
    attributes: dict[str, str]
    value: float


def read_metrics(data: bytes) -> list[MetricPoint]:
    """Returns all numbers of a MetricsData message. Raises InvalidRecordError."""
    points: list[MetricPoint] = []
    for resource_metrics in _messages(data, 1):
        resource = next(iter(_messages(resource_metrics, 1)), b"")
        common = _attributes(resource, 1)
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                _read_metric(metric, common, points)
    return points


def _read_metric(metric: bytes, common: dict[str, str], points: list[MetricPoint]) -> None:
    name = next((_text(value) for value in _messages(metric, 1)), "")
    for kind in (5, 7):
        for numbers in _messages(metric, kind):
            for point in _messages(numbers, 1):
                if len(points) == MAX_POINTS:
                    raise InvalidRecordError(f"The pushed metrics have more than {MAX_POINTS} data points")
                value = _value(point)
                if name and value is not None:
                    points.append(MetricPoint(name, common | _attributes(point, 7), value))


def _value(point: bytes) -> float | None:
    for field, kind, value in _fields(point):
        if kind == _FIXED64 and isinstance(value, bytes):
            if field == 4:
                number: float = _double(value)[0]
                return number
            if field == 6:
                return float(_sfixed64(value)[0])
    return None


def _attributes(message: bytes, field: int) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for key_value in _messages(message, field):
        key = next((_text(value) for value in _messages(key_value, 1)), "")
        for any_value in _messages(key_value, 2):
            for number, kind, value in _fields(any_value):
                if number == 1 and isinstance(value, bytes):
                    attributes[key] = _text(value)
                elif number == 2:
                    attributes[key] = "true" if value else "false"
                elif number == 3 and isinstance(value, int):
                    attributes[key] = str(value - (1 << 64) if value >> 63 else value)
                elif number == 4 and kind == _FIXED64 and isinstance(value, bytes):
                    attributes[key] = repr(_double(value)[0])
    return attributes


def _messages(message: bytes, field: int) -> Iterator[bytes]:
    """Yields the values of a field of type bytes, text or message."""
    for number, kind, value in _fields(message):
        if number == field and kind == _BYTES and isinstance(value, bytes):
            yield value


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yields number, wire type and value of each field."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield number, kind, value
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise InvalidRecordError(f"The pushed metrics have an unknown wire type {kind}")
        if size > end - position:
            raise InvalidRecordError("The pushed metrics are truncated")
        yield number, kind, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(message):
            raise InvalidRecordError("The pushed metrics are truncated")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise InvalidRecordError("The pushed metrics have an invalid number")


def _text(value: bytes) -> str:
    return value[:_MAX_TEXT].decode(errors="replace")
