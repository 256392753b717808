"""Varints, murmur2 and the record parser: the module that reads untrusted bytes.

A record inside a batch of format v2:

    length          varint     of the rest of the record
    attributes      int8       unused
    timestampDelta  varlong    from the batch's base timestamp
    offsetDelta     varint     from the batch's base offset
    keyLength       varint     -1 is a null key
    key             bytes
    valueLength     varint     -1 is a null value, a tombstone
    value           bytes
    headerCount     varint
    headers         each: keyLength varint, key, valueLength varint (-1 is null), value

Varints are zigzag-encoded, seven bits per byte, low bits first: at most 5 bytes for 32 bits, 10 for 64.

`scan_records` is the only reader of this layout. It checks every length against the remaining bytes and fills an array
of RecordRef, so that rows, columns and compaction copy from positions that are known to be inside the buffer. It needs
no GIL and allocates nothing.
"""

from headrace.common.errors import CorruptRecordError

_FIELD_NAMES = (
    "length", "attributes", "timestamp delta", "offset delta", "key", "value", "header count", "header key",
    "header value",
)


cdef inline int _fail(ParseFault* fault, Fault kind, Field field, int64_t position, int64_t value,
                      int64_t limit) noexcept nogil:
    fault.fault = kind
    fault.field = field
    fault.position = position
    fault.value = value
    fault.limit = limit
    return -1


cdef inline int _read_bytes(const uint8_t* data, const uint8_t** cursor, const uint8_t* end, Field field, int lowest,
                            int32_t* position, int32_t* length, ParseFault* fault) noexcept nogil:
    """Reads a length and skips that many bytes; `lowest` is -1 if a null is allowed, else 0."""
    cdef const uint8_t* begin = cursor[0]
    cdef Fault kind = read_varint(cursor, end, length)
    if kind != FAULT_NONE:
        return _fail(fault, kind, field, begin - data, 0, end - begin)
    if length[0] < lowest:
        return _fail(fault, FAULT_NEGATIVE, field, begin - data, length[0], lowest)
    if length[0] > end - cursor[0]:
        return _fail(fault, FAULT_PAST_END, field, begin - data, length[0], end - cursor[0])
    position[0] = <int32_t>(cursor[0] - data)
    if length[0] > 0:
        cursor[0] += length[0]
    return 0


cdef Fault next_header(const uint8_t* data, int32_t* position, int32_t end, HeaderRef* header,
                       ParseFault* fault) noexcept nogil:
    """Reads the header at `position` and advances it."""
    cdef const uint8_t* cursor = data + position[0]
    cdef const uint8_t* limit = data + end
    if (_read_bytes(data, &cursor, limit, FIELD_HEADER_KEY, 0, &header.key_pos, &header.key_len, fault) < 0
            or _read_bytes(data, &cursor, limit, FIELD_HEADER_VALUE, -1, &header.value_pos, &header.value_len, fault) < 0):
        return fault.fault
    position[0] = <int32_t>(cursor - data)
    return FAULT_NONE


