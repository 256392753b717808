"""Reads JSON objects into Arrow columns. See `json_columns`.

The reader accepts only plain JSON, for which all parsers agree. Everything else is *unusual*: a value of another type,
a repeated field, an invalid escape, text that is not UTF-8, text after the object, deep nesting, and so on. An unusual
row goes to a function in Python, which returns the same row as plain JSON, or why the row is invalid.

Plain JSON from that function is *trusted* and may contain what the reader does not read from others: text in columns
of JSON text, decimals of up to 18 digits, and timestamps as microseconds since 1970.

Columns are C structs that grow with each row. A row that turns out to be unusual is removed from all of them.

    TEXT       int32 offsets, bytes          STRUCT    children
    LIST       int32 offsets, one child      others    values of `width` bytes

Invariants:
- No byte outside `[at, end)` is read. Every append reserves its memory first.
- Between rows, all children of a struct have as many entries as the struct.
- A reader belongs to one thread.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    TEXT = 1
    JSON_TEXT = 2
    INTEGER = 3
    DECIMAL = 4
    TIMESTAMP = 5
    BOOLEAN = 6
    STRUCT = 7
    LIST = 8

cdef enum:
    MAX_DEPTH = 20
    MAX_KEYS = 100
    MAX_TEXT = 0x7FFFFFFF
    MAX_NAME = 10000
    MAX_PLAIN_DIGITS = 15
    MAX_DIGITS = 18

cdef struct Bytes:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity

cdef struct Column:
    int kind
    bint is_trimmed
    int precision
    int scale
    int width
    int64_t lowest
    int64_t highest
    Py_ssize_t count
    int child_count
    int next_child
    Column* children
    uint8_t* name
    Py_ssize_t name_size
    Bytes valid
    Bytes fixed
    Bytes text

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint is_trusted
    bint no_memory

# What a byte is inside a string: 0 plain ASCII, 1 quote, 2 backslash, 3 control character, 4 not ASCII.
cdef uint8_t[256] byte_class
memset(byte_class, 0, 128)
memset(byte_class, 3, 32)
memset(&byte_class[128], 4, 128)
byte_class[34] = 1
byte_class[92] = 2

cdef int64_t[19] POWERS
POWERS[0] = 1
for _power in range(1, 19):
    POWERS[_power] = POWERS[_power - 1] * 10


# ---- memory

cdef inline bint reserve(Cursor* cursor, Bytes* into, Py_ssize_t more) noexcept nogil:
    if into.size + more < into.capacity:  # so there is memory even for nothing
        return True
    return grow(cursor, into, more)


cdef bint grow(Cursor* cursor, Bytes* into, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity = into.capacity * 2
    cdef uint8_t* data
    if capacity <= into.size + more:
        capacity = into.size + more + 256
    data = <uint8_t*>PyMem_RawRealloc(into.data, capacity)
    if data == NULL:
        cursor.no_memory = True
        return False
    into.data = data
    into.capacity = capacity
    return True


cdef inline bint append(Cursor* cursor, Bytes* into, const void* data, Py_ssize_t size) noexcept nogil:
    if not reserve(cursor, into, size):
        return False
    memcpy(into.data + into.size, data, size)
    into.size += size
    return True


cdef inline bint append_byte(Cursor* cursor, Bytes* into, uint8_t byte) noexcept nogil:
    if not reserve(cursor, into, 1):
        return False
    into.data[into.size] = byte
    into.size += 1
    return True


cdef inline bint append_offset(Cursor* cursor, Bytes* into, Py_ssize_t offset) noexcept nogil:
    cdef int32_t value = <int32_t>offset
    return append(cursor, into, &value, 4)


cdef bint append_null(Cursor* cursor, Column* column) noexcept nogil:
    cdef int64_t[2] zero
    cdef int i
    if not append_byte(cursor, &column.valid, 0):
        return False
    column.count += 1
    if column.kind == STRUCT:
        for i in range(column.child_count):
            if not append_null(cursor, &column.children[i]):
                return False
        return True
    if column.kind == LIST:
        return append_offset(cursor, &column.fixed, column.children[0].count)
    if column.kind == TEXT or column.kind == JSON_TEXT:
        return append_offset(cursor, &column.fixed, column.text.size)
    zero[0] = zero[1] = 0
    return append(cursor, &column.fixed, zero, column.width)


cdef inline bint append_value(Cursor* cursor, Column* column, const void* value) noexcept nogil:
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append(cursor, &column.fixed, value, column.width)


cdef void truncate(Column* column, Py_ssize_t count) noexcept nogil:
    """Removes the entries from `count` on."""
    cdef int i
    cdef Py_ssize_t content
    column.count = count
    column.valid.size = count
    if column.kind == STRUCT:
        for i in range(column.child_count):
            truncate(&column.children[i], count)
    elif column.kind == LIST or column.kind == TEXT or column.kind == JSON_TEXT:
        column.fixed.size = (count + 1) * 4
        content = (<int32_t*>column.fixed.data)[count]
        if column.kind == LIST:
            truncate(&column.children[0], content)
        else:
            column.text.size = content
    else:
        column.fixed.size = count * column.width


cdef bint clear(Cursor* cursor, Column* column) noexcept nogil:
    cdef int i
    column.count = column.valid.size = column.fixed.size = column.text.size = 0
    column.next_child = 0
    if column.kind == LIST or column.kind == TEXT or column.kind == JSON_TEXT:
        if not append_offset(cursor, &column.fixed, 0):
            return False
    for i in range(column.child_count):
        if not clear(cursor, &column.children[i]):
            return False
    return True


cdef void release(Column* column) noexcept nogil:
    cdef int i
    for i in range(column.child_count):
        release(&column.children[i])
    PyMem_RawFree(column.children)
    PyMem_RawFree(column.name)
    PyMem_RawFree(column.valid.data)
    PyMem_RawFree(column.fixed.data)
    PyMem_RawFree(column.text.data)


# ---- tokens

cdef inline bint skip_space(Cursor* cursor) noexcept nogil:
    """Skips white space. Returns False at the end of the row."""
    cdef const uint8_t* at = cursor.at
    while at < cursor.end and (at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9):
        at += 1
    cursor.at = at
    return at < cursor.end


cdef inline bint is_delimiter(Cursor* cursor) noexcept nogil:
    """Returns whether a number or literal may end here."""
    cdef uint8_t byte
    if cursor.at >= cursor.end:
        return False
    byte = cursor.at[0]
    return byte == 44 or byte == 125 or byte == 93 or byte == 32 or byte == 10 or byte == 13 or byte == 9


cdef bint skip_literal(Cursor* cursor, const char* literal, Py_ssize_t size) noexcept nogil:
    if cursor.end - cursor.at < size or memcmp(cursor.at, literal, size) != 0:
        return False
    cursor.at += size
    return is_delimiter(cursor)


cdef const uint8_t* skip_character(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Returns the end of a UTF-8 character that is not ASCII, or NULL if it is not well-formed."""
    cdef uint8_t first = at[0]
    cdef uint8_t second
    if end - at < 2:
        return NULL
    second = at[1]
    if first < 0xC2 or (second & 0xC0) != 0x80:
        return NULL
    if first < 0xE0:
        return at + 2
    if end - at < 3 or (at[2] & 0xC0) != 0x80:
        return NULL
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return NULL
        return at + 3
    if end - at < 4 or (at[3] & 0xC0) != 0x80 or first > 0xF4:
        return NULL
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return NULL
    return at + 4


