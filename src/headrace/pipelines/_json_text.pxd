"""JSON text: reads tokens, copies values. The lower half of `_json_reader`.

Functions return False if the text is unusual, or if there is no memory, which `Cursor.no_memory` tells. Bytes are
written as numbers: 34 is a quote, 92 a backslash, 123 and 125 are braces, 91 and 93 brackets, 44 a comma, 58 a colon.

Invariant: no byte outside of `[at, end)` is read. Every append reserves its memory first.
"""

from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    /* What a byte is inside a string: 0 plain ASCII, 1 quote, 2 backslash, 3 control character, 4 not ASCII. */
    static const unsigned char headrace_byte_class[256] = {
        [0 ... 31] = 3, [34] = 1, [92] = 2, [128 ... 255] = 4
    };
    """
    const uint8_t* byte_class "headrace_byte_class"

cdef enum:  # the type of a column, as in `json_columns`
    TEXT = 1
    JSON_TEXT = 2
    INTEGER = 3
    DECIMAL = 4
    TIMESTAMP = 5
    BOOLEAN = 6
    STRUCT = 7
    LIST = 8
    MAP = 9
    FLOATING = 10
    DATE = 11

cdef enum:
    MAX_DEPTH = 20
    MAX_KEYS = 100
    MAX_NAME = 10000
    MAX_PLAIN_DIGITS = 15
    MAX_DIGITS = 18

cdef struct Bytes:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint is_trusted
    bint no_memory


# ---- memory

cdef inline bint reserve(Cursor* cursor, Bytes* into, Py_ssize_t more) noexcept nogil:
    if into.size + more < into.capacity:  # so there is memory even for nothing
        return True
    return grow(cursor, into, more)


cdef inline bint grow(Cursor* cursor, Bytes* into, Py_ssize_t more) noexcept nogil:
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


cdef inline bint skip_literal(Cursor* cursor, const char* literal, Py_ssize_t size) noexcept nogil:
    if cursor.end - cursor.at < size or memcmp(cursor.at, literal, size) != 0:
        return False
    cursor.at += size
    return is_delimiter(cursor)


cdef inline const uint8_t* skip_character(const uint8_t* at, const uint8_t* end) noexcept nogil:
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


cdef inline bint find_quote(Cursor* cursor, const uint8_t** begin, const uint8_t** stop, bint* has_escape) noexcept nogil:
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


cdef inline bint find_name(Cursor* cursor, const uint8_t** begin, const uint8_t** stop) noexcept nogil:
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


cdef inline int read_hex(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef int i, digit, value = 0
    if end - at < 4:
        return -1
    for i in range(4):
        digit = hex_digit(at[i])
        if digit < 0:
            return -1
        value = value * 16 + digit
    return value


cdef inline const uint8_t* read_escape(const uint8_t* at, const uint8_t* end, uint32_t* character) noexcept nogil:
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


cdef inline int encode(uint32_t character, uint8_t* to) noexcept nogil:
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


cdef inline Py_ssize_t unescape(const uint8_t* at, const uint8_t* stop, uint8_t* to) noexcept nogil:
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


cdef inline bint skip_number(Cursor* cursor) noexcept nogil:
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


cdef inline bint skip_value(Cursor* cursor, int depth) noexcept nogil:
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

cdef inline bint copy_string(Cursor* cursor, Bytes* to) noexcept nogil:
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


cdef inline int write_unit(uint32_t unit, uint8_t* to) noexcept nogil:
    """Writes a UTF-16 code unit as an escape."""
    cdef int i
    cdef uint8_t digit
    to[0], to[1] = 92, 117
    for i in range(4):
        digit = (unit >> (12 - 4 * i)) & 15
        to[2 + i] = digit + (48 if digit < 10 else 55)
    return 6


cdef inline int write_escaped(uint32_t character, uint8_t* to) noexcept nogil:
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


cdef inline bint copy_number(Cursor* cursor, Bytes* to) noexcept nogil:
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


cdef inline bint copy_value(Cursor* cursor, Bytes* to, int depth) noexcept nogil:
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
