# Encoding of one record. See _wire.pyx for the layout.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from headrace.records._wire cimport size_of_varint, size_of_varlong, write_varint, write_varlong


# The parts of a record; a size of -1 is None. `headers_size` is the encoded size of the headers. The caller keeps the
# objects alive that this points to.
cdef struct RecordParts:
    const char* key
    Py_ssize_t key_size
    const char* value
    Py_ssize_t value_size
    Py_ssize_t headers_size


cdef enum:
    LONGEST_FRAME = 5 + 1 + 10 + 5 + 5 + 5 + 5   # of a record without key, value and headers, with the longest varints


cdef inline Py_ssize_t largest_size(RecordParts* parts) noexcept nogil:
    """Returns the largest encoded size that the record can have at any position in a batch."""
    return (
        LONGEST_FRAME + parts.headers_size
        + (parts.key_size if parts.key_size > 0 else 0) + (parts.value_size if parts.value_size > 0 else 0)
    )


cdef inline bint fits(RecordParts* parts) noexcept nogil:
    """Returns True if the record's sizes fit the format's 32 bits at any position in a batch."""
    return (
        parts.key_size <= INT_MAX // 4 and parts.value_size <= INT_MAX // 4 and parts.headers_size <= INT_MAX // 4
    )


cdef inline Py_ssize_t body_size(RecordParts* parts, int64_t timestamp_delta, int32_t offset_delta,
                                 Py_ssize_t header_count) noexcept nogil:
    """Returns the encoded size without the length field."""
    return (
        1 + size_of_varlong(timestamp_delta) + size_of_varint(offset_delta)
        + size_of_varint(<int32_t>parts.key_size) + (parts.key_size if parts.key_size > 0 else 0)
        + size_of_varint(<int32_t>parts.value_size) + (parts.value_size if parts.value_size > 0 else 0)
        + size_of_varint(<int32_t>header_count) + parts.headers_size
    )


cdef inline uint8_t* put_bytes(uint8_t* p, const char* start, Py_ssize_t size) noexcept nogil:
    p = write_varint(p, <int32_t>size)
    if size > 0:
        memcpy(p, start, size)
        p += size
    return p


cdef inline uint8_t* put_record(uint8_t* p, RecordParts* parts, Py_ssize_t body, int64_t timestamp_delta,
                                int32_t offset_delta, list headers):
    """Writes a record; the caller has reserved the space. Runs no Python code."""
    p = write_varint(p, <int32_t>body)
    p[0] = 0
    p = write_varlong(p + 1, timestamp_delta)
    p = write_varint(p, offset_delta)
    p = put_bytes(p, parts.key, parts.key_size)
    p = put_bytes(p, parts.value, parts.value_size)
    if headers is None:
        p[0] = 0
        return p + 1
    p = write_varint(p, <int32_t>len(headers))
    for pair in headers:
        name, value = <tuple>pair
        p = put_bytes(p, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        if value is None:
            p = write_varint(p, -1)
        else:
            p = put_bytes(p, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return p


cdef inline int bytes_of(object data, str what, const char** start, Py_ssize_t* size) except -1:
    """Gets pointer and size of a key or value; the size is -1 for None. The caller keeps `data` alive."""
    if data is None:
        size[0] = -1
    elif PyBytes_CheckExact(data):
        start[0] = PyBytes_AS_STRING(data)
        size[0] = PyBytes_GET_SIZE(data)
    else:
        raise TypeError(f"a record's {what} must be bytes or None, not {type(data).__name__}")
    return 0


cdef inline list encode_headers(object headers, Py_ssize_t* size):
    """Returns name and value of each header as bytes, and sets their encoded size."""
    cdef list encoded = []
    cdef bytes raw_name
    size[0] = 0
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a header must be a pair of a name and bytes or None, not {pair!r}")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be a str, not {type(name).__name__}")
        if value is not None and not PyBytes_CheckExact(value):
            raise TypeError(f"the value of header {name!r} must be bytes or None, not {type(value).__name__}")
        raw_name = (<str>name).encode("utf-8")
        encoded.append((raw_name, value))
        size[0] += size_of_varint(<int32_t>len(raw_name)) + len(raw_name)
        size[0] += 1 if value is None else size_of_varint(<int32_t>len(value)) + len(value)
    return encoded
