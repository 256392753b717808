"""The record batch, format v2: a view of its header, and its validated records.

    offset  field                  type
         0  baseOffset             int64   assigned by the leader, outside the CRC
         8  batchLength            int32   of everything after this field
        12  partitionLeaderEpoch   int32   assigned by the leader, outside the CRC
        16  magic                  int8    2
        17  crc                    uint32  CRC-32C of everything after this field
        21  attributes             int16   bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
        23  lastOffsetDelta        int32   retained by compaction, so that offsets never decrease
        27  baseTimestamp          int64   or the delete horizon, if bit 6 is set (KIP-534)
        35  maxTimestamp           int64
        43  producerId             int64   -1 without idempotence
        51  producerEpoch          int16
        53  baseSequence           int32
        57  recordsCount           int32
        61  records                        compressed as one block if a codec is set

A RecordBatch does not copy: it keeps a reference to its buffer. The bytes are untrusted: the constructor checks length
and magic; `check_crc` and `records` check the rest.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.limits cimport INT_MAX
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy, memset

from headrace.records._wire cimport (
    ParseFault, load16, load32, load64, raise_fault, scan_records, store16, store32, store64, wrapping_add,
)

from headrace.common.errors import (
    CorruptRecordError, InflatedTooLargeError, InvalidRecordError, UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from headrace.records.checksum import crc32c as _crc32c
from headrace.records.compression import DEFAULT_MAX_INFLATED_BYTES, compress, decompress

BATCH_HEADER_BYTES = HEADER_BYTES
LOG_OVERHEAD_BYTES = 12
"""Base offset and length: the bytes that are needed to know the size of a batch."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

cdef enum:
    SMALLEST_RECORD = 7   # a length and six one-byte fields


def crc32c(data, uint32_t value=0) -> int:
    """Returns the CRC-32C of the bytes, continued from `value`."""
    return _crc32c(data, value)


cdef inline int64_t _last_offset(const uint8_t* p) noexcept nogil:
    """Returns the last offset. It wraps around for an invalid header, as in Java; `records` rejects such a header."""
    return wrapping_add(<int64_t>load64(p + AT_BASE_OFFSET), <int32_t>load32(p + AT_LAST_OFFSET_DELTA))


@cython.final
cdef class _Span:
    """A range of memory as a buffer. The one instance is reused, since a new memoryview takes longer than the CRC of a
    small batch. Thread-safe, since the GIL is held from setting the fields until the buffer is acquired."""

    cdef const uint8_t* p
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*>self.p, self.size, 1, flags)


cdef _Span _span = _Span()


cdef uint32_t crc_of(const uint8_t* p, Py_ssize_t size):
    _span.p = p
    _span.size = size
    return _crc32c(_span)


# ---- CRC of a changed header
#
# CRC-32C is linear: if a header H of a batch H + R becomes H', the CRC of the batch changes by (crc(H) ^ crc(H')) * x^(8 n)
# modulo the polynomial, where n is the size of R in bytes. So the records need not be read again.

cdef enum:
    POLYNOMIAL = 0x82F63B78u   # of CRC-32C; the lowest bit stands for x^31
    ONE = 0x80000000u          # x^0

cdef uint32_t _powers[32]      # x^(2^i)


cdef uint32_t _multiply(uint32_t a, uint32_t b) noexcept nogil:
    """Returns the product of two polynomials modulo the polynomial of CRC-32C."""
    cdef uint32_t product = 0, bit = ONE
    while bit:
        if a & bit:
            product ^= b
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return product


cdef void _fill_powers() noexcept:
    cdef int i
    _powers[0] = ONE >> 1
    for i in range(1, 32):
        _powers[i] = _multiply(_powers[i - 1], _powers[i - 1])


_fill_powers()


cdef uint32_t _shift_crc(uint32_t crc, Py_ssize_t size) noexcept nogil:
    """Returns the contribution of bytes with this CRC if `size` bytes follow them."""
    cdef int i = 3   # 8 bits per byte
    while size:
        if size & 1:
            crc = _multiply(_powers[i & 31], crc)
        size >>= 1
        i += 1
    return crc


@cython.final
@cython.freelist(64)
cdef class RecordBatch:
    """A view of the batch at `position` of a buffer.

    With `header_only`, the buffer need not contain the records, and only the header fields can be read.
    """

    def __cinit__(self, buffer, Py_ssize_t position=0, bint header_only=False):
        cdef Py_ssize_t available
        cdef int32_t length
        cdef int8_t magic
        PyObject_GetBuffer(buffer, &self._view, PyBUF_SIMPLE)
        self._held = True
        available = self._view.len - position if 0 <= position < self._view.len else 0
        if available < HEADER_BYTES:
            raise CorruptRecordError(
                f"batch at byte {position} is cut short: {available} bytes, expected at least {HEADER_BYTES}", position
            )
        self._p = <const uint8_t*>self._view.buf + position
        self.position = position
        magic = <int8_t>self._p[AT_MAGIC]
        if magic != 2:
            if magic == 0 or magic == 1:
                raise UnsupportedForMessageFormatError(
                    f"batch at byte {position} has magic {magic}; only record batches of magic 2 are supported"
                )
            raise CorruptRecordError(f"batch at byte {position} has magic {magic}, expected 2", position)
        length = <int32_t>load32(self._p + AT_LENGTH)
        if length < HEADER_BYTES - 12:
            raise CorruptRecordError(
                f"batch at byte {position} has length {length}, expected at least {HEADER_BYTES - 12}", position
            )
        self._header_only = header_only
        if length > available - 12 and not header_only:
            raise CorruptRecordError(
                f"batch at byte {position} has length {length} but only {available - 12} bytes are left", position
            )
        self.size_in_bytes = 12 + <Py_ssize_t>length

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    cdef int _need_all(self) except -1:
        if self._header_only:
            raise ValueError("this RecordBatch is a view of the header only; it has no records")
        return 0

    cdef inline int16_t _attributes(self) noexcept:
        return <int16_t>load16(self._p + AT_ATTRIBUTES)

    @property
    def base_offset(self): return <int64_t>load64(self._p + AT_BASE_OFFSET)

    @property
    def last_offset(self): return _last_offset(self._p)

    @property
    def next_offset(self): return wrapping_add(_last_offset(self._p), 1)

    @property
    def leader_epoch(self): return <int32_t>load32(self._p + AT_LEADER_EPOCH)

    @property
    def magic(self): return <int8_t>self._p[AT_MAGIC]

    @property
    def crc(self): return load32(self._p + AT_CRC)

    @property
    def attributes(self): return self._attributes()

    @property
    def codec(self):
        """The id of the codec; may be an undefined one (5 to 7)."""
        return self._attributes() & CODEC_MASK

    @property
    def is_compressed(self): return (self._attributes() & CODEC_MASK) != 0

    @property
    def is_log_append_time(self): return (self._attributes() & LOG_APPEND_TIME_BIT) != 0

    @property
    def is_transactional(self): return (self._attributes() & TRANSACTIONAL_BIT) != 0

    @property
    def is_control(self): return (self._attributes() & CONTROL_BIT) != 0

    @property
    def last_offset_delta(self): return <int32_t>load32(self._p + AT_LAST_OFFSET_DELTA)

    @property
    def base_timestamp(self): return <int64_t>load64(self._p + AT_BASE_TIMESTAMP)

    @property
    def max_timestamp(self): return <int64_t>load64(self._p + AT_MAX_TIMESTAMP)

    @property
    def delete_horizon_ms(self):
        """The time after which compaction may remove tombstones and markers (KIP-534); None if it is not set yet."""
        if self._attributes() & DELETE_HORIZON_BIT:
            return <int64_t>load64(self._p + AT_BASE_TIMESTAMP)
        return None

    @property
    def producer_id(self): return <int64_t>load64(self._p + AT_PRODUCER_ID)

    @property
    def producer_epoch(self): return <int16_t>load16(self._p + AT_PRODUCER_EPOCH)

    @property
    def base_sequence(self): return <int32_t>load32(self._p + AT_BASE_SEQUENCE)

    @property
    def last_sequence(self):
        """The sequence number of the last record. Sequence numbers wrap to 0 after 2^31 - 1."""
        cdef int32_t base = <int32_t>load32(self._p + AT_BASE_SEQUENCE)
        if base < 0:
            return base
        return (<int64_t>base + <int32_t>load32(self._p + AT_LAST_OFFSET_DELTA)) & INT_MAX

    @property
    def count(self):
        """The record count in the header."""
        return <int32_t>load32(self._p + AT_COUNT)

    @property
    def raw(self):
        """The whole batch as a read-only view."""
        return memoryview(self)

    def __getbuffer__(self, Py_buffer* view, int flags):
        self._need_all()
        PyBuffer_FillInfo(view, self, <void*>self._p, self.size_in_bytes, 1, flags)

    def __repr__(self):
        return (
            f"RecordBatch(offsets {self.base_offset} to {self.last_offset}, {self.count} records, "
            f"{self.size_in_bytes} bytes at {self.position})"
        )

    def check_crc(self):
        """Raises CorruptRecordError if the CRC does not match the bytes."""
        cdef uint32_t found
        self._need_all()
        found = crc_of(self._p + AT_ATTRIBUTES, self.size_in_bytes - AT_ATTRIBUTES)
        if found != load32(self._p + AT_CRC):
            raise CorruptRecordError(
                f"batch at byte {self.position} (base offset {self.base_offset}) is corrupt: "
                f"stored crc = {self.crc:#010x}, computed crc = {found:#010x}", self.position
            )

    def records(self, Py_ssize_t max_inflated_bytes=DEFAULT_MAX_INFLATED_BYTES):
        """Decompresses and validates all records."""
        return BatchRecords(self, max_inflated_bytes)

    cdef uint8_t* _writable(self) except NULL:
        self._need_all()
        if self._view.readonly:
            raise BufferError("cannot patch a batch in a read-only buffer")
        return <uint8_t*>self._p

    def patch_base_offset(self, int64_t base_offset):
        store64(self._writable() + AT_BASE_OFFSET, <uint64_t>base_offset)

    def patch_leader_epoch(self, int32_t leader_epoch):
        store32(self._writable() + AT_LEADER_EPOCH, <uint32_t>leader_epoch)

    def patch_max_timestamp(self, int64_t max_timestamp, bint log_append_time):
        """Sets the maximum timestamp and the timestamp type; updates the CRC if anything changed."""
        cdef uint8_t* p = self._writable()
        cdef int16_t attributes = self._attributes()
        cdef int16_t new_attributes = attributes & ~LOG_APPEND_TIME_BIT
        if log_append_time:
            new_attributes |= LOG_APPEND_TIME_BIT
        if new_attributes == attributes and <int64_t>load64(p + AT_MAX_TIMESTAMP) == max_timestamp:
            return
        cdef uint32_t old_crc = self._header_crc()
        store16(p + AT_ATTRIBUTES, <uint16_t>new_attributes)
        store64(p + AT_MAX_TIMESTAMP, <uint64_t>max_timestamp)
        self._update_crc(p, old_crc)

    def patch_producer(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional):
        """Sets the fields that a producer assigns when it sends the batch, and updates the CRC."""
        cdef uint8_t* p = self._writable()
        cdef int16_t attributes = self._attributes() & ~TRANSACTIONAL_BIT
        cdef uint32_t old_crc = self._header_crc()
        if transactional:
            attributes |= TRANSACTIONAL_BIT
        store16(p + AT_ATTRIBUTES, <uint16_t>attributes)
        store64(p + AT_PRODUCER_ID, <uint64_t>producer_id)
        store16(p + AT_PRODUCER_EPOCH, <uint16_t>producer_epoch)
        store32(p + AT_BASE_SEQUENCE, <uint32_t>base_sequence)
        self._update_crc(p, old_crc)

    cdef uint32_t _header_crc(self):
        """Returns the CRC of the part of the header that the batch's CRC covers."""
        return crc_of(self._p + AT_ATTRIBUTES, HEADER_BYTES - AT_ATTRIBUTES)

    cdef int _update_crc(self, uint8_t* p, uint32_t old_crc) except -1:
        """Updates the CRC after a change of the header. `old_crc` is the CRC of the header before. A wrong CRC stays
        wrong."""
        cdef uint32_t change = old_crc ^ self._header_crc()
        store32(p + AT_CRC, load32(p + AT_CRC) ^ _shift_crc(change, self.size_in_bytes - HEADER_BYTES))
        return 0


