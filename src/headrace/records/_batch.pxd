from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from headrace.records._wire cimport RecordRef

cdef enum:
    HEADER_BYTES = 61

    AT_BASE_OFFSET = 0
    AT_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_CRC = 17
    AT_ATTRIBUTES = 21
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_COUNT = 57

    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40


cdef class RecordBatch:
    cdef Py_buffer _view
    cdef bint _held
    cdef bint _header_only
    cdef const uint8_t* _p
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t size_in_bytes

    cdef inline int16_t _attributes(self) noexcept
    cdef int _need_all(self) except -1
    cdef uint8_t* _writable(self) except NULL
    cdef uint32_t _header_crc(self)
    cdef int _update_crc(self, uint8_t* p, uint32_t old_crc) except -1


cdef class BatchHeader:
    cdef uint8_t _bytes[HEADER_BYTES]


cdef class BatchRecords:
    cdef readonly RecordBatch batch
    cdef Py_buffer _view
    cdef bint _held
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef RecordRef* refs
    cdef int32_t count
    cdef int64_t base_offset

    cdef RecordRef* _ref(self, Py_ssize_t index) except NULL
    cdef int _inflate(self, Py_ssize_t max_inflated_bytes) except -1


# The fields of a header to be written, without length and CRC, which are computed from the finished batch.
cdef struct HeaderFields:
    int64_t base_offset
    int32_t leader_epoch
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count


cdef uint32_t crc_of(const uint8_t* p, Py_ssize_t size)
cdef void copy_fields(RecordBatch batch, HeaderFields* fields) noexcept
cdef int check_base_offset(int64_t base_offset) except -1
cdef int seal(bytearray batch) except -1
cdef bytearray finish_batch(HeaderFields* fields, bytearray raw, Py_ssize_t raw_size, object codec, object level)
