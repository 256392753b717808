"""Records as columns: converts batches to Arrow buffers and back, without a Python object per record.

This module uses Arrow's memory layout but not pyarrow: it works with plain buffers, which `headrace.records.arrow`
wraps. A binary column is an int32 array of n + 1 offsets, the bytes, and a validity bitmap (bit set: not null).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.limits cimport INT_MAX
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from headrace.records._batch cimport (
    CONTROL_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchRecords, HeaderFields, RecordBatch,
    check_base_offset, finish_batch,
)
from headrace.records._wire cimport (
    FAULT_NONE, HeaderRef, ParseFault, RecordRef, next_header, raise_fault, size_of_varint, size_of_varlong,
    wrapping_subtract, write_varint, write_varlong,
)

from headrace.common.errors import CorruptRecordError
from headrace.records.compression import Compression, check_level


cdef enum:
    SPARE = 16   # bytes after a destination that copy_short may overwrite


cdef inline void copy_short(uint8_t* out, const uint8_t* start, Py_ssize_t size, const uint8_t* end) noexcept nogil:
    """Copies mostly short data: 16 bytes inline, without a call, if the source has that many before `end`."""
    if size <= SPARE and end - start >= SPARE:
        memcpy(out, start, SPARE)
    else:
        memcpy(out, start, size)


# Memory of released columns, kept for reuse: the system clears new memory, and page faults take longer than filling it.
# Protected by the GIL.
cdef enum:
    SPARE_BLOCKS = 32
    SPARE_BLOCK_BYTES = 64 * 1024           # the allocator itself reuses smaller blocks
    SPARE_TOTAL_BYTES = 16 * 1024 * 1024

cdef uint8_t* _spare_data[SPARE_BLOCKS]
cdef Py_ssize_t _spare_sizes[SPARE_BLOCKS]
cdef int _spare_count = 0
cdef Py_ssize_t _spare_bytes = 0


cdef uint8_t* _take_spare(Py_ssize_t wanted, Py_ssize_t* size) noexcept:
    """Returns the smallest block of at least `wanted` and at most twice as many bytes; NULL if there is none."""
    global _spare_count, _spare_bytes
    cdef int i, best = -1
    cdef uint8_t* data
    for i in range(_spare_count):
        if wanted <= _spare_sizes[i] <= 2 * wanted and (best < 0 or _spare_sizes[i] < _spare_sizes[best]):
            best = i
    if best < 0:
        return NULL
    data = _spare_data[best]
    size[0] = _spare_sizes[best]
    _spare_count -= 1
    _spare_bytes -= size[0]
    _spare_data[best] = _spare_data[_spare_count]
    _spare_sizes[best] = _spare_sizes[_spare_count]
    return data


cdef void _give_spare(uint8_t* data, Py_ssize_t size) noexcept:
    global _spare_count, _spare_bytes
    if size < SPARE_BLOCK_BYTES or _spare_count == SPARE_BLOCKS or _spare_bytes + size > SPARE_TOTAL_BYTES:
        PyMem_RawFree(data)
        return
    _spare_data[_spare_count] = data
    _spare_sizes[_spare_count] = size
    _spare_count += 1
    _spare_bytes += size


def spare_bytes() -> int:
    """Returns the number of bytes kept for reuse."""
    return _spare_bytes


@cython.final
cdef class OwnedBuffer:
    """Memory that grows while it is filled and is then passed to Arrow, which keeps this object alive."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self):
        # Arrow does not accept a null pointer, not even for an empty buffer.
        self.reserve(64)

    def __dealloc__(self):
        _give_spare(self.data, self.capacity)

    cdef int reserve(self, Py_ssize_t extra) except -1:
        """Ensures space for `extra` more bytes."""
        cdef Py_ssize_t wanted = self.size + extra, capacity = 0
        cdef uint8_t* grown
        if wanted <= self.capacity:
            return 0
        wanted = max(wanted, 2 * self.capacity)
        if self.size <= SPARE_BLOCK_BYTES <= wanted:
            grown = _take_spare(wanted, &capacity)
            if grown != NULL:
                memcpy(grown, self.data, self.size)
                PyMem_RawFree(self.data)
                self.data = grown
                self.capacity = capacity
                return 0
        grown = <uint8_t*>PyMem_RawRealloc(self.data, wanted)
        if grown == NULL:
            raise MemoryError()
        self.data = grown
        self.capacity = wanted
        return 0

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size