@cython.final
@cython.freelist(64)
cdef class BatchHeader:
    """A copy of the header at the start of a buffer. Only its size is checked.

    It is for unvalidated bytes from a client: magic and length may be invalid.
    """

    def __cinit__(self, buffer):
        cdef Py_buffer view
        cdef Py_ssize_t available
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        available = view.len
        if available >= HEADER_BYTES:
            memcpy(self._bytes, view.buf, HEADER_BYTES)
        PyBuffer_Release(&view)
        if available < HEADER_BYTES:
            raise CorruptRecordError(f"Batch is cut short: {available} bytes, expected at least {HEADER_BYTES}", 0)

    @property
    def base_offset(self): return <int64_t>load64(self._bytes + AT_BASE_OFFSET)

    @property
    def size_in_bytes(self):
        """The size of the whole batch according to the header."""
        return 12 + <int64_t><int32_t>load32(self._bytes + AT_LENGTH)

    @property
    def magic(self): return <int8_t>self._bytes[AT_MAGIC]

    @property
    def codec(self): return load16(self._bytes + AT_ATTRIBUTES) & CODEC_MASK

    @property
    def is_transactional(self): return (load16(self._bytes + AT_ATTRIBUTES) & TRANSACTIONAL_BIT) != 0

    @property
    def producer_id(self): return <int64_t>load64(self._bytes + AT_PRODUCER_ID)

    @property
    def producer_epoch(self): return <int16_t>load16(self._bytes + AT_PRODUCER_EPOCH)

    @property
    def base_sequence(self): return <int32_t>load32(self._bytes + AT_BASE_SEQUENCE)