cdef int scan_records(const uint8_t* data, Py_ssize_t size, int32_t count, int32_t last_offset_delta,
                      int64_t base_timestamp, RecordRef* refs, ParseFault* fault) noexcept nogil:
    """Parses `count` records that must fill exactly `size` bytes (below 2 GiB). Returns 0, or -1 with `fault` set."""
    cdef const uint8_t* cursor = data
    cdef const uint8_t* batch_end = data + size
    cdef const uint8_t* begin
    cdef const uint8_t* end
    cdef RecordRef* ref
    cdef HeaderRef header
    cdef Fault kind
    cdef int32_t index, length, header_index, position, previous_delta = -1
    cdef int64_t timestamp_delta
    for index in range(count):
        ref = &refs[index]
        fault.index = index
        begin = cursor
        if cursor == batch_end:
            return _fail(fault, FAULT_MISSING_RECORDS, FIELD_LENGTH, size, index, count)
        kind = read_varint(&cursor, batch_end, &length)
        if kind != FAULT_NONE:
            return _fail(fault, kind, FIELD_LENGTH, begin - data, 0, batch_end - begin)
        if length < 0:
            return _fail(fault, FAULT_NEGATIVE, FIELD_LENGTH, begin - data, length, 0)
        if length > batch_end - cursor:
            return _fail(fault, FAULT_PAST_END, FIELD_LENGTH, begin - data, length, batch_end - cursor)
        end = cursor + length
        ref.start = <int32_t>(begin - data)
        ref.end = <int32_t>(end - data)
        if length < 1:
            return _fail(fault, FAULT_TRUNCATED, FIELD_ATTRIBUTES, cursor - data, 0, 0)
        cursor += 1

        begin = cursor
        kind = read_varlong(&cursor, end, &timestamp_delta)
        if kind != FAULT_NONE:
            return _fail(fault, kind, FIELD_TIMESTAMP, begin - data, 0, end - begin)
        ref.timestamp = wrapping_add(base_timestamp, timestamp_delta)
        ref.rest = <int32_t>(cursor - data)

        begin = cursor
        kind = read_varint(&cursor, end, &ref.offset_delta)
        if kind != FAULT_NONE:
            return _fail(fault, kind, FIELD_OFFSET, begin - data, 0, end - begin)
        if ref.offset_delta <= previous_delta:
            return _fail(fault, FAULT_OFFSET_ORDER, FIELD_OFFSET, begin - data, ref.offset_delta, previous_delta)
        if ref.offset_delta > last_offset_delta:
            return _fail(fault, FAULT_OFFSET_BEYOND_LAST, FIELD_OFFSET, begin - data, ref.offset_delta,
                         last_offset_delta)
        previous_delta = ref.offset_delta

        if (_read_bytes(data, &cursor, end, FIELD_KEY, -1, &ref.key_pos, &ref.key_len, fault) < 0
                or _read_bytes(data, &cursor, end, FIELD_VALUE, -1, &ref.value_pos, &ref.value_len, fault) < 0):
            return -1

        begin = cursor
        kind = read_varint(&cursor, end, &ref.headers_count)
        if kind != FAULT_NONE:
            return _fail(fault, kind, FIELD_HEADER_COUNT, begin - data, 0, end - begin)
        if ref.headers_count < 0:
            return _fail(fault, FAULT_NEGATIVE, FIELD_HEADER_COUNT, begin - data, ref.headers_count, 0)
        if ref.headers_count > (end - cursor) // 2:
            return _fail(fault, FAULT_HEADER_COUNT, FIELD_HEADER_COUNT, begin - data, ref.headers_count, end - cursor)
        ref.headers_pos = <int32_t>(cursor - data)
        if ref.headers_count > 0:
            position = ref.headers_pos
            for header_index in range(ref.headers_count):
                if next_header(data, &position, ref.end, &header, fault) != FAULT_NONE:
                    return -1
            cursor = data + position
        if cursor != end:
            return _fail(fault, FAULT_TRAILING_IN_RECORD, FIELD_LENGTH, cursor - data, end - cursor, 0)
    if cursor != batch_end:
        fault.index = count
        return _fail(fault, FAULT_TRAILING_IN_BATCH, FIELD_LENGTH, cursor - data, batch_end - cursor, 0)
    return 0