@cython.final
cdef class BinaryColumn:
    """A column of nullable bytes under construction."""

    cdef readonly OwnedBuffer offsets
    cdef readonly OwnedBuffer data
    cdef readonly OwnedBuffer validity
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t nulls

    def __cinit__(self):
        self.offsets = OwnedBuffer()
        self.data = OwnedBuffer()
        self.validity = OwnedBuffer()
        self.offsets.reserve(4)
        (<int32_t*>self.offsets.data)[0] = 0
        self.offsets.size = 4

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        cdef Py_ssize_t bitmap_bytes = (self.length + rows + 7) // 8
        if self.data.size + size > INT_MAX:
            raise OverflowError("an Arrow column exceeds 2 GiB; call finish() earlier")
        self.offsets.reserve(4 * rows)
        self.data.reserve(size + SPARE)
        self.validity.reserve(bitmap_bytes - self.validity.size)
        if bitmap_bytes > self.validity.size:
            # Nulls are rare: reserved values count as valid, and a null clears its bit.
            memset(self.validity.data + self.validity.size, 0xFF, bitmap_bytes - self.validity.size)
            self.validity.size = bitmap_bytes
        return 0

    cdef inline void put(self, const uint8_t* start, int32_t size) noexcept nogil:
        """Adds one value; a size of -1 is null. The caller has reserved the space."""
        cdef uint8_t* bits
        if size < 0:
            self.nulls += 1
            bits = self.validity.data + (self.length >> 3)
            bits[0] = bits[0] & <uint8_t>~(1 << (self.length & 7))
        else:
            memcpy(self.data.data + self.data.size, start, size)
            self.data.size += size
        self.length += 1
        (<int32_t*>self.offsets.data)[self.length] = <int32_t>self.data.size
        self.offsets.size += 4

    cdef void put_all(self, const uint8_t* data, const uint8_t* end, const int32_t* field, int32_t rows) noexcept nogil:
        """Adds the keys or values of `rows` records. `field` points to position and length in the first RecordRef,
        `end` to the end of `data`. The caller has reserved the space."""
        cdef int32_t* offsets = <int32_t*>self.offsets.data + self.length + 1
        cdef uint8_t* out = self.data.data + self.data.size
        cdef const uint8_t* start
        cdef uint8_t* bits
        cdef Py_ssize_t written = self.data.size, row = self.length, nulls = 0
        cdef int32_t i, size
        for i in range(rows):
            size = field[1]
            if size < 0:
                nulls += 1
                bits = self.validity.data + ((row + i) >> 3)
                bits[0] = bits[0] & <uint8_t>~(1 << ((row + i) & 7))
            else:
                start = data + field[0]
                copy_short(out, start, size, end)
                out += size
                written += size
            offsets[i] = <int32_t>written
            field = <const int32_t*>(<const uint8_t*>field + sizeof(RecordRef))
        self.data.size = written
        self.nulls += nulls
        self.length += rows
        self.offsets.size += 4 * rows

    cdef void truncate(self, Py_ssize_t length, Py_ssize_t nulls) noexcept:
        """Removes all but the first `length` values, of which `nulls` are null."""
        self.length = length
        self.nulls = nulls
        self.offsets.size = 4 * (length + 1)
        self.data.size = (<int32_t*>self.offsets.data)[length]
        self.validity.size = (length + 7) // 8
        if length & 7:
            self.validity.data[length >> 3] |= <uint8_t>(0xFF << (length & 7))