@cython.final
@cython.freelist(64)
@cython.no_gc
cdef class BatchRecords:
    """The parsed and validated records of a batch, without a Python object for each.

    `len`, `offsets`, `timestamps`, `key` and `value` give access to single records; rows, columns and compaction use
    the parsed references directly.
    """

    def __cinit__(self, RecordBatch batch not None, Py_ssize_t max_inflated_bytes=DEFAULT_MAX_INFLATED_BYTES):
        cdef ParseFault fault
        cdef int outcome
        cdef int32_t last_offset_delta, i
        cdef int64_t base_timestamp
        cdef bint inflated = False
        batch._need_all()
        self.batch = batch
        self.base_offset = <int64_t>load64(batch._p + AT_BASE_OFFSET)
        self.count = <int32_t>load32(batch._p + AT_COUNT)
        last_offset_delta = <int32_t>load32(batch._p + AT_LAST_OFFSET_DELTA)
        if self.count < 0:
            raise CorruptRecordError(f"batch at byte {batch.position} claims {self.count} records", batch.position)
        if last_offset_delta < 0 or self.base_offset < 0:
            raise CorruptRecordError(
                f"batch at byte {batch.position} has base offset {self.base_offset} and last offset delta "
                f"{last_offset_delta}; neither may be negative", batch.position
            )
        if self.base_offset >= INT64_MAX - last_offset_delta:
            raise CorruptRecordError(
                f"batch at byte {batch.position} has base offset {self.base_offset} and last offset delta "
                f"{last_offset_delta}; the last offset exceeds 64 bits", batch.position
            )
        self.data = batch._p + HEADER_BYTES
        self.size = batch.size_in_bytes - HEADER_BYTES
        if self.count and batch._attributes() & CODEC_MASK:
            inflated = True
            self._inflate(max_inflated_bytes)
            if self.count * <Py_ssize_t>sizeof(RecordRef) > max_inflated_bytes:
                # Tiny records take more memory parsed than uncompressed.
                raise InflatedTooLargeError(
                    f"batch at byte {batch.position}: {self.count} records need more memory than the limit of "
                    f"{max_inflated_bytes} bytes", batch.position
                )
        if self.count > self.size // SMALLEST_RECORD:
            raise CorruptRecordError(
                f"batch at byte {batch.position} claims {self.count} records in {self.size} bytes", batch.position
            )
        self.refs = <RecordRef*>PyMem_RawMalloc((<Py_ssize_t>self.count + 1) * sizeof(RecordRef))
        if self.refs == NULL:
            raise MemoryError()
        memset(&fault, 0, sizeof(fault))
        base_timestamp = <int64_t>load64(batch._p + AT_BASE_TIMESTAMP)
        with nogil:
            outcome = scan_records(
                self.data, self.size, self.count, last_offset_delta, base_timestamp, self.refs, &fault
            )
        if outcome < 0:
            raise_fault(&fault, batch.position + HEADER_BYTES, inflated)
        if batch._attributes() & LOG_APPEND_TIME_BIT:
            base_timestamp = <int64_t>load64(batch._p + AT_MAX_TIMESTAMP)
            for i in range(self.count):
                self.refs[i].timestamp = base_timestamp

    cdef int _inflate(self, Py_ssize_t max_inflated_bytes) except -1:
        cdef RecordBatch batch = self.batch
        try:
            payload = decompress(
                batch.codec, PyMemoryView_FromMemory(<char*>self.data, self.size, PyBUF_READ),
                min(max_inflated_bytes, INT_MAX),
            )
        except CorruptRecordError as error:
            raise type(error)(f"batch at byte {batch.position}: {error}", batch.position) from error
        except UnsupportedCompressionTypeError as error:
            raise UnsupportedCompressionTypeError(f"batch at byte {batch.position}: {error}") from error
        PyObject_GetBuffer(payload, &self._view, PyBUF_SIMPLE)
        self._held = True
        self.data = <const uint8_t*>self._view.buf
        self.size = self._view.len
        return 0

    def __dealloc__(self):
        PyMem_RawFree(self.refs)
        if self._held:
            PyBuffer_Release(&self._view)

    def __len__(self):
        return self.count

    cdef RecordRef* _ref(self, Py_ssize_t index) except NULL:
        if not 0 <= index < self.count:
            raise IndexError(f"record {index} of {self.count}")
        return &self.refs[index]

    @property
    def inflated_bytes(self):
        """The uncompressed size of the records."""
        return self.size

    def offsets(self):
        cdef int32_t i
        return [self.base_offset + self.refs[i].offset_delta for i in range(self.count)]

    def timestamps(self):
        cdef int32_t i
        return [self.refs[i].timestamp for i in range(self.count)]

    def key(self, Py_ssize_t index):
        cdef RecordRef* ref = self._ref(index)
        if ref.key_len < 0:
            return None
        return PyBytes_FromStringAndSize(<const char*>self.data + ref.key_pos, ref.key_len)

    def value(self, Py_ssize_t index):
        cdef RecordRef* ref = self._ref(index)
        if ref.value_len < 0:
            return None
        return PyBytes_FromStringAndSize(<const char*>self.data + ref.value_pos, ref.value_len)

    def max_timestamp(self):
        """Returns the largest timestamp and the offset of the first record with it; None for an empty batch."""
        cdef int32_t i, best = 0
        if self.count == 0:
            return None
        for i in range(1, self.count):
            if self.refs[i].timestamp > self.refs[best].timestamp:
                best = i
        return self.refs[best].timestamp, self.base_offset + self.refs[best].offset_delta

    def first_at_or_after(self, int64_t timestamp, int64_t min_offset=0):
        """Returns timestamp and offset of the first record at or after both `timestamp` and `min_offset`."""
        cdef int32_t i
        for i in range(self.count):
            if self.refs[i].timestamp >= timestamp and self.base_offset + self.refs[i].offset_delta >= min_offset:
                return self.refs[i].timestamp, self.base_offset + self.refs[i].offset_delta
        return None

    def check_appendable(self):
        """Checks what a leader requires of a producer's batch: consecutive offsets.

        Returns the largest timestamp of the records, since the one in the header may be wrong.
        """
        cdef int32_t i
        cdef int64_t highest = NO_TIMESTAMP
        if self.batch.last_offset_delta != self.count - 1:
            raise InvalidRecordError(
                f"Batch has {self.count} records but last offset delta {self.batch.last_offset_delta}"
            )
        for i in range(self.count):
            if self.refs[i].offset_delta != i:
                raise InvalidRecordError(
                    f"Record {i} has offset delta {self.refs[i].offset_delta}; offsets must be consecutive"
                )
            if self.refs[i].timestamp > highest:
                highest = self.refs[i].timestamp
        return highest

    def without_keys(self, Py_ssize_t limit):
        """Returns the indexes of the first records without a key."""
        cdef int32_t i
        cdef list indexes = []
        for i in range(self.count):
            if self.refs[i].key_len < 0:
                if len(indexes) == limit:
                    break
                indexes.append(i)
        return indexes

    def outside(self, int64_t lowest, int64_t highest, Py_ssize_t limit):
        """Returns index and timestamp of the first records whose timestamp is set and outside of a range."""
        cdef int32_t i
        cdef int64_t timestamp
        cdef list found = []
        for i in range(self.count):
            timestamp = self.refs[i].timestamp
            if timestamp != NO_TIMESTAMP and not lowest <= timestamp <= highest:
                if len(found) == limit:
                    break
                found.append((i, timestamp))
        return found


