"""Transaction markers."""

import pytest
from tests.support.records import reference_batch as reference

from headrace.common.errors import CorruptRecordError
from headrace.records import (
    BatchBuilder,
    ControlType,
    EndTransactionMarker,
    RecordBatch,
    encode_empty_batch,
    encode_marker,
    read_marker,
)
from headrace.records.arrow import decode_arrow


@pytest.mark.parametrize("control_type", ControlType)
def test_marker_has_kafka_format(control_type: ControlType) -> None:
    marker = encode_marker(
        control_type,
        producer_id=12,
        producer_epoch=3,
        coordinator_epoch=7,
        timestamp=1000,
        base_offset=50,
        leader_epoch=2,
    )
    row = reference.Row(b"\0\0\0" + bytes([control_type]), b"\0\0\0\0\0\x07", 1000, (), 50)
    assert marker == reference.encode(
        [row],
        base_offset=50,
        leader_epoch=2,
        producer_id=12,
        producer_epoch=3,
        transactional=True,
        control=True,
    )
    batch = RecordBatch(marker)
    assert (batch.is_control, batch.is_transactional, batch.base_sequence) == (True, True, -1)
    assert read_marker(batch.records()) == EndTransactionMarker(control_type, 7)


def control_records(key: bytes | None, value: bytes | None) -> object:
    builder = BatchBuilder(control=True, transactional=True)
    builder.append(key, value)
    return RecordBatch(b"elsewhere" + builder.build(), 9).records()


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_rejects_control_record_without_type(key: bytes | None) -> None:
    message = r"^batch at byte 9 has a control record with invalid key .*: expected a version and a type$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        read_marker(control_records(key, bytes(6)))
    assert raised.value.position == 9


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0"])
def test_rejects_marker_without_epoch(value: bytes | None) -> None:
    message = r"^batch at byte 9 has a transaction marker with invalid value .*: expected a version and an epoch$"
    with pytest.raises(CorruptRecordError, match=message) as raised:
        read_marker(control_records(bytes(4), value))
    assert raised.value.position == 9


@pytest.mark.parametrize("other_type", [2, 3, 6, 0x7FFF, 0xFFFF])
def test_skips_control_records_of_other_types(other_type: int) -> None:
    assert read_marker(control_records(b"\0\0" + other_type.to_bytes(2, "big"), None)) is None


def test_ignores_bytes_after_marker() -> None:
    records = control_records(b"\0\x01\0\x01more", b"\0\x01\0\0\0\x09more")
    assert read_marker(records) == EndTransactionMarker(ControlType.COMMIT, 9)


def test_empty_control_batch_has_no_marker() -> None:
    marker = encode_marker(ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5)
    empty = RecordBatch(encode_empty_batch(RecordBatch(marker)))
    assert (empty.is_control, empty.producer_id) == (True, 1)
    assert read_marker(empty.records()) is None


def test_skips_markers() -> None:
    marker = encode_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=5)
    assert decode_arrow([RecordBatch(marker)]).num_rows == 0
