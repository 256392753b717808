"""Reads JSON objects into Arrow columns. See `json_columns`.

The reader accepts only plain JSON, for which all parsers agree. Everything else is *unusual*: a value of another type,
a repeated field, an invalid escape, text that is not UTF-8, text after the object, deep nesting, and so on. An unusual
row goes to a function in Python, which returns the same row as plain JSON, or why the row is invalid.

Plain JSON from that function is *trusted* and may contain what the reader does not read from others: text in columns
of JSON text, decimals of up to 18 digits, timestamps as microseconds and dates as days since 1970, and the strings
"NaN", "Infinity" and "-Infinity" as numbers.

Columns are C structs that grow with each row. A row that turns out to be unusual is removed from all of them.

    TEXT       int32 offsets, bytes          STRUCT    children
    LIST       int32 offsets, one child      MAP       as LIST; the child is a struct of name and value
                                             others    values of `width` bytes

Invariants:
- No byte outside `[at, end)` is read. Every append reserves its memory first.
- Between rows, all children of a struct have as many entries as the struct.
- A reader belongs to one thread.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from headrace.pipelines._json_scalars cimport (
    read_day,
    read_digits,
    read_int,
    read_name_of_number,
    read_number,
    read_zone,
)
from headrace.pipelines._json_text cimport (
    BOOLEAN,
    DATE,
    DECIMAL,
    FLOATING,
    INTEGER,
    JSON_TEXT,
    LIST,
    MAP,
    MAX_DIGITS,
    MAX_NAME,
    MAX_PLAIN_DIGITS,
    STRUCT,
    TEXT,
    TIMESTAMP,
    Bytes,
    Cursor,
    append,
    append_byte,
    append_offset,
    copy_value,
    find_name,
    find_quote,
    is_delimiter,
    reserve,
    skip_literal,
    skip_space,
    skip_value,
    unescape,
)

cdef enum:
    MAX_TEXT = 0x7FFFFFFF

cdef double SMALLEST_NORMAL_FLOAT = 2.0 ** -126

cdef struct Column:
    int kind
    bint is_trimmed
    bint is_database_time
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

cdef int64_t[19] POWERS
POWERS[0] = 1
for _power in range(1, 19):
    POWERS[_power] = POWERS[_power - 1] * 10

# ---- columns

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
    if column.kind == LIST or column.kind == MAP:
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
    elif column.kind == LIST or column.kind == MAP or column.kind == TEXT or column.kind == JSON_TEXT:
        column.fixed.size = (count + 1) * 4
        content = (<int32_t*>column.fixed.data)[count]
        if column.kind == LIST or column.kind == MAP:
            truncate(&column.children[0], content)
        else:
            column.text.size = content
    else:
        column.fixed.size = count * column.width


cdef bint clear(Cursor* cursor, Column* column) noexcept nogil:
    cdef int i
    column.count = column.valid.size = column.fixed.size = column.text.size = 0
    column.next_child = 0
    if column.kind == LIST or column.kind == MAP or column.kind == TEXT or column.kind == JSON_TEXT:
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
        memmove(text, begin, size)  # unescaped text is moved over itself
    column.text.size += size
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append_offset(cursor, &column.fixed, column.text.size)


cdef bint read_json_text(Cursor* cursor, Column* column) noexcept nogil:
    if cursor.at[0] == 34:
        return cursor.is_trusted and read_text(cursor, column)
    if cursor.at[0] != 123 and cursor.at[0] != 91:
        return False
    if not copy_value(cursor, &column.text, 0) or column.text.size > MAX_TEXT:
        return False
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append_offset(cursor, &column.fixed, column.text.size)


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


cdef bint read_floating(Cursor* cursor, Column* column) noexcept nogil:
    """Reads a double or float. A number halfway between two floats is unusual: its digits decide."""
    cdef double value = 0
    cdef float short_value
    cdef uint64_t bits
    if cursor.at[0] == 34:
        if not cursor.is_trusted or not read_name_of_number(cursor, &value):
            return False
    elif not read_number(cursor, &value):
        return False
    if column.width == 8:
        return append_value(cursor, column, &value)
    if not cursor.is_trusted and value != 0:
        memcpy(&bits, &value, 8)
        if (bits & 0x1FFFFFFF) == 0x10000000 or fabs(value) < SMALLEST_NORMAL_FLOAT:
            return False
    short_value = <float>value
    return append_value(cursor, column, &short_value)


cdef bint read_timestamp(Cursor* cursor, Column* column) noexcept nogil:
    """Reads "2026-01-31 23:59:59", with up to six decimals; if the column does not only have times of databases, also
    with T and a time zone."""
    cdef const uint8_t* at = NULL
    cdef const uint8_t* stop = NULL
    cdef bint has_escape = False
    cdef int hour, minute, second, decimals = 0, fraction = 0
    cdef int64_t micros = 0, days = 0, zone = 0
    if cursor.at[0] != 34:
        return cursor.is_trusted and read_int(cursor, &micros) and append_value(cursor, column, &micros)
    if not find_quote(cursor, &at, &stop, &has_escape) or has_escape or stop - at < 19 or stop - at > 32:
        return False
    hour, minute, second = read_digits(at + 11, 2), read_digits(at + 14, 2), read_digits(at + 17, 2)
    if (at[10] != 32 and (at[10] != 84 or column.is_database_time)) or at[13] != 58 or at[16] != 58:
        return False
    if not read_day(at, &days):
        return False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    at += 19
    if at < stop and at[0] == 46:
        at += 1
        while at + decimals < stop and 48 <= at[decimals] <= 57:
            decimals += 1
        if not 1 <= decimals <= 6:
            return False
        fraction = read_digits(at, decimals) * <int>POWERS[6 - decimals]
        at += decimals
    if column.is_database_time:
        if at != stop:
            return False
    elif not read_zone(at, stop, &zone):
        return False
    micros = (days * 86400 + hour * 3600 + minute * 60 + second - zone) * 1000000 + fraction
    return append_value(cursor, column, &micros)


cdef bint read_date(Cursor* cursor, Column* column) noexcept nogil:
    """Reads "2026-01-31"."""
    cdef const uint8_t* at = NULL
    cdef const uint8_t* stop = NULL
    cdef bint has_escape = False
    cdef int64_t days = 0
    if cursor.at[0] != 34:
        return cursor.is_trusted and read_int(cursor, &days) and append_value(cursor, column, &days)
    if not find_quote(cursor, &at, &stop, &has_escape) or has_escape or stop - at != 10 or not read_day(at, &days):
        return False
    return append_value(cursor, column, &days)  # little endian: the low bytes come first


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


cdef bint read_map(Cursor* cursor, Column* column) noexcept nogil:
    """Reads an object as its names and values, also if names are repeated."""
    cdef Column* entries = &column.children[0]
    cdef Py_ssize_t name_end
    if cursor.at[0] != 123:
        return False
    cursor.at += 1
    if not skip_space(cursor):
        return False
    if cursor.at[0] == 125:
        cursor.at += 1
    else:
        while True:
            name_end = entries.children[0].text.size
            if entries.count >= MAX_TEXT or cursor.at[0] != 34 or not read_text(cursor, &entries.children[0]):
                return False
            if entries.children[0].text.size - name_end > MAX_NAME and not cursor.is_trusted:
                return False
            if not skip_space(cursor) or cursor.at[0] != 58:
                return False
            cursor.at += 1
            if not skip_space(cursor) or not read_value(cursor, &entries.children[1]):
                return False
            if not append_byte(cursor, &entries.valid, 1):
                return False
            entries.count += 1
            if not skip_space(cursor):
                return False
            if cursor.at[0] == 125:
                cursor.at += 1
                break
            if cursor.at[0] != 44:
                return False
            cursor.at += 1
            if not skip_space(cursor):
                return False
    column.count += 1
    return append_byte(cursor, &column.valid, 1) and append_offset(cursor, &column.fixed, entries.count)


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
    if column.kind == FLOATING:
        return read_floating(cursor, column)
    if column.kind == DATE:
        return read_date(cursor, column)
    if column.kind == MAP:
        return read_map(cursor, column)
    return read_boolean(cursor, column)


cdef bint read_row(Cursor* cursor, Column* root) noexcept nogil:
    """Reads an object with white space around it. Returns False if the row is unusual."""
    if not skip_space(cursor) or not read_struct(cursor, root):
        return False
    return not skip_space(cursor)


# ---- the reader

cdef class JsonReader:
    """Reads rows of one schema.

    `fields`: a tuple for each field: name, kind, flag, precision, scale, and the fields of a struct, or the element of
    a list, or the entries of a map as the only field. The flag says that text is trimmed, or that a timestamp has the
    format of databases.
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
        name, kind, flag, precision, scale, children = fields[i]
        child = &column.children[i]
        encoded = name.encode()
        child.name = <uint8_t*>PyMem_RawCalloc(len(encoded) + 1, 1)
        if child.name == NULL:
            raise MemoryError
        memcpy(child.name, PyBytes_AS_STRING(encoded), len(encoded))
        child.name_size = len(encoded)
        child.kind, child.precision, child.scale = kind, precision, scale
        child.is_trimmed, child.is_database_time = flag and kind == TEXT, flag and kind == TIMESTAMP
        if kind == INTEGER:
            child.width = precision // 8
            child.highest = (<int64_t>1 << (precision - 2)) - 1 + (<int64_t>1 << (precision - 2))
            child.lowest = -child.highest - 1
        elif kind == DECIMAL:
            child.width = 16
        elif kind == TIMESTAMP:
            child.width = 8
        elif kind == FLOATING:
            child.width = precision // 8
        elif kind == DATE:
            child.width = 4
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