cdef void _write_header(uint8_t* p, HeaderFields* fields) noexcept:
    """Writes all header fields except length and CRC."""
    store64(p + AT_BASE_OFFSET, <uint64_t>fields.base_offset)
    store32(p + AT_LEADER_EPOCH, <uint32_t>fields.leader_epoch)
    p[AT_MAGIC] = 2
    store16(p + AT_ATTRIBUTES, <uint16_t>fields.attributes)
    store32(p + AT_LAST_OFFSET_DELTA, <uint32_t>fields.last_offset_delta)
    store64(p + AT_BASE_TIMESTAMP, <uint64_t>fields.base_timestamp)
    store64(p + AT_MAX_TIMESTAMP, <uint64_t>fields.max_timestamp)
    store64(p + AT_PRODUCER_ID, <uint64_t>fields.producer_id)
    store16(p + AT_PRODUCER_EPOCH, <uint16_t>fields.producer_epoch)
    store32(p + AT_BASE_SEQUENCE, <uint32_t>fields.base_sequence)
    store32(p + AT_COUNT, <uint32_t>fields.count)


cdef void copy_fields(RecordBatch batch, HeaderFields* fields) noexcept:
    """Copies the header fields of an existing batch."""
    cdef const uint8_t* p = batch._p
    fields.base_offset = <int64_t>load64(p + AT_BASE_OFFSET)
    fields.leader_epoch = <int32_t>load32(p + AT_LEADER_EPOCH)
    fields.attributes = <int16_t>load16(p + AT_ATTRIBUTES)
    fields.last_offset_delta = <int32_t>load32(p + AT_LAST_OFFSET_DELTA)
    fields.base_timestamp = <int64_t>load64(p + AT_BASE_TIMESTAMP)
    fields.max_timestamp = <int64_t>load64(p + AT_MAX_TIMESTAMP)
    fields.producer_id = <int64_t>load64(p + AT_PRODUCER_ID)
    fields.producer_epoch = <int16_t>load16(p + AT_PRODUCER_EPOCH)
    fields.base_sequence = <int32_t>load32(p + AT_BASE_SEQUENCE)
    fields.count = <int32_t>load32(p + AT_COUNT)


