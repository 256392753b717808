from typing import Any

from headrace.common.types import Buffer
from headrace.records._batch import BatchRecords, RecordBatch
from headrace.records.compression import Compression

class OwnedBuffer:
    def __len__(self) -> int: ...

class BinaryColumn:
    offsets: OwnedBuffer
    data: OwnedBuffer
    validity: OwnedBuffer
    length: int
    nulls: int

class ColumnDecoder:
    keys: BinaryColumn
    values: BinaryColumn
    header_names: BinaryColumn
    header_values: BinaryColumn
    header_offsets: OwnedBuffer
    offsets: OwnedBuffer
    timestamps: OwnedBuffer
    timestamp_types: OwnedBuffer
    length: int
    def __init__(self, timestamp_scale: int = 1, size_hint: int = 0, rows_hint: int = 0) -> None: ...
    @property
    def size_in_bytes(self) -> int: ...
    def add(self, records: BatchRecords, min_offset: int = 0, max_records: int = ...) -> int: ...
    def add_all(
        self, batches: list[RecordBatch], min_offset: int, max_inflated_bytes: int, check_crcs: bool
    ) -> None: ...

class ColumnEncoder:
    def __init__(
        self,
        rows: int,
        keys: tuple[Any, Any, Any, int] | None,
        values: tuple[Any, Any, Any, int] | None,
        headers: tuple[Any, Any, int, Any, Any] | None,
        timestamps: Buffer | None,
        timestamps_shift: int = 0,
    ) -> None: ...
    def encode_all(
        self,
        *,
        default_timestamp: int,
        max_bytes: int,
        base_offset: int = 0,
        codec: Compression = ...,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        leader_epoch: int = -1,
        spare: list[bytearray] | None = None,
    ) -> list[bytearray]: ...
    def encode_next(
        self,
        *,
        default_timestamp: int,
        max_bytes: int,
        codec: Compression = ...,
        level: int | None = None,
        spare: list[bytearray] | None = None,
    ) -> bytearray | None: ...

def spare_bytes() -> int: ...