cdef object raise_fault(ParseFault* fault, Py_ssize_t base, bint inflated):
    """Raises CorruptRecordError with what is wrong and where. `base` is the position of the records in the buffer."""
    cdef Fault kind = fault.fault
    field = _FIELD_NAMES[<int>fault.field]
    # A position in the uncompressed records is not a position in the caller's buffer.
    position = fault.position if inflated else base + fault.position
    where = f"byte {position}{' of the inflated records' if inflated else ''}"
    record = f"record {fault.index}, {field} at {where}"
    if kind == FAULT_TRUNCATED:
        text = f"{record}: cut short, {fault.limit} bytes left"
    elif kind == FAULT_OVERLONG:
        text = f"{record}: varint is too long"
    elif kind == FAULT_NEGATIVE:
        text = f"{record}: {fault.value} is below {fault.limit}"
    elif kind == FAULT_PAST_END:
        text = f"{record}: length {fault.value} but only {fault.limit} bytes are left"
    elif kind == FAULT_HEADER_COUNT:
        text = f"{record}: claims {fault.value} headers in {fault.limit} bytes"
    elif kind == FAULT_OFFSET_ORDER:
        text = f"{record}: {fault.value} does not follow {fault.limit}"
    elif kind == FAULT_OFFSET_BEYOND_LAST:
        text = f"{record}: {fault.value} is beyond the batch's last offset delta {fault.limit}"
    elif kind == FAULT_TRAILING_IN_RECORD:
        text = f"record {fault.index} has {fault.value} trailing bytes at {where}"
    elif kind == FAULT_TRAILING_IN_BATCH:
        text = f"{fault.value} trailing bytes at {where}, after the last of {fault.index} records"
    else:
        text = f"the batch claims {fault.limit} records but ends after {fault.value}, at {where}"
    raise CorruptRecordError(text, position)


def encode_varint(int value) -> bytes:
    """Encodes a 32-bit zigzag varint: 1 to 5 bytes."""
    cdef uint8_t out[10]
    cdef uint8_t* end = write_varint(out, value)
    return out[:end - out]


def encode_varlong(int64_t value) -> bytes:
    """Encodes a 64-bit zigzag varint: 1 to 10 bytes."""
    cdef uint8_t out[10]
    cdef uint8_t* end = write_varlong(out, value)
    return out[:end - out]


cdef object _varint_error(Fault kind, Py_ssize_t position):
    what = "cut short" if kind == FAULT_TRUNCATED else "too long"
    return CorruptRecordError(f"varint at byte {position} is {what}", position)


def decode_varint(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Reads a 32-bit varint at `position`; returns the value and the position after it."""
    cdef int32_t value
    cdef Fault kind = FAULT_TRUNCATED
    cdef const uint8_t* cursor
    if 0 <= position < data.shape[0]:
        cursor = &data[position]
        kind = read_varint(&cursor, &data[0] + data.shape[0], &value)
    if kind != FAULT_NONE:
        raise _varint_error(kind, position)
    return value, cursor - &data[0]


def decode_varlong(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Reads a 64-bit varint at `position`; returns the value and the position after it."""
    cdef int64_t value
    cdef Fault kind = FAULT_TRUNCATED
    cdef const uint8_t* cursor
    if 0 <= position < data.shape[0]:
        cursor = &data[position]
        kind = read_varlong(&cursor, &data[0] + data.shape[0], &value)
    if kind != FAULT_NONE:
        raise _varint_error(kind, position)
    return value, cursor - &data[0]


cdef int32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Computes murmur2 with the seed of Kafka's producer. Words are little-endian, arithmetic wraps at 32 bits."""
    cdef uint32_t mixer = 0x5BD1E995
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t word
    cdef Py_ssize_t left = size
    while left >= 4:
        memcpy(&word, data, 4)
        word *= mixer
        word ^= word >> 24
        word *= mixer
        hashed *= mixer
        hashed ^= word
        data += 4
        left -= 4
    if left == 3:
        hashed ^= <uint32_t>data[2] << 16
    if left >= 2:
        hashed ^= <uint32_t>data[1] << 8
    if left >= 1:
        hashed ^= <uint32_t>data[0]
        hashed *= mixer
    hashed ^= hashed >> 13
    hashed *= mixer
    hashed ^= hashed >> 15
    return <int32_t>hashed


def murmur2(const uint8_t[::1] key not None) -> int:
    """Returns the signed 32-bit hash that Kafka's producer computes of a key."""
    if key.shape[0] == 0:
        return murmur2_of(NULL, 0)
    return murmur2_of(&key[0], key.shape[0])


def partition_for_key(const uint8_t[::1] key not None, int32_t partitions) -> int:
    """Returns the partition that Kafka's default partitioner selects for a key: murmur2 without sign bit, modulo."""
    if partitions <= 0:
        raise ValueError(f"partitions must be at least 1: {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
