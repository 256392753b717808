"""Chooses the partition of each Arrow row and groups rows by partition, without Python objects per row.

Inputs and outputs are buffers: like `records._columns`, this module depends on Arrow's memory layout, not on pyarrow.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from headrace.records._wire cimport murmur2_of


cdef class _View:
    """A buffer of at least `min_bytes`, released when this object is deleted."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer, Py_ssize_t min_bytes):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        if self.view.len < min_bytes:
            raise ValueError(f"An Arrow buffer has {self.view.len} bytes, but its column needs {min_bytes}")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def choose_partitions(Py_ssize_t rows, int32_t partition_count, int32_t fallback, partitions, keys) -> bytearray:
    """Returns the partition of each row as a buffer of int32.

    `partitions` is None or a buffer of int32, with -1 for rows without an explicit partition. `keys` is None or
    `(validity or None, offsets, data, array offset)` of a binary column: without an explicit partition, the murmur2 hash
    of the key determines the partition. A row with neither goes to `fallback`.
    """
    cdef bytearray chosen = PyByteArray_FromStringAndSize(NULL, 4 * rows)
    cdef int32_t* out = <int32_t*>PyByteArray_AS_STRING(chosen)
    cdef const int32_t* explicit = NULL
    cdef const int32_t* offsets = NULL
    cdef const uint8_t* data = NULL
    cdef const uint8_t* bitmap = NULL
    cdef Py_ssize_t array_offset = 0, row, slot, data_size = 0, bad_row = -1
    cdef int32_t partition, start, size
    cdef list held = []
    if partition_count <= 0:
        raise ValueError(f"partition_count={partition_count} is not valid: expected at least one")
    if partitions is not None:
        view = _View(partitions, 4 * rows)
        held.append(view)
        explicit = <const int32_t*>(<_View>view).view.buf
    if keys is not None:
        validity, raw_offsets, raw_data, array_offset = keys
        view = _View(raw_offsets, 4 * (array_offset + rows + 1))
        held.append(view)
        offsets = <const int32_t*>(<_View>view).view.buf
        if raw_data is not None:
            view = _View(raw_data, 0)
            held.append(view)
            data = <const uint8_t*>(<_View>view).view.buf
            data_size = (<_View>view).view.len
        if validity is not None:
            view = _View(validity, (array_offset + rows + 7) // 8)
            held.append(view)
            bitmap = <const uint8_t*>(<_View>view).view.buf
    with nogil:
        for row in range(rows):
            partition = -1 if explicit == NULL else explicit[row]
            if partition < 0 and offsets != NULL:
                slot = row + array_offset
                if bitmap == NULL or (bitmap[slot >> 3] >> (slot & 7)) & 1:
                    start = offsets[slot]
                    size = offsets[slot + 1] - start
                    if start < 0 or size < 0 or <Py_ssize_t>start + size > data_size:
                        bad_row = row
                        break
                    partition = (murmur2_of(data + start, size) & 0x7FFFFFFF) % partition_count
            if partition >= partition_count:
                bad_row = row
                break
            out[row] = fallback if partition < 0 else partition
    if bad_row >= 0:
        raise ValueError(f"row {bad_row}: the partition does not exist, or the key is outside of its column's data")
    return chosen


def group_rows(bytearray chosen not None, int32_t partition_count):
    """Groups rows by partition and keeps their order within a partition.

    Returns a buffer of int64 row numbers, and for each partition with rows `(partition, first, end)`: its range in that
    buffer.
    """
    cdef Py_ssize_t rows = len(chosen) // 4, row, start = 0
    cdef const int32_t* partitions = <const int32_t*>PyByteArray_AS_STRING(chosen)
    cdef bytearray order = PyByteArray_FromStringAndSize(NULL, 8 * rows)
    cdef int64_t* out = <int64_t*>PyByteArray_AS_STRING(order)
    cdef bytearray counts = bytearray(8 * partition_count)
    cdef int64_t* ends = <int64_t*>PyByteArray_AS_STRING(counts)
    cdef int32_t partition
    cdef list groups = []
    for row in range(rows):
        if not 0 <= partitions[row] < partition_count:
            raise ValueError(f"row {row}: partition {partitions[row]} is not in a topic of {partition_count} partitions")
        ends[partitions[row]] += 1
    for partition in range(partition_count):
        if ends[partition]:
            groups.append((partition, start, start + ends[partition]))
            start, ends[partition] = start + ends[partition], start
    for row in range(rows):
        out[ends[partitions[row]]] = row
        ends[partitions[row]] += 1
    return order, groups