cdef bint find_quote(Cursor* cursor, const uint8_t** begin, const uint8_t** stop, bint* has_escape) noexcept nogil:
    """Reads a string, without its escapes: sets where its content begins and ends. Moves behind the closing quote."""
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* end = cursor.end
    cdef uint8_t kind
    if at >= end or at[0] != 34:
        return False
    at += 1
    begin[0] = at
    has_escape[0] = False
    while at < end:
        kind = byte_class[at[0]]
        if kind == 0:
            at += 1
        elif kind == 1:
            stop[0] = at
            cursor.at = at + 1
            return True
        elif kind == 2:
            has_escape[0] = True
            at += 2
        elif kind == 4:
            at = skip_character(at, end)
            if at == NULL:
                return False
        else:
            return False
    return False


cdef bint find_name(Cursor* cursor, const uint8_t** begin, const uint8_t** stop) noexcept nogil:
    """Reads the name of a field and its colon. Moves to the field's value."""
    cdef bint has_escape = False
    if not find_quote(cursor, begin, stop, &has_escape) or has_escape or stop[0] - begin[0] > MAX_NAME:
        return False
    if not skip_space(cursor) or cursor.at[0] != 58:
        return False
    cursor.at += 1
    return skip_space(cursor)


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    if 48 <= byte <= 57:
        return byte - 48
    if 65 <= byte <= 70:
        return byte - 55
    if 97 <= byte <= 102:
        return byte - 87
    return -1


