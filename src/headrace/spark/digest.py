"""A digest of a task's rows that does not depend on their order or on how they are split into record batches.

Runs in tasks. A task that runs again compares digests to detect whether it has the same rows. The digest does not
protect against deliberate collisions.

Invariant: the digest covers exactly the written columns (key, value, headers, topic, partition), and a null differs
from an empty value.
"""

import pyarrow as pa

from headrace.spark._digest import fold_bytes, fold_ints, fold_lists, total

__all__ = ["RowDigest"]

_MASK = 2**64 - 1


class RowDigest:
    """The number of rows, and their digest, of record batches that `columns.normalize` returned."""

    def __init__(self) -> None:
        self.rows = 0
        self.value = 0

    def update(self, batch: pa.RecordBatch) -> None:
        hashes = bytearray(8 * batch.num_rows)
        for name in sorted(batch.schema.names):
            _fold(hashes, batch.column(name))
        self.rows += batch.num_rows
        self.value = (self.value + total(hashes, batch.num_rows)) & _MASK

    def __str__(self) -> str:
        return f"{self.value:016x}"


def _fold(hashes: bytearray, column: pa.Array) -> None:
    kind = column.type
    rows = len(column)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        validity, offsets, data = column.buffers()
        fold_bytes(hashes, rows, validity, offsets, data, column.offset)
    elif pa.types.is_int32(kind):
        validity, data = column.buffers()
        fold_ints(hashes, rows, validity, data, column.offset)
    elif pa.types.is_list(kind):
        _fold_headers(hashes, column)
    else:
        raise TypeError(f"cannot compute a digest of a column of type {kind}")


def _fold_headers(hashes: bytearray, column: pa.ListArray) -> None:
    if len(column) == 0:
        return
    first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    items = column.values.slice(first, end - first)
    hashed = bytearray(8 * len(items))
    for child in items.flatten():
        _fold(hashed, child)
    buffers = column.buffers()
    fold_lists(hashes, len(column), buffers[0], buffers[1], column.offset, hashed, first)
