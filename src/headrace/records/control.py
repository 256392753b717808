"""Control batches: the transaction markers that end a transaction in a partition.

A control batch has one record:

    key     version int16, type int16 (0 abort, 1 commit)
    value   version int16, coordinator epoch int32
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
    """The types of transaction markers. Kafka has other control records (of the quorum), which readers skip."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """A commit or abort marker."""

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
    """Encodes the control batch that commits or aborts a producer's open transaction."""
    if not -(2**31) <= coordinator_epoch < 2**31:
        raise ValueError(f"coordinator epoch {coordinator_epoch} does not fit 32 bits")
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
    """Returns the marker of a control batch; None for an empty batch and for control records of other types."""
    if len(records) == 0:
        return None
    key, value = records.key(0), records.value(0)
    if key is None or len(key) < _KEY.size:
        raise _malformed(records, f"a control record with invalid key {key!r}: expected a version and a type")
    control_id = _KEY.unpack_from(key)[1]
    if control_id not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise _malformed(records, f"a transaction marker with invalid value {value!r}: expected a version and an epoch")
    return EndTransactionMarker(ControlType(control_id), _VALUE.unpack_from(value)[1])


def _malformed(records: BatchRecords, problem: str) -> CorruptRecordError:
    position = records.batch.position
    return CorruptRecordError(f"batch at byte {position} has {problem}", position)
