"""Control batches: the markers that end a transaction in a partition.

A control batch holds one record. Its key is `version int16, type int16` (0 abort, 1 commit); a marker's value is
`version int16, coordinator epoch int32`.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from headrace.common.errors import CorruptRecordError
from headrace.records._batch import BatchRecords
from headrace.records._rows import BatchBuilder

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types that end transactions. Kafka's log holds others (quorum control records); readers pass over them."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    control_type: ControlType
    coordinator_epoch: int


def encode_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that commits or aborts a producer's open transaction."""
    if not -(2**31) <= coordinator_epoch < 2**31:
        raise ValueError(f"a coordinator epoch has 32 bits, not {coordinator_epoch}")
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
        size_hint=128,
    )
    builder.append(_KEY.pack(0, control_type), _VALUE.pack(0, coordinator_epoch), timestamp)
    return builder.build()


def read_marker(records: BatchRecords) -> EndTransactionMarker | None:
    """The marker that a control batch holds; None for an empty batch and for control records of other types."""
    if len(records) == 0:
        return None
    key, value = records.key(0), records.value(0)
    if key is None or len(key) < _KEY.size:
        raise _malformed(records, f"a control record with key {key!r}, expected a version and a type")
    control_id = _KEY.unpack_from(key)[1]
    if control_id not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise _malformed(records, f"a transaction marker with value {value!r}, expected a version and an epoch")
    return EndTransactionMarker(ControlType(control_id), _VALUE.unpack_from(value)[1])


def _malformed(records: BatchRecords, what: str) -> CorruptRecordError:
    position = records.batch.position
    return CorruptRecordError(f"batch at byte {position} holds {what}", position)
