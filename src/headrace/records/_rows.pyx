"""Records as Python objects: the row decoder and the batch builder.

The builder writes records into one growing buffer after space for the header, so that an uncompressed batch is finished
in place. It computes all sizes before it writes: an append that raises leaves the builder unchanged.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from headrace.records._batch cimport (
    CONTROL_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchRecords, HeaderFields, check_base_offset,
    finish_batch,
)
from headrace.records._record cimport RecordParts, body_size, bytes_of, encode_headers, fits, put_record
from headrace.records._wire cimport (
    FAULT_NONE, HeaderRef, ParseFault, RecordRef, next_header, raise_fault, wrapping_subtract,
)

from headrace.records.compression import Compression, check_level

cdef tuple _NO_HEADERS = ()
cdef object _NONE_CODEC = Compression.NONE


@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class Record:
    """A record. `headers` is a tuple of (name, value) pairs; `timestamp_type` is 0 (CreateTime) or 1 (LogAppendTime)."""

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef readonly int timestamp_type

    def __init__(self, key, value, int64_t timestamp=-1, headers=(), int64_t offset=-1, int timestamp_type=0):
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = tuple(headers)
        self.offset = offset
        self.timestamp_type = timestamp_type

    cdef tuple _fields(self):
        return self.key, self.value, self.timestamp, self.headers, self.offset, self.timestamp_type

    def __reduce__(self):
        return Record, self._fields()

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return (
            f"Record(key={self.key!r}, value={self.value!r}, timestamp={self.timestamp}, headers={self.headers!r}, "
            f"offset={self.offset}, timestamp_type={self.timestamp_type})"
        )


cdef tuple _decode_headers(BatchRecords records, RecordRef* ref):
    cdef HeaderRef header
    cdef ParseFault fault
    cdef int32_t position = ref.headers_pos, i
    cdef list found = []
    cdef const char* data = <const char*>records.data
    memset(&fault, 0, sizeof(fault))
    for i in range(ref.headers_count):
        if next_header(records.data, &position, ref.end, &header, &fault) != FAULT_NONE:
            raise_fault(&fault, 0, True)
        name = PyUnicode_DecodeUTF8(data + header.key_pos, header.key_len, "replace")
        value = None if header.value_len < 0 else PyBytes_FromStringAndSize(data + header.value_pos, header.value_len)
        found.append((name, value))
    return tuple(found)


def decode_rows(BatchRecords records not None, int64_t min_offset=0) -> list:
    """Returns the records from `min_offset` on."""
    cdef int32_t first = 0, i
    cdef RecordRef* ref
    cdef Record record
    cdef list rows
    cdef const char* data = <const char*>records.data
    cdef int timestamp_type = 1 if records.batch.is_log_append_time else 0
    while first < records.count and records.base_offset + records.refs[first].offset_delta < min_offset:
        first += 1
    rows = PyList_New(records.count - first)
    for i in range(first, records.count):
        ref = &records.refs[i]
        record = Record.__new__(Record)
        record.offset = records.base_offset + ref.offset_delta
        record.timestamp = ref.timestamp
        record.timestamp_type = timestamp_type
        if ref.key_len >= 0:
            record.key = PyBytes_FromStringAndSize(data + ref.key_pos, ref.key_len)
        if ref.value_len >= 0:
            record.value = PyBytes_FromStringAndSize(data + ref.value_pos, ref.value_len)
        record.headers = _NO_HEADERS if ref.headers_count == 0 else _decode_headers(records, ref)
        Py_INCREF(record)
        PyList_SET_ITEM(rows, i - first, record)
    return rows


@cython.final
cdef class BatchBuilder:
    """Builds one batch from records."""

    cdef HeaderFields _fields
    cdef bytearray _buffer
    cdef uint8_t* _p
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity
    cdef object _codec
    cdef object _level

    def __init__(self, *, int64_t base_offset=0, codec=_NONE_CODEC, level=None, bint log_append_time=False,
                 int64_t producer_id=-1, int16_t producer_epoch=-1, int32_t base_sequence=-1,
                 bint transactional=False, bint control=False, int32_t leader_epoch=-1, Py_ssize_t size_hint=4096):
        self._codec = Compression.from_id(codec)
        self._level = check_level(self._codec, level)
        check_base_offset(base_offset)
        memset(&self._fields, 0, sizeof(self._fields))
        self._fields.base_offset = base_offset
        self._fields.leader_epoch = leader_epoch
        self._fields.producer_id = producer_id
        self._fields.producer_epoch = producer_epoch
        self._fields.base_sequence = base_sequence
        self._fields.base_timestamp = -1
        self._fields.max_timestamp = -1
        self._fields.last_offset_delta = -1
        self._fields.attributes = (
            (LOG_APPEND_TIME_BIT if log_append_time else 0)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
        )
        self._capacity = max(size_hint, 256)
        self._buffer = bytearray()
        PyByteArray_Resize(self._buffer, self._capacity)
        self._p = <uint8_t*>PyByteArray_AS_STRING(self._buffer)
        self._size = HEADER_BYTES

    def __len__(self):
        return self._fields.count

    @property
    def size_in_bytes(self):
        """The current uncompressed size of the batch."""
        return self._size

    @property
    def next_offset(self):
        return self._fields.base_offset + self._fields.last_offset_delta + 1

    cdef int _reserve(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t wanted = self._size + size
        if wanted > INT_MAX:
            raise ValueError("the batch exceeds the format's 32-bit length")
        if wanted > self._capacity:
            self._capacity = max(wanted, 2 * self._capacity)
            PyByteArray_Resize(self._buffer, self._capacity)
            self._p = <uint8_t*>PyByteArray_AS_STRING(self._buffer)
        return 0

    def append(self, key, value, int64_t timestamp=-1, headers=None, int64_t offset=-1):
        """Adds a record and returns its size in bytes. Without `offset`, it gets the next offset."""
        cdef RecordParts parts
        cdef int64_t offset_delta, timestamp_delta
        cdef Py_ssize_t body, total
        cdef list encoded = None
        cdef uint8_t* p
        if timestamp < -1:
            raise ValueError(f"invalid timestamp {timestamp}: expected milliseconds since 1970, or -1 for none")
        parts.key = parts.value = NULL
        parts.headers_size = 0
        bytes_of(key, "key", &parts.key, &parts.key_size)
        bytes_of(value, "value", &parts.value, &parts.value_size)
        if headers:
            encoded = encode_headers(headers, &parts.headers_size)
        # Checked after the headers: iterating over them may run user code, even code that builds this batch.
        if self._buffer is None:
            raise RuntimeError("this batch is already built; create a new BatchBuilder")
        offset_delta = self._fields.last_offset_delta + 1 if offset < 0 else offset - self._fields.base_offset
        if offset_delta <= self._fields.last_offset_delta or offset_delta > INT_MAX:
            raise ValueError(f"offset {offset} must follow {self.next_offset - 1} within one batch")
        timestamp_delta = 0 if self._fields.count == 0 else wrapping_subtract(timestamp, self._fields.base_timestamp)
        # Larger sizes would not fit the format's 32 bits.
        if not fits(&parts):
            raise ValueError("the record's key, value or headers are too large for a batch")
        body = body_size(&parts, timestamp_delta, <int32_t>offset_delta, len(encoded) if encoded is not None else 0)
        self._reserve(body + 5)
        p = self._p + self._size
        total = put_record(p, &parts, body, timestamp_delta, <int32_t>offset_delta, encoded) - p
        self._size += total
        if self._fields.count == 0:
            self._fields.base_timestamp = timestamp
        if timestamp > self._fields.max_timestamp:
            self._fields.max_timestamp = timestamp
        self._fields.last_offset_delta = <int32_t>offset_delta
        self._fields.count += 1
        return total

    def build(self) -> bytearray:
        """Returns the finished batch. The builder accepts no more records."""
        cdef bytearray buffer = self._buffer
        if buffer is None:
            raise RuntimeError("this batch is already built; create a new BatchBuilder")
        if self._fields.count == 0:
            raise ValueError("a batch must have at least one record")
        batch = finish_batch(&self._fields, buffer, self._size, self._codec, self._level)
        self._buffer = None
        self._p = NULL
        return batch


def encode_rows(rows, **fields) -> bytearray:
    """Encodes `(key, value, timestamp, headers)` rows as one batch; keyword arguments are BatchBuilder's."""
    cdef BatchBuilder builder = BatchBuilder(**fields)
    for key, value, timestamp, headers in rows:
        builder.append(key, value, timestamp, headers)
    return builder.build()
