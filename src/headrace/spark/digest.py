"""A digest of the rows of a task, the same in whatever order and in whatever record batches they come.

Runs in tasks. By it, a task that runs again tells whether it has the rows that it had. It is no protection against
somebody who wants two sets of rows to look alike.

Invariant: what of a row is written (key, value, headers, topic, partition) is in it, a null differs from what is empty,
and nothing else is in it; so it does not depend on how Spark cuts rows into record batches.
"""

import pyarrow as pa

from headrace.spark._digest import fold_bytes, fold_ints, fold_lists, total

__all__ = ["RowDigest"]

_MASK = 2**64 - 1


class RowDigest:
    """Of record batches with columns as `columns.normalize` makes them: how many rows, and their digest."""

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
        raise TypeError(f"there is no digest for a column of {kind}")


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
