# Varints and the record parser, shared by the compiled modules. See _wire.pyx for the layout.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t hr_load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t hr_load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t hr_load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void hr_store16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void hr_store32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void hr_store64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    /* The size of a varint: the number of bits divided by seven, rounded up, without a loop. */
    static inline int hr_size_of_unsigned(uint64_t v) { return ((63 - __builtin_clzll(v | 1)) * 9 + 73) / 64; }
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "Headrace's kernel is written for little-endian machines"
    #endif
    """
    uint16_t load16 "hr_load16"(const uint8_t* p) noexcept nogil
    uint32_t load32 "hr_load32"(const uint8_t* p) noexcept nogil
    uint64_t load64 "hr_load64"(const uint8_t* p) noexcept nogil
    void store16 "hr_store16"(uint8_t* p, uint16_t v) noexcept nogil
    void store32 "hr_store32"(uint8_t* p, uint32_t v) noexcept nogil
    int size_of_unsigned "hr_size_of_unsigned"(uint64_t v) noexcept nogil
    void store64 "hr_store64"(uint8_t* p, uint64_t v) noexcept nogil


# One parsed record. Positions are relative to the start of the (uncompressed) records; a length of -1 is a null.
cdef struct RecordRef:
    int64_t timestamp
    int32_t offset_delta
    int32_t start           # of the record's length
    int32_t rest            # of what follows the timestamp delta
    int32_t end
    int32_t key_pos
    int32_t key_len
    int32_t value_pos
    int32_t value_len
    int32_t headers_pos     # of the first header, after the count
    int32_t headers_count


cdef struct HeaderRef:
    int32_t key_pos
    int32_t key_len
    int32_t value_pos
    int32_t value_len


cdef enum Fault:
    FAULT_NONE = 0
    FAULT_TRUNCATED
    FAULT_OVERLONG
    FAULT_NEGATIVE
    FAULT_PAST_END
    FAULT_TRAILING_IN_RECORD
    FAULT_TRAILING_IN_BATCH
    FAULT_MISSING_RECORDS
    FAULT_OFFSET_ORDER
    FAULT_OFFSET_BEYOND_LAST
    FAULT_HEADER_COUNT


cdef enum Field:
    FIELD_LENGTH = 0
    FIELD_ATTRIBUTES
    FIELD_TIMESTAMP
    FIELD_OFFSET
    FIELD_KEY
    FIELD_VALUE
    FIELD_HEADER_COUNT
    FIELD_HEADER_KEY
    FIELD_HEADER_VALUE


# Where and why parsing failed; converted to an exception once the GIL is held again.
cdef struct ParseFault:
    Fault fault
    Field field
    int32_t index
    int64_t position
    int64_t value
    int64_t limit


# 64-bit sums and differences that wrap around, as in Java; signed overflow is undefined in C.
cdef inline int64_t wrapping_add(int64_t left, int64_t right) noexcept nogil:
    return <int64_t>(<uint64_t>left + <uint64_t>right)


cdef inline int64_t wrapping_subtract(int64_t left, int64_t right) noexcept nogil:
    return <int64_t>(<uint64_t>left - <uint64_t>right)


cdef inline uint32_t zigzag32(int32_t value) noexcept nogil:
    return (<uint32_t>value << 1) ^ <uint32_t>(value >> 31)


cdef inline uint64_t zigzag64(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int32_t unzigzag32(uint32_t raw) noexcept nogil:
    return <int32_t>((raw >> 1) ^ (0 - (raw & 1)))


cdef inline int64_t unzigzag64(uint64_t raw) noexcept nogil:
    return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))


cdef inline int size_of_varint(int32_t value) noexcept nogil:
    return size_of_unsigned(zigzag32(value))


cdef inline int size_of_varlong(int64_t value) noexcept nogil:
    return size_of_unsigned(zigzag64(value))


cdef inline uint8_t* write_unsigned(uint8_t* p, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        p[0] = <uint8_t>(raw | 0x80)
        raw >>= 7
        p += 1
    p[0] = <uint8_t>raw
    return p + 1


cdef inline uint8_t* write_varint(uint8_t* p, int32_t value) noexcept nogil:
    return write_unsigned(p, zigzag32(value))


cdef inline uint8_t* write_varlong(uint8_t* p, int64_t value) noexcept nogil:
    return write_unsigned(p, zigzag64(value))


# Each reader moves `cursor` past the varint; on a fault, the cursor stays at its start.
cdef inline Fault read_varlong(const uint8_t** cursor, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef const uint8_t* p = cursor[0]
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while p < end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            return FAULT_OVERLONG
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = unzigzag64(raw)
            cursor[0] = p
            return FAULT_NONE
        shift += 7
        if shift > 63:
            return FAULT_OVERLONG
    return FAULT_TRUNCATED


cdef inline Fault read_varint(const uint8_t** cursor, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef const uint8_t* p = cursor[0]
    cdef uint32_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    if end - p >= 2:
        # Fast path for lengths and deltas below 8192, by far the most common.
        if p[0] < 0x80:
            out[0] = unzigzag32(p[0])
            cursor[0] = p + 1
            return FAULT_NONE
        if p[1] < 0x80:
            out[0] = unzigzag32((p[0] & 0x7F) | (<uint32_t>p[1] << 7))
            cursor[0] = p + 2
            return FAULT_NONE
    while p < end:
        byte = p[0]
        p += 1
        if shift == 28 and byte > 0x0F:
            return FAULT_OVERLONG
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = unzigzag32(raw)
            cursor[0] = p
            return FAULT_NONE
        shift += 7
        if shift > 28:
            return FAULT_OVERLONG
    return FAULT_TRUNCATED


cdef int scan_records(const uint8_t* data, Py_ssize_t size, int32_t count, int32_t last_offset_delta,
                      int64_t base_timestamp, RecordRef* refs, ParseFault* fault) noexcept nogil
cdef Fault next_header(const uint8_t* data, int32_t* position, int32_t end, HeaderRef* header,
                       ParseFault* fault) noexcept nogil
cdef object raise_fault(ParseFault* fault, Py_ssize_t base, bint inflated)
cdef int32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil
