from collections.abc import Iterable, Sequence
from typing import Any

from headrace.records._batch import BatchRecords
from headrace.records.compression import Compression

_Headers = Sequence[tuple[str, bytes | None]]

class Record:
    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = -1,
        headers: _Headers = (),
        offset: int = -1,
        timestamp_type: int = 0,
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def timestamp_type(self) -> int: ...

class BatchBuilder:
    def __init__(
        self,
        *,
        base_offset: int = 0,
        codec: Compression = ...,
        level: int | None = None,
        log_append_time: bool = False,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
        size_hint: int = 4096,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def size_in_bytes(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = -1,
        headers: _Headers | None = None,
        offset: int = -1,
    ) -> int: ...
    def build(self) -> bytearray: ...

def decode_rows(records: BatchRecords, min_offset: int = 0) -> list[Record]: ...
def encode_rows(
    rows: Iterable[tuple[bytes | None, bytes | None, int, _Headers | None]], **fields: Any
) -> bytearray: ...