cdef int check_base_offset(int64_t base_offset) except -1:
    """Raises ValueError if the offsets of a batch with this base offset may exceed 64 bits."""
    if not 0 <= base_offset < INT64_MAX - INT_MAX:
        raise ValueError(f"base offset {base_offset} is out of range: expected at least 0 and below 2^63 - 2^31")
    return 0


cdef int seal(bytearray batch) except -1:
    """Sets length and CRC of a finished batch."""
    cdef uint8_t* p = <uint8_t*>PyByteArray_AS_STRING(batch)
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(batch)
    if size - 12 > INT_MAX:
        raise ValueError(f"a batch of {size} bytes exceeds the format's 32-bit length")
    store32(p + AT_LENGTH, <uint32_t>(size - 12))
    store32(p + AT_CRC, crc_of(p + AT_ATTRIBUTES, size - AT_ATTRIBUTES))
    return 0


cdef bytearray finish_batch(HeaderFields* fields, bytearray raw, Py_ssize_t raw_size, object codec, object level):
    """Finishes the batch whose records are in `raw` after space for the header. Uses `raw` itself if not compressed."""
    cdef bytearray batch
    cdef Py_ssize_t size
    if not codec or fields.count == 0:
        batch = raw
        PyByteArray_Resize(batch, raw_size)
    else:
        records = PyMemoryView_FromMemory(
            PyByteArray_AS_STRING(raw) + HEADER_BYTES, raw_size - HEADER_BYTES, PyBUF_READ
        )
        packed = compress(codec, records, level)
        size = len(packed)
        batch = PyByteArray_FromStringAndSize(NULL, HEADER_BYTES + size)
        memoryview(batch)[HEADER_BYTES:] = packed
    fields.attributes = (fields.attributes & ~CODEC_MASK) | (<int16_t>codec if fields.count else 0)
    _write_header(<uint8_t*>PyByteArray_AS_STRING(batch), fields)
    seal(batch)
    return batch


