import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.telemetry.otlp import MAX_POINTS, MetricPoint, read_metrics
from headrace.common.errors import InvalidRecordError


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(field: int, key: str, value: bytes) -> bytes:
    return message(field, message(1, key.encode()) + message(2, value))


def metric(name: str, kind: int, *points: bytes) -> bytes:
    return message(2, message(1, name.encode()) + message(kind, b"".join(message(1, point) for point in points)))


def metrics_data(*metrics: bytes, resource: bytes = b"") -> bytes:
    return message(1, message(1, resource) + message(2, b"".join(metrics)))


AS_INT = varint(6 << 3 | 1) + struct.pack("<q", -5)
AS_DOUBLE = varint(4 << 3 | 1) + struct.pack("<d", 1.5)


def test_gauges_and_sums() -> None:
    data = metrics_data(
        metric("a.sum", 7, AS_INT + attribute(7, "topic", message(1, b"orders"))),
        metric("a.gauge", 5, AS_DOUBLE, AS_INT),
        metric("a.histogram", 9, AS_DOUBLE),
        resource=attribute(1, "group", message(1, b"billing")),
    )
    assert read_metrics(data) == [
        MetricPoint("a.sum", {"group": "billing", "topic": "orders"}, -5.0),
        MetricPoint("a.gauge", {"group": "billing"}, 1.5),
        MetricPoint("a.gauge", {"group": "billing"}, -5.0),
    ]


def test_kinds_of_attributes() -> None:
    point = (
        AS_INT
        + attribute(7, "flag", varint(2 << 3) + varint(1))
        + attribute(7, "number", varint(3 << 3) + varint((1 << 64) - 7))
        + attribute(7, "double", varint(4 << 3 | 1) + struct.pack("<d", 0.5))
    )
    (found,) = read_metrics(metrics_data(metric("a", 5, point)))
    assert found.attributes == {"flag": "true", "number": "-7", "double": "0.5"}


def test_number_of_points_is_limited() -> None:
    data = metrics_data(metric("a", 5, *[AS_INT] * (MAX_POINTS + 1)))
    with pytest.raises(InvalidRecordError, match=f"more than {MAX_POINTS} data points"):
        read_metrics(data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x0a\x05abc", id="length-beyond-the-end"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", id="endless-varint"),
        pytest.param(b"\x0b", id="unknown-wire-type"),
        pytest.param(b"\x09\x00", id="truncated-number"),
        pytest.param(b"\x80", id="truncated-varint"),
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        read_metrics(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for candidate in (data, metrics_data(data), metrics_data(metric("a", 5, data))):
        with suppress(InvalidRecordError):
            read_metrics(candidate)