cdef int read_hex(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef int i, digit, value = 0
    if end - at < 4:
        return -1
    for i in range(4):
        digit = hex_digit(at[i])
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


cdef const uint8_t* read_escape(const uint8_t* at, const uint8_t* end, uint32_t* character) noexcept nogil:
    """Decodes an escape. Returns its end, or NULL if it is unusual."""
    cdef uint8_t kind
    cdef int high, low
    if end - at < 2:
        return NULL
    kind = at[1]
    if kind == 34 or kind == 92 or kind == 47:
        character[0] = kind
    elif kind == 110:
        character[0] = 10
    elif kind == 116:
        character[0] = 9
    elif kind == 114:
        character[0] = 13
    elif kind == 98:
        character[0] = 8
    elif kind == 102:
        character[0] = 12
    elif kind == 117:
        high = read_hex(at + 2, end)
        if high < 0 or 0xDC00 <= high <= 0xDFFF:
            return NULL
        character[0] = <uint32_t>high
        if high < 0xD800 or high > 0xDFFF:
            return at + 6
        if end - at < 12 or at[6] != 92 or at[7] != 117:
            return NULL
        low = read_hex(at + 8, end)
        if low < 0xDC00 or low > 0xDFFF:
            return NULL
        character[0] = <uint32_t>(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        return at + 12
    else:
        return NULL
    return at + 2


cdef int encode(uint32_t character, uint8_t* to) noexcept nogil:
    """Writes a character as UTF-8. Returns its length."""
    if character < 0x80:
        to[0] = <uint8_t>character
        return 1
    if character < 0x800:
        to[0] = <uint8_t>(0xC0 | (character >> 6))
        to[1] = <uint8_t>(0x80 | (character & 0x3F))
        return 2
    if character < 0x10000:
        to[0] = <uint8_t>(0xE0 | (character >> 12))
        to[1] = <uint8_t>(0x80 | ((character >> 6) & 0x3F))
        to[2] = <uint8_t>(0x80 | (character & 0x3F))
        return 3
    to[0] = <uint8_t>(0xF0 | (character >> 18))
    to[1] = <uint8_t>(0x80 | ((character >> 12) & 0x3F))
    to[2] = <uint8_t>(0x80 | ((character >> 6) & 0x3F))
    to[3] = <uint8_t>(0x80 | (character & 0x3F))
    return 4


cdef Py_ssize_t unescape(const uint8_t* at, const uint8_t* stop, uint8_t* to) noexcept nogil:
    """Writes the text between two quotes. Returns its length, which is at most the length of its JSON, or -1 if an
    escape is unusual."""
    cdef uint8_t* begin = to
    cdef uint32_t character = 0
    while at < stop:
        if at[0] != 92:
            to[0] = at[0]
            at += 1
            to += 1
            continue
        at = read_escape(at, stop, &character)
        if at == NULL:
            return -1
        to += encode(character, to)
    return to - begin


cdef bint skip_number(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* begin
    if at[0] == 45:
        at += 1
    begin = at
    while at < end and 48 <= at[0] <= 57:
        at += 1
    if at == begin or at - begin > MAX_DIGITS or (begin[0] == 48 and at - begin > 1):
        return False
    if at < end and at[0] == 46:
        begin = at + 1
        at += 1
        while at < end and 48 <= at[0] <= 57:
            at += 1
        if at == begin or at - begin > MAX_DIGITS:
            return False
    cursor.at = at
    return is_delimiter(cursor)


cdef bint skip_value(Cursor* cursor, int depth) noexcept nogil:
    """Skips the value of a field that is not in the schema."""
    cdef const uint8_t* begin = NULL
    cdef const uint8_t* stop = NULL
    cdef const uint8_t* at
    cdef bint has_escape = False
    cdef uint32_t character
    cdef uint8_t first, closing
    if cursor.at >= cursor.end or depth > MAX_DEPTH:
        return False
    first = cursor.at[0]
    if first == 34:
        if not find_quote(cursor, &begin, &stop, &has_escape):
            return False
        if has_escape:
            at = begin
            while at < stop:
                if at[0] == 92:
                    at = read_escape(at, stop, &character)
                    if at == NULL:
                        return False
                else:
                    at += 1
        return True
    if first == 123 or first == 91:
        closing = first + 2
        cursor.at += 1
        if not skip_space(cursor):
            return False
        if cursor.at[0] == closing:
            cursor.at += 1
            return True
        while True:
            if first == 123 and not find_name(cursor, &begin, &stop):
                return False
            if not skip_value(cursor, depth + 1) or not skip_space(cursor):
                return False
            if cursor.at[0] == closing:
                cursor.at += 1
                return True
            if cursor.at[0] != 44:
                return False
            cursor.at += 1
            if not skip_space(cursor):
                return False
    if first == 116:
        return skip_literal(cursor, b"true", 4)
    if first == 102:
        return skip_literal(cursor, b"false", 5)
    if first == 110:
        return skip_literal(cursor, b"null", 4)
    return skip_number(cursor)


# ---- values as JSON text: without white space, with as few escapes as possible

cdef bint copy_string(Cursor* cursor, Bytes* to) noexcept nogil:
    """Copies a string. Java escapes characters of four bytes, as two halves of a surrogate pair."""
    cdef const uint8_t* at = NULL
    cdef const uint8_t* stop = NULL
    cdef const uint8_t* each
    cdef bint has_escape = False
    cdef uint32_t character = 0
    cdef uint8_t* out
    if not find_quote(cursor, &at, &stop, &has_escape):
        return False
    each = at
    while not has_escape and each < stop:
        has_escape = each[0] >= 0xF0
        each += 1
    if not has_escape:
        return append(cursor, to, at - 1, stop - at + 2)
    if not reserve(cursor, to, (stop - at) * 3 + 2):  # four bytes become twelve
        return False
    out = to.data + to.size
    out[0] = 34
    out += 1
    while at < stop:
        if at[0] == 92:
            at = read_escape(at, stop, &character)
            if at == NULL:
                return False
            out += write_escaped(character, out)
        elif at[0] >= 0xF0:
            character = ((at[0] & 7) << 18) | ((at[1] & 63) << 12) | ((at[2] & 63) << 6) | (at[3] & 63)
            out += write_escaped(character, out)
            at += 4
        else:
            out[0] = at[0]
            at += 1
            out += 1
    out[0] = 34
    to.size = out + 1 - to.data
    return True


cdef int write_unit(uint32_t unit, uint8_t* to) noexcept nogil:
    """Writes a UTF-16 code unit as an escape."""
    cdef int i
    cdef uint8_t digit
    to[0], to[1] = 92, 117
    for i in range(4):
        digit = (unit >> (12 - 4 * i)) & 15
        to[2 + i] = digit + (48 if digit < 10 else 55)
    return 6


cdef int write_escaped(uint32_t character, uint8_t* to) noexcept nogil:
    cdef uint8_t short_form = 0
    if character > 0xFFFF:
        write_unit(0xD800 + ((character - 0x10000) >> 10), to)
        return 6 + write_unit(0xDC00 + ((character - 0x10000) & 0x3FF), to + 6)
    if character >= 32 and character != 34 and character != 92:
        return encode(character, to)
    if character == 34 or character == 92:
        short_form = <uint8_t>character
    elif character == 10:
        short_form = 110
    elif character == 9:
        short_form = 116
    elif character == 13:
        short_form = 114
    elif character == 8:
        short_form = 98
    elif character == 12:
        short_form = 102
    if not short_form:
        return write_unit(character, to)
    to[0], to[1] = 92, short_form
    return 2


cdef bint copy_number(Cursor* cursor, Bytes* to) noexcept nogil:
    """Copies a number that Java writes exactly as it is: an integer, or a short decimal between 0.001 and 10 million
    without trailing zeros."""
    cdef const uint8_t* begin = cursor.at
    cdef const uint8_t* at = begin
    cdef const uint8_t* digits
    cdef const uint8_t* point = NULL
    if not skip_number(cursor):
        return False
    if at[0] == 45:
        at += 1
    digits = at
    while at < cursor.at:
        if at[0] == 46:
            point = at
        at += 1
    if point == NULL:
        if digits[0] == 48 and digits != begin:  # -0
            return False
    else:
        if point - digits > 7 or at - digits - 1 > MAX_PLAIN_DIGITS:
            return False
        if at[-1] == 48 and at - point > 2:
            return False
        if digits[0] == 48:
            if at - point > 3 and memcmp(point, b".000", 4) == 0:
                return False
            if at - point == 3 and memcmp(point, b".00", 3) == 0:
                return False
            if at[-1] == 48 and digits != begin:  # -0.0
                return False
    return append(cursor, to, begin, cursor.at - begin)


cdef bint copy_value(Cursor* cursor, Bytes* to, int depth) noexcept nogil:
    cdef Py_ssize_t[MAX_KEYS] key_at
    cdef Py_ssize_t[MAX_KEYS] key_size
    cdef int key_count = 0
    cdef int i
    cdef uint8_t first, closing
    if cursor.at >= cursor.end or depth > MAX_DEPTH:
        return False
    first = cursor.at[0]
    if first == 34:
        return copy_string(cursor, to)
    if first == 123 or first == 91:
        closing = first + 2
        cursor.at += 1
        if not append_byte(cursor, to, first) or not skip_space(cursor):
            return False
        if cursor.at[0] == closing:
            cursor.at += 1
            return append_byte(cursor, to, closing)
        while True:
            if first == 123:
                if key_count == MAX_KEYS:
                    return False
                key_at[key_count] = to.size
                if not copy_string(cursor, to) or not skip_space(cursor):
                    return False
                key_size[key_count] = to.size - key_at[key_count]
                if key_size[key_count] > MAX_NAME:
                    return False
                for i in range(key_count):
                    if key_size[i] == key_size[key_count] and memcmp(
                        to.data + key_at[i], to.data + key_at[key_count], key_size[i]
                    ) == 0:
                        return False
                key_count += 1
                if cursor.at[0] != 58 or not append_byte(cursor, to, 58):
                    return False
                cursor.at += 1
                if not skip_space(cursor):
                    return False
            if not copy_value(cursor, to, depth + 1) or not skip_space(cursor):
                return False
            if cursor.at[0] != closing and cursor.at[0] != 44:
                return False
            if not append_byte(cursor, to, cursor.at[0]):
                return False
            cursor.at += 1
            if cursor.at[-1] == closing:
                return True
            if not skip_space(cursor):
                return False
    if first == 116:
        return skip_literal(cursor, b"true", 4) and append(cursor, to, b"true", 4)
    if first == 102:
        return skip_literal(cursor, b"false", 5) and append(cursor, to, b"false", 5)
    if first == 110:
        return skip_literal(cursor, b"null", 4) and append(cursor, to, b"null", 4)
    return copy_number(cursor, to)


# ---- values by type

cdef bint read_text(Cursor* cursor, Column* column) noexcept nogil:
    cdef const uint8_t* begin = NULL
    cdef const uint8_t* stop = NULL
    cdef bint has_escape = False
    cdef Py_ssize_t size
    cdef uint8_t* text
    if not find_quote(cursor, &begin, &stop, &has_escape):
        return False
    size = stop - begin
    if column.text.size + size > MAX_TEXT or not reserve(cursor, &column.text, size):
        return False
    text = column.text.data + column.text.size
    if has_escape:
        size = unescape(begin, stop, text)
        if size < 0:
            return False
        begin = text
    if column.is_trimmed:
        while size and begin[0] == 32:
            begin += 1
            size -= 1
        while size and begin[size - 1] == 32:
            size -= 1
        if not size:
            return append_null(cursor, column)
    if begin != text:
        if has_escape:
            for_move(text, begin, size)
        else:
            memcpy(text, begin, size)
    column.text.size += size
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append_offset(cursor, &column.fixed, column.text.size)


cdef void for_move(uint8_t* to, const uint8_t* begin, Py_ssize_t size) noexcept nogil:
    """Moves text to the left, over itself."""
    cdef Py_ssize_t i
    for i in range(size):
        to[i] = begin[i]


cdef bint read_json_text(Cursor* cursor, Column* column) noexcept nogil:
    if cursor.at[0] == 34:
        return cursor.is_trusted and read_text(cursor, column)
    if cursor.at[0] != 123 and cursor.at[0] != 91:
        return False
    if not copy_value(cursor, &column.text, 0) or column.text.size > MAX_TEXT:
        return False
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append_offset(cursor, &column.fixed, column.text.size)


cdef bint read_int(Cursor* cursor, int64_t* value) noexcept nogil:
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* begin
    cdef uint64_t number = 0
    cdef bint is_negative = at[0] == 45
    if is_negative:
        at += 1
    begin = at
    while at < cursor.end and 48 <= at[0] <= 57:
        if at - begin == 19:
            return False
        number = number * 10 + (at[0] - 48)
        at += 1
    if at == begin or (begin[0] == 48 and (at - begin > 1 or is_negative)):
        return False
    if number > <uint64_t>0x7FFFFFFFFFFFFFFF + is_negative:
        return False
    value[0] = <int64_t>(0 - number) if is_negative else <int64_t>number
    cursor.at = at
    return is_delimiter(cursor)


cdef bint read_integer(Cursor* cursor, Column* column) noexcept nogil:
    cdef int64_t value = 0
    if not read_int(cursor, &value) or value < column.lowest or value > column.highest:
        return False
    return append_value(cursor, column, &value)  # little endian: the low bytes come first


cdef bint read_decimal(Cursor* cursor, Column* column) noexcept nogil:
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* begin
    cdef int64_t number = 0
    cdef int64_t[2] value
    cdef int digits = 0, decimals = -1, surplus
    cdef int64_t remainder
    cdef int max_digits = MAX_DIGITS if cursor.is_trusted else MAX_PLAIN_DIGITS
    cdef bint is_negative = at[0] == 45
    if is_negative:
        at += 1
    begin = at
    while at < cursor.end:
        if 48 <= at[0] <= 57:
            number = number * 10 + (at[0] - 48)
            digits += 1
            decimals += decimals >= 0
            if digits > max_digits:
                return False
        elif at[0] == 46 and decimals < 0 and digits:
            decimals = 0
        else:
            break
        at += 1
    if not digits or decimals == 0 or (begin[0] == 48 and at - begin > 1 and begin[1] != 46):
        return False
    cursor.at = at
    if not is_delimiter(cursor):
        return False
    surplus = (decimals if decimals > 0 else 0) - column.scale
    if surplus > 0:  # rounds half up
        remainder = number % POWERS[surplus]
        number = number // POWERS[surplus] + (remainder * 2 >= POWERS[surplus])
    elif surplus < 0:
        if digits - surplus > MAX_DIGITS:
            return False
        number *= POWERS[-surplus]
    if number >= POWERS[column.precision]:
        return False
    value[0] = -number if is_negative else number
    value[1] = -1 if value[0] < 0 else 0
    return append_value(cursor, column, value)


cdef inline int read_digits(const uint8_t* at, int count) noexcept nogil:
    cdef int i, value = 0
    for i in range(count):
        if at[i] < 48 or at[i] > 57:
            return -1
        value = value * 10 + (at[i] - 48)
    return value


cdef int64_t days_of(int64_t year, int month, int day) noexcept nogil:
    """Returns the days since 1970 of a date after 0000-03-01. Years are counted from March."""
    cdef int64_t era, year_of_era, day_of_year
    if month <= 2:
        year -= 1
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


cdef int days_in_month(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef bint read_timestamp(Cursor* cursor, Column* column) noexcept nogil:
    """Reads "2026-01-31 23:59:59", with up to six decimals."""
    cdef const uint8_t* at = NULL
    cdef const uint8_t* stop = NULL
    cdef bint has_escape = False
    cdef int year, month, day, hour, minute, second, decimals, fraction = 0
    cdef int64_t micros = 0
    if cursor.at[0] != 34:
        return cursor.is_trusted and read_int(cursor, &micros) and append_value(cursor, column, &micros)
    if not find_quote(cursor, &at, &stop, &has_escape) or has_escape or stop - at < 19 or stop - at > 26:
        return False
    year, month, day = read_digits(at, 4), read_digits(at + 5, 2), read_digits(at + 8, 2)
    hour, minute, second = read_digits(at + 11, 2), read_digits(at + 14, 2), read_digits(at + 17, 2)
    if at[4] != 45 or at[7] != 45 or at[10] != 32 or at[13] != 58 or at[16] != 58:
        return False
    if year < 1 or month < 1 or month > 12 or day < 1 or day > days_in_month(year, month):
        return False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    if stop - at > 19:
        decimals = <int>(stop - at) - 20
        if at[19] != 46 or not decimals:
            return False
        fraction = read_digits(at + 20, decimals)
        if fraction < 0:
            return False
        fraction *= <int>POWERS[6 - decimals]
    micros = (days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second) * 1000000 + fraction
    return append_value(cursor, column, &micros)


cdef bint read_boolean(Cursor* cursor, Column* column) noexcept nogil:
    cdef uint8_t value = cursor.at[0] == 116
    if not (skip_literal(cursor, b"true", 4) if value else skip_literal(cursor, b"false", 5)):
        return False
    return append_value(cursor, column, &value)


cdef Column* find_child(Column* column, const uint8_t* name, Py_ssize_t size) noexcept nogil:
    """Returns the field of this name, or NULL. Objects mostly have their fields in the same order."""
    cdef int i, at = column.next_child
    cdef Column* child
    for i in range(column.child_count):
        if at >= column.child_count:
            at = 0
        child = &column.children[at]
        if child.name_size == size and memcmp(child.name, name, size) == 0:
            column.next_child = at + 1
            return child
        at += 1
    return NULL


cdef bint read_struct(Cursor* cursor, Column* column) noexcept nogil:
    cdef const uint8_t* begin = NULL
    cdef const uint8_t* stop = NULL
    cdef Py_ssize_t row = column.count
    cdef Column* child
    cdef int i
    if cursor.at[0] != 123 or not append_byte(cursor, &column.valid, 1):
        return False
    column.count += 1
    cursor.at += 1
    if not skip_space(cursor):
        return False
    if cursor.at[0] == 125:
        cursor.at += 1
    else:
        while True:
            if not find_name(cursor, &begin, &stop):
                return False
            child = find_child(column, begin, stop - begin)
            if child == NULL:
                if not skip_value(cursor, 0):
                    return False
            elif child.count != row or not read_value(cursor, child):  # a repeated field is unusual
                return False
            if not skip_space(cursor):
                return False
            if cursor.at[0] == 44:
                cursor.at += 1
                if not skip_space(cursor):
                    return False
            elif cursor.at[0] == 125:
                cursor.at += 1
                break
            else:
                return False
    for i in range(column.child_count):
        if column.children[i].count == row and not append_null(cursor, &column.children[i]):
            return False
    return True


cdef bint read_list(Cursor* cursor, Column* column) noexcept nogil:
    if cursor.at[0] != 91:
        return False
    cursor.at += 1
    if not skip_space(cursor):
        return False
    if cursor.at[0] == 93:
        cursor.at += 1
    else:
        while True:
            if column.children[0].count >= MAX_TEXT or not read_value(cursor, &column.children[0]):
                return False
            if not skip_space(cursor):
                return False
            if cursor.at[0] == 93:
                cursor.at += 1
                break
            if cursor.at[0] != 44:
                return False
            cursor.at += 1
            if not skip_space(cursor):
                return False
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append_offset(cursor, &column.fixed, column.children[0].count)


cdef bint read_value(Cursor* cursor, Column* column) noexcept nogil:
    if cursor.at >= cursor.end:
        return False
    if cursor.at[0] == 110:
        return skip_literal(cursor, b"null", 4) and append_null(cursor, column)
    if column.kind == TEXT:
        return read_text(cursor, column)
    if column.kind == INTEGER:
        return read_integer(cursor, column)
    if column.kind == STRUCT:
        return read_struct(cursor, column)
    if column.kind == LIST:
        return read_list(cursor, column)
    if column.kind == JSON_TEXT:
        return read_json_text(cursor, column)
    if column.kind == DECIMAL:
        return read_decimal(cursor, column)
    if column.kind == TIMESTAMP:
        return read_timestamp(cursor, column)
    return read_boolean(cursor, column)


cdef bint read_row(Cursor* cursor, Column* root) noexcept nogil:
    """Reads an object with white space around it. Returns False if the row is unusual."""
    if not skip_space(cursor) or not read_struct(cursor, root):
        return False
    return not skip_space(cursor)


# ---- the reader

cdef class JsonReader:
    """Reads rows of one schema.

    `fields`: a tuple for each field: name, kind, is_trimmed, precision, scale, and the fields of a struct, or the
    element of a list as the only field.
    """

    cdef Column root

    def __cinit__(self, fields):
        memset(&self.root, 0, sizeof(Column))
        self.root.kind = STRUCT
        add_children(&self.root, fields)

    def __dealloc__(self):
        release(&self.root)

    def read(
        self,
        const uint8_t[::1] data,
        const int32_t[::1] offsets,
        valid,
        Py_ssize_t first,
        Py_ssize_t count,
        fallback,
    ):
        """Reads rows from the buffers of an Arrow array, beginning with row `first`.

        `valid`: the validity bitmap, or None. `fallback` gets the bytes of an unusual row. It returns the row as plain
        JSON, or an object that says why the row is invalid.
        Returns the columns as buffers (see `_buffers`), the validity of the rows, these objects by row, and the unusual
        rows that are valid. Null rows and invalid rows are null.
        """
        cdef const uint8_t[::1] bits
        cdef bint has_nulls = valid is not None
        cdef const uint8_t* base = &data[0] if data.shape[0] else <const uint8_t*>b""
        cdef Py_ssize_t row, position, begin, stop
        cdef Cursor cursor
        cdef dict invalid = {}
        cdef list unusual = []
        if first < 0 or count < 0 or offsets.shape[0] < first + count + 1:
            raise ValueError(f"rows {first} to {first + count} are outside of the array")
        if has_nulls:
            bits = memoryview(valid).cast("B")
            if bits.shape[0] * 8 < first + count:
                raise ValueError("the validity bitmap is too short")
        memset(&cursor, 0, sizeof(Cursor))
        if not clear(&cursor, &self.root):
            raise MemoryError
        for row in range(count):
            position = first + row
            if has_nulls and not bits[position >> 3] >> (position & 7) & 1:
                if not append_null(&cursor, &self.root):
                    raise MemoryError
                continue
            begin, stop = offsets[position], offsets[position + 1]
            if begin < 0 or stop < begin or stop > data.shape[0]:
                raise ValueError(f"row {position} is outside of the buffer")
            cursor.is_trusted = False
            cursor.at, cursor.end = base + begin, base + stop
            if not read_row(&cursor, &self.root):
                value = PyBytes_FromStringAndSize(<const char*>(base + begin), stop - begin)
                self.read_unusual(&cursor, row, value, fallback, invalid)
                if row not in invalid:
                    unusual.append(row)
        columns = [_buffers(&self.root.children[i]) for i in range(self.root.child_count)]
        return columns, _validity(&self.root), invalid, unusual

    cdef int read_unusual(self, Cursor* cursor, Py_ssize_t row, bytes value, fallback, dict invalid) except -1:
        cdef bytes plain
        if cursor.no_memory:
            raise MemoryError
        truncate(&self.root, row)
        answer = fallback(value)
        if isinstance(answer, bytes):
            plain = answer
            cursor.is_trusted = True
            cursor.at = <const uint8_t*>PyBytes_AS_STRING(plain)
            cursor.end = cursor.at + PyBytes_GET_SIZE(plain)
            if read_row(cursor, &self.root):
                return 0
            if cursor.no_memory:
                raise MemoryError
            raise ValueError(f"the plain form of an unusual row cannot be read: {plain[:1000]!r}")
        invalid[row] = answer
        if not append_null(cursor, &self.root):
            raise MemoryError
        return 0


cdef int add_children(Column* column, fields) except -1:
    cdef Py_ssize_t i
    cdef Column* child
    cdef bytes encoded
    column.children = <Column*>PyMem_RawCalloc(max(len(fields), 1), sizeof(Column))
    if column.children == NULL:
        raise MemoryError
    column.child_count = len(fields)
    for i in range(len(fields)):
        name, kind, is_trimmed, precision, scale, children = fields[i]
        child = &column.children[i]
        encoded = name.encode()
        child.name = <uint8_t*>PyMem_RawCalloc(len(encoded) + 1, 1)
        if child.name == NULL:
            raise MemoryError
        memcpy(child.name, PyBytes_AS_STRING(encoded), len(encoded))
        child.name_size = len(encoded)
        child.kind, child.is_trimmed, child.precision, child.scale = kind, is_trimmed, precision, scale
        if kind == INTEGER:
            child.width = precision // 8
            child.highest = (<int64_t>1 << (precision - 2)) - 1 + (<int64_t>1 << (precision - 2))
            child.lowest = -child.highest - 1
        elif kind == DECIMAL:
            child.width = 16
        elif kind == TIMESTAMP:
            child.width = 8
        elif kind == BOOLEAN:
            child.width = 1
        add_children(child, children)
    return 0


cdef object _pack_bits(Bytes* flags):
    """Returns flags of one byte each as a bitmap."""
    cdef bytearray bitmap = bytearray((flags.size + 7) // 8)
    cdef uint8_t* bits = <uint8_t*>PyByteArray_AS_STRING(bitmap)
    cdef Py_ssize_t i
    for i in range(flags.size):
        bits[i >> 3] |= flags.data[i] << (i & 7)
    return bitmap


cdef object _validity(Column* column):
    """Returns the validity bitmap and the number of nulls; (None, 0) without nulls."""
    cdef Py_ssize_t i, valid = 0
    for i in range(column.count):
        valid += column.valid.data[i]
    if valid == column.count:
        return None, 0
    return _pack_bits(&column.valid), column.count - valid


cdef object _buffers(Column* column):
    """Returns a column: its length, its validity, its buffers after the validity, and its children."""
    cdef int i
    buffers = []
    if column.kind == BOOLEAN:
        buffers.append(_pack_bits(&column.fixed))
    elif column.kind != STRUCT:
        buffers.append(PyBytes_FromStringAndSize(<const char*>column.fixed.data, column.fixed.size))
    if column.kind == TEXT or column.kind == JSON_TEXT:
        buffers.append(PyBytes_FromStringAndSize(<const char*>column.text.data, column.text.size))
    children = [_buffers(&column.children[i]) for i in range(column.child_count)]
    return column.count, _validity(column), buffers, children