cdef bint _is_ascii(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Returns True for ASCII, the usual case of header names. Python's decoder handles the others."""
    cdef Py_ssize_t i
    for i in range(size):
        if p[i] >= 0x80:
            return False
    return True


@cython.final
cdef class ColumnDecoder:
    """Fills the columns key, value, headers, offset, timestamp and timestamp type from parsed batches."""

    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn values
    cdef readonly BinaryColumn header_names
    cdef readonly BinaryColumn header_values
    cdef readonly OwnedBuffer header_offsets
    cdef readonly OwnedBuffer offsets
    cdef readonly OwnedBuffer timestamps
    cdef readonly OwnedBuffer timestamp_types
    cdef readonly Py_ssize_t length
    cdef int64_t _timestamp_scale

    def __cinit__(self, int64_t timestamp_scale=1, Py_ssize_t size_hint=0, Py_ssize_t rows_hint=0):
        if timestamp_scale < 1:
            raise ValueError(f"timestamp_scale must be at least 1: {timestamp_scale}")
        self._timestamp_scale = timestamp_scale
        self.keys = BinaryColumn()
        self.values = BinaryColumn()
        self.header_names = BinaryColumn()
        self.header_values = BinaryColumn()
        self.header_offsets = OwnedBuffer()
        self.offsets = OwnedBuffer()
        self.timestamps = OwnedBuffer()
        self.timestamp_types = OwnedBuffer()
        self.header_offsets.reserve(4)
        (<int32_t*>self.header_offsets.data)[0] = 0
        self.header_offsets.size = 4
        # Reserving space avoids growing, which copies. Most bytes are values.
        self.values.data.reserve(size_hint)
        self.keys.offsets.reserve(4 * rows_hint)
        self.values.offsets.reserve(4 * rows_hint)
        self.header_offsets.reserve(4 * rows_hint)
        self.offsets.reserve(8 * rows_hint)
        self.timestamps.reserve(8 * rows_hint)
        self.timestamp_types.reserve(4 * rows_hint)

    @property
    def size_in_bytes(self):
        """The bytes of keys and values so far. An Arrow column is limited to 2 GiB."""
        return self.keys.data.size + self.values.data.size

    def add(self, BatchRecords records not None, int64_t min_offset=0, Py_ssize_t max_records=INT_MAX):
        """Appends up to `max_records` records from `min_offset` on. Returns their number."""
        return self._add(records, min_offset, max_records)

    def add_all(self, list batches not None, int64_t min_offset, Py_ssize_t max_inflated_bytes, bint check_crcs):
        """Appends the records of many batches; skips control batches."""
        cdef RecordBatch batch
        for batch in batches:
            if batch is None:
                raise TypeError("expected a RecordBatch, not None")
            if check_crcs:
                batch.check_crc()
            if not batch._attributes() & CONTROL_BIT:
                self._add(BatchRecords(batch, max_inflated_bytes), min_offset, INT_MAX)

    cdef int32_t _add(self, BatchRecords records, int64_t min_offset, Py_ssize_t max_records) except -1:
        cdef int32_t first = 0, i, rows
        cdef Py_ssize_t key_bytes = 0, value_bytes = 0, header_count = 0
        cdef RecordRef* ref
        cdef int32_t* types
        cdef int64_t* offsets
        cdef int64_t* timestamps
        cdef int32_t timestamp_type = 1 if records.batch._attributes() & LOG_APPEND_TIME_BIT else 0
        cdef int64_t earliest = INT64_MIN // self._timestamp_scale, latest = INT64_MAX // self._timestamp_scale
        cdef int32_t too_far = -1
        cdef Py_ssize_t header_length = self.header_names.length, null_headers = self.header_values.nulls
        cdef Py_ssize_t header_offsets_size = self.header_offsets.size
        while first < records.count and records.base_offset + records.refs[first].offset_delta < min_offset:
            first += 1
        rows = <int32_t>min(<Py_ssize_t>(records.count - first), max_records)
        if rows <= 0:
            return 0
        with nogil:
            for i in range(first, first + rows):
                ref = &records.refs[i]
                if not earliest <= ref.timestamp <= latest:
                    too_far = i
                    break
                key_bytes += ref.key_len if ref.key_len > 0 else 0
                value_bytes += ref.value_len if ref.value_len > 0 else 0
                header_count += ref.headers_count
        if too_far >= 0:
            ref = &records.refs[too_far]
            raise CorruptRecordError(
                f"record {too_far} of the batch at byte {records.batch.position} has timestamp {ref.timestamp}, "
                f"which multiplied by {self._timestamp_scale} exceeds 64 bits", records.batch.position
            )
        self.keys.reserve(rows, key_bytes)
        self.values.reserve(rows, value_bytes)
        self.offsets.reserve(8 * rows)
        self.timestamps.reserve(8 * rows)
        self.timestamp_types.reserve(4 * rows)
        # Headers are the last step that can fail (replacing invalid UTF-8 needs more space); undo it on an error.
        try:
            self._add_headers(records, first, rows, header_count)
        except BaseException:
            self.header_names.truncate(header_length, 0)
            self.header_values.truncate(header_length, null_headers)
            self.header_offsets.size = header_offsets_size
            raise
        with nogil:
            offsets = <int64_t*>(self.offsets.data + self.offsets.size)
            timestamps = <int64_t*>(self.timestamps.data + self.timestamps.size)
            types = <int32_t*>(self.timestamp_types.data + self.timestamp_types.size)
            for i in range(rows):
                ref = &records.refs[first + i]
                offsets[i] = records.base_offset + ref.offset_delta
                timestamps[i] = ref.timestamp * self._timestamp_scale
                types[i] = timestamp_type
            self.keys.put_all(records.data, records.data + records.size, &records.refs[first].key_pos, rows)
            self.values.put_all(records.data, records.data + records.size, &records.refs[first].value_pos, rows)
            self.offsets.size += 8 * rows
            self.timestamps.size += 8 * rows
            self.timestamp_types.size += 4 * rows
            self.length += rows
        return rows

    cdef int _add_headers(self, BatchRecords records, int32_t first, int32_t rows, Py_ssize_t header_count) except -1:
        cdef int32_t i, j, position
        cdef RecordRef* ref
        cdef HeaderRef header
        cdef ParseFault fault
        cdef const uint8_t* data = records.data
        cdef int32_t* offsets
        cdef int32_t end
        cdef bytes name
        self.header_offsets.reserve(4 * rows)
        if header_count == 0:
            offsets = <int32_t*>(self.header_offsets.data + self.header_offsets.size)
            end = <int32_t>self.header_names.length
            for i in range(rows):
                offsets[i] = end
            self.header_offsets.size += 4 * rows
            return 0
        if self.header_names.length + header_count > INT_MAX:
            raise OverflowError("an Arrow column exceeds 2^31 headers; call finish() earlier")
        self.header_names.reserve(header_count, 0)
        self.header_values.reserve(header_count, 0)
        memset(&fault, 0, sizeof(fault))
        for i in range(first, first + rows):
            ref = &records.refs[i]
            position = ref.headers_pos
            for j in range(ref.headers_count):
                if next_header(data, &position, ref.end, &header, &fault) != FAULT_NONE:
                    raise_fault(&fault, 0, True)
                if _is_ascii(data + header.key_pos, header.key_len):
                    self.header_names.reserve(1, header.key_len)
                    self.header_names.put(data + header.key_pos, header.key_len)
                else:
                    # Arrow strings must be UTF-8; like the Java client, replace invalid bytes by U+FFFD.
                    name = PyUnicode_DecodeUTF8(
                        <const char*>data + header.key_pos, header.key_len, "replace"
                    ).encode("utf-8")
                    self.header_names.reserve(1, len(name))
                    self.header_names.put(<const uint8_t*><const char*>name, <int32_t>len(name))
                self.header_values.reserve(1, max(header.value_len, 0))
                self.header_values.put(data + header.value_pos, header.value_len)
            (<int32_t*>(self.header_offsets.data + self.header_offsets.size))[0] = <int32_t>self.header_names.length
            self.header_offsets.size += 4
        return 0


# A binary column of an Arrow array; bitmap NULL: no nulls.
cdef struct BinarySource:
    const uint8_t* bitmap
    const int32_t* offsets
    const uint8_t* data
    const uint8_t* end
    Py_ssize_t shift        # the array's offset into its buffers


cdef inline int32_t _source_length(BinarySource* source, Py_ssize_t row) noexcept nogil:
    """Returns the length of a value; -1 for a null or a missing column."""
    row += source.shift
    if source.offsets == NULL or (source.bitmap != NULL and not (source.bitmap[row >> 3] >> (row & 7)) & 1):
        return -1
    return source.offsets[row + 1] - source.offsets[row]


cdef inline uint8_t* _put_source(uint8_t* p, BinarySource* source, Py_ssize_t row) noexcept nogil:
    cdef int32_t size = _source_length(source, row)
    p = write_varint(p, size)
    if size > 0:
        copy_short(p, source.data + source.offsets[row + source.shift], size, source.end)
        p += size
    return p


cdef inline Py_ssize_t _source_size(BinarySource* source, Py_ssize_t row) noexcept nogil:
    """Returns the encoded size: length and data."""
    cdef int32_t size = _source_length(source, row)
    return size_of_varint(size) + (size if size > 0 else 0)


cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports


cdef bytearray _buffer(list spare, Py_ssize_t size):
    """Returns a buffer of `size` bytes with undefined content."""
    cdef bytearray buffer
    if spare:
        buffer = spare.pop()
        if not (<PyByteArrayObject*>buffer).ob_exports:  # else it is still in use
            PyByteArray_Resize(buffer, size)
            return buffer
    return PyByteArray_FromStringAndSize(NULL, size)



@cython.final
cdef class ColumnEncoder:
    """Encodes rows of Arrow buffers as batches.

    A binary column is `(validity or None, offsets, data, array offset)`; `headers` is `(validity or None, list offsets,
    array offset, names, values)`; a missing column is None. The constructor validates all offsets, so that encoding can
    trust them.
    """

    cdef Py_buffer _buffers[16]
    cdef int _held
    cdef BinarySource _keys, _values, _header_names, _header_values
    cdef const uint8_t* _list_bitmap
    cdef const int32_t* _list_offsets
    cdef Py_ssize_t _list_shift
    cdef const int64_t* _timestamps
    cdef Py_ssize_t _rows
    cdef Py_ssize_t _next   # the first row that `encode_next` has not encoded
    cdef int32_t* _sizes    # scratch: the record sizes of the current batch
    cdef Py_ssize_t _room

    def __cinit__(self, Py_ssize_t rows, keys, values, headers, timestamps, Py_ssize_t timestamps_shift=0):
        cdef Py_ssize_t count
        if rows < 0 or timestamps_shift < 0:
            raise ValueError(f"rows={rows} and timestamps_shift={timestamps_shift} must not be negative")
        self._rows = rows
        self._open_binary(&self._keys, keys, rows)
        self._open_binary(&self._values, values, rows)
        if headers is not None:
            validity, list_offsets, shift, names, header_values = headers
            self._list_shift = shift
            self._list_offsets = self._open_offsets(list_offsets, shift, rows)
            self._list_bitmap = self._open_bitmap(validity, shift + rows)
            count = self._list_offsets[shift + rows]
            self._open_binary(&self._header_names, names, count)
            self._open_binary(&self._header_values, header_values, count)
        if timestamps is not None:
            self._timestamps = (
                <const int64_t*>self._open(timestamps, 8 * (timestamps_shift + rows), 8) + timestamps_shift
            )

    def __dealloc__(self):
        cdef int i
        for i in range(self._held):
            PyBuffer_Release(&self._buffers[i])
        PyMem_RawFree(self._sizes)

    cdef const uint8_t* _open(self, object buffer, Py_ssize_t least, int alignment=1) except? NULL:
        cdef Py_buffer* view = &self._buffers[self._held]
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        if <uintptr_t>view.buf % alignment:
            # Arrow allows unaligned buffers, as in a received message; C does not. A copy is aligned.
            copy = PyBytes_FromStringAndSize(<const char*>view.buf, view.len)
            PyBuffer_Release(view)
            PyObject_GetBuffer(copy, view, PyBUF_SIMPLE)
        self._held += 1
        if view.len < least:
            raise ValueError(f"an Arrow buffer has {view.len} bytes, expected at least {least}")
        return <const uint8_t*>view.buf

    cdef const uint8_t* _open_bitmap(self, object buffer, Py_ssize_t bits) except? NULL:
        return NULL if buffer is None else self._open(buffer, (bits + 7) // 8)

    cdef const int32_t* _open_offsets(self, object buffer, Py_ssize_t shift, Py_ssize_t rows) except? NULL:
        cdef const int32_t* offsets
        cdef Py_ssize_t i, wrong = -1
        if shift < 0:
            raise ValueError(f"the offset of an Arrow array must not be negative: {shift}")
        offsets = <const int32_t*>self._open(buffer, 4 * (shift + rows + 1), 4)
        with nogil:
            for i in range(shift, shift + rows):
                if offsets[i] < 0 or offsets[i + 1] < offsets[i]:
                    wrong = i - shift
                    break
        if wrong >= 0:
            raise ValueError(f"Arrow offsets decrease at row {wrong}")
        return offsets

    cdef int _open_binary(self, BinarySource* source, object column, Py_ssize_t rows) except -1:
        if column is None or rows == 0:
            return 0
        validity, offsets, data, shift = column
        source.shift = shift
        source.offsets = self._open_offsets(offsets, source.shift, rows)
        source.bitmap = self._open_bitmap(validity, source.shift + rows)
        source.data = NULL if data is None else self._open(data, source.offsets[source.shift + rows])
        source.end = NULL if data is None else source.data + source.offsets[source.shift + rows]
        if data is None and source.offsets[source.shift + rows] > 0:
            raise ValueError("an Arrow column has offsets but no data")
        return 0

    cdef Py_ssize_t _headers_size(self, Py_ssize_t row, int32_t* first, int32_t* last) noexcept nogil:
        cdef Py_ssize_t size = 0, j
        first[0] = last[0] = 0
        row += self._list_shift
        if self._list_offsets != NULL and (
            self._list_bitmap == NULL or (self._list_bitmap[row >> 3] >> (row & 7)) & 1
        ):
            first[0] = self._list_offsets[row]
            last[0] = self._list_offsets[row + 1]
            for j in range(first[0], last[0]):
                size += _source_size(&self._header_names, j) + _source_size(&self._header_values, j)
        return size_of_varint(last[0] - first[0]) + size

    cdef Py_ssize_t _body_size(self, Py_ssize_t row, int64_t timestamp_delta, int32_t offset_delta) noexcept nogil:
        """Returns the size of a record without its length field."""
        cdef int32_t first, last
        return (
            1 + size_of_varlong(timestamp_delta) + size_of_varint(offset_delta)
            + _source_size(&self._keys, row) + _source_size(&self._values, row)
            + (1 if self._list_offsets == NULL else self._headers_size(row, &first, &last))
        )

    def encode_all(self, *, int64_t default_timestamp, Py_ssize_t max_bytes, int64_t base_offset=0,
                   codec=Compression.NONE, level=None, int64_t producer_id=-1, int16_t producer_epoch=-1,
                   int32_t base_sequence=-1, bint transactional=False, int32_t leader_epoch=-1,
                   list spare=None) -> list:
        """Encodes all rows as batches of at most `max_bytes` before compression, but at least one row.

        Offsets, and sequence numbers if there are any, continue from batch to batch. Buffers in `spare` are used first:
        the system clears new memory, which takes longer than writing a batch.
        """
        cdef HeaderFields fields
        cdef Py_ssize_t row = 0
        cdef list batches = []
        codec = Compression.from_id(codec)
        level = check_level(codec, level)
        check_base_offset(base_offset)
        memset(&fields, 0, sizeof(fields))
        fields.leader_epoch = leader_epoch
        fields.producer_id = producer_id
        fields.producer_epoch = producer_epoch
        fields.base_sequence = base_sequence
        while row < self._rows:
            fields.base_offset = base_offset + row
            fields.attributes = TRANSACTIONAL_BIT if transactional else 0
            batches.append(self._encode(&fields, row, default_timestamp, max_bytes, codec, level, spare))
            row += fields.count
            if fields.base_sequence >= 0:
                fields.base_sequence = <int32_t>((<int64_t>fields.base_sequence + fields.count) & INT_MAX)
        return batches

    def encode_next(self, *, int64_t default_timestamp, Py_ssize_t max_bytes, codec=Compression.NONE, level=None,
                    list spare=None) -> bytearray | None:
        """Encodes the next rows as a batch of at most `max_bytes`, as `encode_all` does, with offsets from 0.

        Returns None after the last row. So the caller needs memory for one batch only.
        """
        cdef HeaderFields fields
        if self._next >= self._rows:
            return None
        codec = Compression.from_id(codec)
        memset(&fields, 0, sizeof(fields))
        fields.leader_epoch = fields.producer_epoch = fields.base_sequence = -1
        fields.producer_id = -1
        batch = self._encode(
            &fields, self._next, default_timestamp, max_bytes, codec, check_level(codec, level), spare
        )
        self._next += fields.count
        return batch

    cdef bytearray _encode(self, HeaderFields* fields, Py_ssize_t row, int64_t default_timestamp, Py_ssize_t max_bytes,
                           object codec, object level, list spare):
        """Encodes a batch that starts with row `row`. Sets count and timestamps in `fields`."""
        cdef Py_ssize_t size
        cdef bytearray buffer
        cdef uint8_t* p
        self._reserve_sizes(max_bytes)
        size = self._measure(row, default_timestamp, max_bytes, fields)
        buffer = _buffer(spare, size + SPARE)
        p = <uint8_t*>PyByteArray_AS_STRING(buffer) + HEADER_BYTES
        with nogil:
            self._write(p, row, default_timestamp, fields)
        return finish_batch(fields, buffer, size, codec, level)

    cdef int _reserve_sizes(self, Py_ssize_t max_bytes) except -1:
        # A record has at least 7 bytes, so a batch has at most this many rows.
        cdef Py_ssize_t room = min(self._rows, max(max_bytes, 0) // 7 + 1)
        if room > self._room:
            PyMem_RawFree(self._sizes)
            self._room = 0
            self._sizes = <int32_t*>PyMem_RawMalloc((room + 1) * sizeof(int32_t))
            if self._sizes == NULL:
                raise MemoryError()
            self._room = room
        return 0

    cdef Py_ssize_t _measure(self, Py_ssize_t start, int64_t default_timestamp, Py_ssize_t max_bytes,
                             HeaderFields* fields) except -1:
        """Selects the rows of the batch that starts with row `start`. Sets count and timestamps in `fields` and the
        record sizes in the scratch. Returns the size of the batch."""
        cdef Py_ssize_t row = start, size = HEADER_BYTES, body = 0
        cdef Py_ssize_t end = min(self._rows, start + self._room)
        cdef int64_t timestamp, base_timestamp, highest
        cdef bint bad_timestamp = False
        with nogil:
            base_timestamp = highest = self._timestamps[start] if self._timestamps != NULL else default_timestamp
            while row < end:
                timestamp = self._timestamps[row] if self._timestamps != NULL else default_timestamp
                if timestamp < -1:
                    bad_timestamp = True
                    break
                body = self._body_size(row, wrapping_subtract(timestamp, base_timestamp), <int32_t>(row - start))
                if row > start and size + body + 5 > max_bytes:
                    break
                if body + 5 > INT_MAX - size:
                    break
                self._sizes[row - start] = <int32_t>body
                size += size_of_varint(<int32_t>body) + body
                if timestamp > highest:
                    highest = timestamp
                row += 1
        if bad_timestamp:
            raise ValueError(
                f"row {row}: invalid timestamp {timestamp}, expected milliseconds since 1970, or -1 for none"
            )
        if row == start:
            raise ValueError(f"row {row} exceeds the format's 32-bit length")
        fields.base_timestamp = base_timestamp
        fields.max_timestamp = highest
        fields.count = <int32_t>(row - start)
        fields.last_offset_delta = fields.count - 1
        return size

    cdef void _write(self, uint8_t* p, Py_ssize_t start, int64_t default_timestamp, HeaderFields* fields) noexcept nogil:
        """Writes the measured records."""
        cdef int32_t index, first, last
        cdef Py_ssize_t j
        cdef int64_t timestamp = default_timestamp
        for index in range(fields.count):
            if self._timestamps != NULL:
                timestamp = self._timestamps[start + index]
            p = write_varint(p, self._sizes[index])
            p[0] = 0
            p = write_varlong(p + 1, wrapping_subtract(timestamp, fields.base_timestamp))
            p = write_varint(p, index)
            p = _put_source(p, &self._keys, start + index)
            p = _put_source(p, &self._values, start + index)
            if self._list_offsets == NULL:
                p[0] = 0
                p += 1
                continue
            self._headers_size(start + index, &first, &last)
            p = write_varint(p, last - first)
            for j in range(first, last):
                p = _put_source(p, &self._header_names, j)
                p = _put_source(p, &self._header_values, j)
