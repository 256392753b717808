"""Writes Arrow columns as members of JSON objects, and joins pieces of rows. See `json_columns`.

Numbers, text, escapes and times are written as Spark's `to_json` writes them. Null fields are left out.

A field points into the buffers of its Arrow array, which the caller keeps alive. A writer belongs to one call.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from headrace.pipelines._json_text cimport BOOLEAN, DECIMAL, INTEGER, JSON_TEXT, STRUCT, TEXT, TIMESTAMP

cdef enum:
    MAX_TEXT = 0x7FFFFFFF
    DAY_SECONDS = 86400

cdef struct Bytes:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity

cdef struct Field:
    int kind
    int width
    int scale
    Py_ssize_t first
    const uint8_t* name
    Py_ssize_t name_size
    const uint8_t* valid
    const uint8_t* values
    const int32_t* offsets
    int child_count
    Field* children

cdef struct Piece:
    const uint8_t* data
    const int32_t* offsets
    const int32_t* rows
    Py_ssize_t size

# The letter of a byte's short escape, 1 for a byte without one, 0 for a byte that needs no escape.
cdef uint8_t[256] escape_of
memset(escape_of, 0, 256)
memset(escape_of, 1, 32)
escape_of[8] = 98
escape_of[9] = 116
escape_of[10] = 110
escape_of[12] = 102
escape_of[13] = 114
escape_of[34] = 34
escape_of[92] = 92
cdef char* HEX = b"0123456789ABCDEF"


cdef bint reserve(Bytes* into, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity
    cdef uint8_t* data
    if into.size + more < into.capacity:  # so there is memory even for nothing
        return True
    capacity = max(into.capacity * 2, into.size + more + 1024)
    data = <uint8_t*>PyMem_RawRealloc(into.data, capacity)
    if data == NULL:
        return False
    into.data, into.capacity = data, capacity
    return True


cdef inline uint8_t* write_digits(uint8_t* to, uint64_t number, int width) noexcept nogil:
    """Writes a number with at least `width` digits."""
    cdef uint8_t[20] digits
    cdef int count = 0
    while number or count < width:
        digits[count] = 48 + <uint8_t>(number % 10)
        number //= 10
        count += 1
    while count:
        count -= 1
        to[0] = digits[count]
        to += 1
    return to


cdef inline uint8_t* write_int(uint8_t* to, int64_t number) noexcept nogil:
    if number < 0:
        to[0] = 45
        return write_digits(to + 1, 0 - <uint64_t>number, 1)
    return write_digits(to, <uint64_t>number, 1)


cdef bint write_text(Bytes* to, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i = 0
    cdef uint8_t* at
    cdef uint8_t escape
    if not reserve(to, size + 2):
        return False
    while i < size and not escape_of[text[i]]:
        i += 1
    if i < size and not reserve(to, size * 6 + 2):
        return False
    at = to.data + to.size
    at[0] = 34
    memcpy(at + 1, text, i)
    at += i + 1
    while i < size:
        escape = escape_of[text[i]]
        if not escape:
            at[0] = text[i]
            at += 1
        elif escape > 1:
            at[0], at[1] = 92, escape
            at += 2
        else:
            memcpy(at, b"\\u00", 4)
            at[4], at[5] = HEX[text[i] >> 4], HEX[text[i] & 15]
            at += 6
        i += 1
    at[0] = 34
    to.size = at + 1 - to.data
    return True


cdef inline int64_t floor_divide(int64_t number, int64_t by) noexcept nogil:
    cdef int64_t quotient = number // by
    return quotient - 1 if number - quotient * by < 0 else quotient


cdef uint8_t* write_timestamp(uint8_t* to, int64_t micros) noexcept nogil:
    """Writes a time as "2026-01-31T23:59:59.999Z". Other digits of the second are cut off."""
    cdef int64_t seconds = floor_divide(micros, 1000000)
    cdef int64_t days = floor_divide(seconds, DAY_SECONDS)
    cdef int64_t second_of_day = seconds - days * DAY_SECONDS
    cdef int64_t era, day_of_era, year_of_era, day_of_year, month, year
    days += 719468
    era = floor_divide(days, 146097)
    day_of_era = days - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153  # counted from March
    year = year_of_era + era * 400 + (month >= 10)
    if year > 9999 or year < 0:
        to[0] = 43 if year > 0 else 45
        to += 1
        if year < 0:
            year = -year
    to = write_digits(to, <uint64_t>year, 4)
    to[0] = 45
    to = write_digits(to + 1, <uint64_t>(month + (3 if month < 10 else -9)), 2)
    to[0] = 45
    to = write_digits(to + 1, <uint64_t>(day_of_year - (153 * month + 2) // 5 + 1), 2)
    to[0] = 84
    to = write_digits(to + 1, <uint64_t>(second_of_day // 3600), 2)
    to[0] = 58
    to = write_digits(to + 1, <uint64_t>(second_of_day // 60 % 60), 2)
    to[0] = 58
    to = write_digits(to + 1, <uint64_t>(second_of_day % 60), 2)
    to[0] = 46
    to = write_digits(to + 1, <uint64_t>((micros - seconds * 1000000) // 1000), 3)
    to[0] = 90
    return to + 1


cdef uint8_t* write_decimal(uint8_t* to, int64_t number, int scale) noexcept nogil:
    cdef uint64_t size = 0 - <uint64_t>number if number < 0 else <uint64_t>number
    cdef uint64_t unit = 1
    cdef int i
    if number < 0:
        to[0] = 45
        to += 1
    for i in range(scale):
        unit *= 10
    to = write_digits(to, size // unit, 1)
    if scale:
        to[0] = 46
        to = write_digits(to + 1, size % unit, scale)
    return to


cdef bint write_value(Bytes* to, Field* field, Py_ssize_t row) noexcept nogil:
    cdef uint8_t* at
    cdef Py_ssize_t size
    cdef const uint8_t* text
    if field.kind == TEXT or field.kind == JSON_TEXT:
        text = field.values + field.offsets[row]
        size = field.offsets[row + 1] - field.offsets[row]
        if field.kind == TEXT:
            return write_text(to, text, size)
        if not reserve(to, size):
            return False
        memcpy(to.data + to.size, text, size)
        to.size += size
        return True
    if not reserve(to, 40):
        return False
    at = to.data + to.size
    if field.kind == INTEGER:
        if field.width == 8:
            at = write_int(at, (<int64_t*>field.values)[row])
        elif field.width == 4:
            at = write_int(at, (<int32_t*>field.values)[row])
        elif field.width == 2:
            at = write_int(at, (<int16_t*>field.values)[row])
        else:
            at = write_int(at, (<int8_t*>field.values)[row])
    elif field.kind == DECIMAL:
        at = write_decimal(at, (<int64_t*>field.values)[row * 2], field.scale)
    elif field.kind == TIMESTAMP:
        at[0] = 34
        at = write_timestamp(at + 1, (<int64_t*>field.values)[row])
        at[0] = 34
        at += 1
    elif field.values[row >> 3] >> (row & 7) & 1:
        memcpy(at, b"true", 4)
        at += 4
    else:
        memcpy(at, b"false", 5)
        at += 5
    to.size = at - to.data
    return True


cdef bint write_members(Bytes* to, Field* fields, int count, Py_ssize_t row, bint is_first) noexcept nogil:
    """Writes the fields that are not null, each after a comma, except after the first if `is_first`."""
    cdef int i
    cdef Field* field
    cdef Py_ssize_t position
    for i in range(count):
        field = &fields[i]
        position = field.first + row
        if field.valid != NULL and not field.valid[position >> 3] >> (position & 7) & 1:
            continue
        if not reserve(to, field.name_size):
            return False
        memcpy(to.data + to.size, field.name + is_first, field.name_size - is_first)
        to.size += field.name_size - is_first
        is_first = False
        if field.kind == STRUCT:
            if not reserve(to, 1):
                return False
            to.data[to.size] = 123
            to.size += 1
            if not write_members(to, field.children, field.child_count, row, True) or not reserve(to, 1):
                return False
            to.data[to.size] = 125
            to.size += 1
        elif not write_value(to, field, position):
            return False
    return True


cdef void release(Field* fields, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        release(fields[i].children, fields[i].child_count)
    PyMem_RawFree(fields)


cdef const uint8_t* address(buffer) except? NULL:
    cdef const uint8_t[::1] view
    if buffer is None:
        return NULL
    view = memoryview(buffer).cast("B")
    return &view[0] if view.shape[0] else <const uint8_t*>b""


cdef Field* make_fields(columns) except NULL:
    cdef Field* fields = <Field*>PyMem_RawCalloc(max(len(columns), 1), sizeof(Field))
    cdef Py_ssize_t i = 0
    if fields == NULL:
        raise MemoryError
    try:
        for i in range(len(columns)):
            name, kind, width, scale, first, buffers, children = columns[i]
            fields[i].name = <const uint8_t*>PyBytes_AS_STRING(name)
            fields[i].name_size = PyBytes_GET_SIZE(name)
            fields[i].kind, fields[i].width, fields[i].scale, fields[i].first = kind, width, scale, first
            fields[i].valid = address(buffers[0])
            if kind == TEXT or kind == JSON_TEXT:
                fields[i].offsets = <const int32_t*>address(buffers[1])
                fields[i].values = address(buffers[2] or b"")
            elif kind != STRUCT:
                fields[i].values = address(buffers[1])
            if children:
                fields[i].children = make_fields(children)
                fields[i].child_count = len(children)
    except:
        release(fields, i + 1)
        raise
    return fields


def write_rows(columns, Py_ssize_t count, bytes opening):
    """Returns the offsets and the data of a binary array: the members of each row.

    `columns`: a tuple for each field: the bytes of a comma, the name and a colon; kind, width, scale; the first row in
    the buffers; the buffers; the fields of a struct.
    """
    cdef Bytes text
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
    cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(offsets)
    cdef Py_ssize_t row, opening_size = len(opening)
    cdef const char* opening_at = PyBytes_AS_STRING(opening)
    cdef bint is_written = True
    cdef int field_count = len(columns)
    cdef Field* fields = make_fields(columns)
    memset(&text, 0, sizeof(Bytes))
    ends[0] = 0
    try:
        with nogil:
            for row in range(count):
                is_written = reserve(&text, opening_size)
                if is_written:
                    memcpy(text.data + text.size, opening_at, opening_size)
                    text.size += opening_size
                    is_written = write_members(&text, fields, field_count, row, opening_size > 0)
                if not is_written or text.size > MAX_TEXT:
                    break
                ends[row + 1] = <int32_t>text.size
        if not is_written:
            raise MemoryError
        if text.size > MAX_TEXT:
            raise ValueError("the rows of a batch take more than 2 GB as JSON; use smaller batches")
        return offsets, PyBytes_FromStringAndSize(<const char*>text.data, text.size)
    finally:
        release(fields, field_count)
        PyMem_RawFree(text.data)


def join_rows(pieces, Py_ssize_t count):
    """Returns the offsets and the data of a binary array: row by row, the pieces one after the other.

    `pieces`: bytes that every row gets; or offsets (from the array's first row on), data, and the array's row for each
    row as 32-bit integers. The caller has checked the rows.
    """
    cdef Py_ssize_t piece_count = len(pieces), row, total = 0, size, i
    cdef Piece* parts = <Piece*>PyMem_RawCalloc(max(piece_count, 1), sizeof(Piece))
    cdef Piece* part
    cdef bytes offsets, data
    cdef int32_t* ends
    cdef uint8_t* to
    cdef int32_t at
    if parts == NULL:
        raise MemoryError
    try:
        for i in range(piece_count):
            part = &parts[i]
            if isinstance(pieces[i], bytes):
                part.data = <const uint8_t*>PyBytes_AS_STRING(pieces[i])
                part.size = len(pieces[i])
            else:
                part.offsets = <const int32_t*>address(pieces[i][0]) + <Py_ssize_t>pieces[i][1]
                part.data = address(pieces[i][2])
                part.rows = <const int32_t*>address(pieces[i][3])
        offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
        ends = <int32_t*>PyBytes_AS_STRING(offsets)
        ends[0] = 0
        for row in range(count):
            for i in range(piece_count):
                part = &parts[i]
                if part.offsets == NULL:
                    total += part.size
                else:
                    at = part.rows[row] if part.rows != NULL else <int32_t>row
                    total += part.offsets[at + 1] - part.offsets[at]
            if total > MAX_TEXT:
                raise ValueError("the rows of a batch take more than 2 GB; use smaller batches")
            ends[row + 1] = <int32_t>total
        data = PyBytes_FromStringAndSize(NULL, total)
        to = <uint8_t*>PyBytes_AS_STRING(data)
        with nogil:
            for row in range(count):
                for i in range(piece_count):
                    part = &parts[i]
                    if part.offsets == NULL:
                        memcpy(to, part.data, part.size)
                        to += part.size
                    else:
                        at = part.rows[row] if part.rows != NULL else <int32_t>row
                        size = part.offsets[at + 1] - part.offsets[at]
                        memcpy(to, part.data + part.offsets[at], size)
                        to += size
        return offsets, data
    finally:
        PyMem_RawFree(parts)


def list_rows(const int32_t[::1] offsets, Py_ssize_t first, Py_ssize_t count, const uint8_t[::1] chosen):
    """Returns the elements of the lists whose byte in `chosen` is not 0, as 32-bit integers: the list, the element's
    position in the child array, and its position in its list."""
    cdef Py_ssize_t row, total = 0, at = 0
    cdef int32_t position
    cdef bytes lists, elements, positions
    cdef int32_t* to_lists
    cdef int32_t* to_elements
    cdef int32_t* to_positions
    if offsets.shape[0] < first + count + 1 or chosen.shape[0] < count:
        raise ValueError("the buffers are shorter than the array")
    for row in range(count):
        if chosen[row]:
            total += offsets[first + row + 1] - offsets[first + row]
    lists, elements, positions = (PyBytes_FromStringAndSize(NULL, total * 4) for _ in range(3))
    to_lists = <int32_t*>PyBytes_AS_STRING(lists)
    to_elements = <int32_t*>PyBytes_AS_STRING(elements)
    to_positions = <int32_t*>PyBytes_AS_STRING(positions)
    for row in range(count):
        if not chosen[row]:
            continue
        for position in range(offsets[first + row], offsets[first + row + 1]):
            to_lists[at] = <int32_t>row
            to_elements[at] = position
            to_positions[at] = position - offsets[first + row]
            at += 1
    return lists, elements, positions