def encode_empty_batch(RecordBatch batch not None) -> bytearray:
    """Returns the batch without records. Compaction writes it if it removes all records of a batch but must retain the
    producer's last sequence number or the end offset."""
    cdef HeaderFields fields
    copy_fields(batch, &fields)
    fields.attributes &= ~(CODEC_MASK | DELETE_HORIZON_BIT)
    fields.base_timestamp = NO_TIMESTAMP
    fields.count = 0
    return finish_batch(&fields, bytearray(HEADER_BYTES), HEADER_BYTES, 0, None)


def recompress(BatchRecords records not None, codec, level=None) -> bytearray:
    """Returns the same batch, compressed with another codec."""
    cdef HeaderFields fields
    cdef bytearray raw = PyByteArray_FromStringAndSize(NULL, HEADER_BYTES + records.size)
    copy_fields(records.batch, &fields)
    memcpy(PyByteArray_AS_STRING(raw) + HEADER_BYTES, records.data, records.size)
    return finish_batch(&fields, raw, PyByteArray_GET_SIZE(raw), codec, level)


def split_batches(buffer, Py_ssize_t position=0, bint allow_partial=False):
    """Returns views of the consecutive batches in a buffer.

    With `allow_partial`, an incomplete last batch (as at the end of a fetch response) is omitted; otherwise it raises
    CorruptRecordError.
    """
    cdef Py_buffer view
    cdef Py_ssize_t size, left
    cdef RecordBatch batch
    cdef list batches = []
    if position < 0:
        raise ValueError(f"position must not be negative: {position}")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        size = view.len
        while position < size:
            if allow_partial:
                left = size - position
                if left < HEADER_BYTES:
                    break
                if <int32_t>load32(<const uint8_t*>view.buf + position + AT_LENGTH) > left - 12:
                    break
            batch = RecordBatch(buffer, position)
            batches.append(batch)
            position += batch.size_in_bytes
    finally:
        PyBuffer_Release(&view)
    return batches


def walk_headers(buffer, Py_ssize_t position, int64_t target_offset):
    """Finds the first batch at or after `position` with a last offset of at least `target_offset`. Reads only headers.

    Returns `(position, size, base offset, last offset, max timestamp)` of that batch, whose records need not be in the
    buffer, or the position where the buffer ended.
    """
    cdef Py_buffer view
    cdef const uint8_t* p
    cdef int64_t base_offset, last_offset
    cdef int32_t length
    if position < 0:
        raise ValueError(f"position must not be negative: {position}")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while view.len - position >= HEADER_BYTES:
            p = <const uint8_t*>view.buf + position
            length = <int32_t>load32(p + AT_LENGTH)
            if length < HEADER_BYTES - 12 or p[AT_MAGIC] != 2:
                raise CorruptRecordError(
                    f"no batch at byte {position}: length {length}, magic {<int8_t>p[AT_MAGIC]}", position
                )
            base_offset = <int64_t>load64(p + AT_BASE_OFFSET)
            last_offset = _last_offset(p)
            if last_offset >= target_offset:
                return (position, 12 + <Py_ssize_t>length, base_offset, last_offset, <int64_t>load64(p + AT_MAX_TIMESTAMP))
            position += 12 + <Py_ssize_t>length
    finally:
        PyBuffer_Release(&view)
    return position
