"""Encodes messages.

A message is written into one growing buffer, on the stack while it is small. Records that are an object with a length
instead of bytes (a slice of a file) are not copied: the frame is then a list of parts, bytes and slices in turn, and
its size field includes them all. Fields that the version lacks are skipped, and tagged fields with their default, too.

A message that cannot be encoded raises TypeError (None in a field that is not nullable, a value of a wrong type) or
ValueError (a number out of range, a string too long), which names the field: the caller's message is wrong.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AsDouble
from cpython.list cimport PyList_Check
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_Check
from cpython.object cimport Py_EQ, Py_TYPE, PyObject, PyObject_RichCompareBool, PyObject_Size, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_Check
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from headrace.protocol._message cimport slot_at
from headrace.protocol._program cimport (
    BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UINT16, UUID, Op, Path, Program, describe,
    enter, give_way, program_of,
)
from headrace.records._wire cimport size_of_unsigned, store16, store32, store64, write_unsigned

from uuid import UUID as UUID_CLASS

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    int _PyBytes_Resize(PyObject** bytes, Py_ssize_t size) except -1
    PyObject* PySequence_Fast_GET_ITEM(object sequence, Py_ssize_t index) noexcept
    Py_ssize_t PySequence_Fast_GET_SIZE(object sequence) noexcept
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1


cdef enum:
    SCRATCH = 1024
    LARGEST = 0x7FFFFFFF

cdef enum:
    API_VERSIONS = 18

cdef struct Writer:
    uint8_t* data           # the output: `scratch` or the content of `chunk`
    Py_ssize_t size
    Py_ssize_t capacity
    PyObject* chunk         # a bytes object, or NULL; owned
    PyObject* parts         # the list of parts, or NULL; owned
    Py_ssize_t written      # bytes in `parts`
    bint takes_parts
    Py_ssize_t largest_copy # larger records become a part and are not copied; -1 copies all
    PyObject* program       # of the whole message
    bint gives_way          # lets other threads run once in a while
    int unpaused            # elements since it last did
    Path path
    uint8_t[SCRATCH] scratch


# ---- the buffer

cdef inline void begin(Writer* writer, Program program, bint takes_parts) noexcept:
    writer.data = writer.scratch
    writer.size = 0
    writer.capacity = SCRATCH
    writer.chunk = NULL
    writer.parts = NULL
    writer.written = 0
    writer.takes_parts = takes_parts
    writer.largest_copy = -1
    writer.program = <PyObject*>program
    writer.gives_way = False
    writer.unpaused = 0
    writer.path.depth = 0


cdef inline void discard(Writer* writer) noexcept:
    Py_XDECREF(writer.chunk)
    Py_XDECREF(writer.parts)


cdef inline uint8_t* reserve(Writer* writer, Py_ssize_t size) except NULL:
    """Reserves `size` bytes at the end, which count as written."""
    if writer.capacity - writer.size < size:
        grow(writer, size)
    writer.size += size
    return writer.data + writer.size - size


cdef int grow(Writer* writer, Py_ssize_t size) except -1:
    cdef Py_ssize_t capacity = max(2 * writer.capacity, writer.size + size + 256)
    if writer.size + size > LARGEST:
        raise ValueError("the message exceeds 2 GB")
    if writer.chunk is NULL:
        chunk = PyBytes_FromStringAndSize(NULL, capacity)
        memcpy(PyBytes_AS_STRING(chunk), writer.data, writer.size)
        Py_INCREF(chunk)
        writer.chunk = <PyObject*>chunk
    else:
        _PyBytes_Resize(&writer.chunk, capacity)
    writer.data = <uint8_t*>PyBytes_AS_STRING(<object>writer.chunk)
    writer.capacity = capacity
    return 0


cdef object take_chunk(Writer* writer):
    """Returns the output as bytes and empties the buffer."""
    if writer.chunk is NULL:
        chunk = PyBytes_FromStringAndSize(<const char*>writer.data, writer.size)
    else:
        _PyBytes_Resize(&writer.chunk, writer.size)
        chunk = <object>writer.chunk
        Py_DECREF(chunk)
        writer.chunk = NULL
    writer.data = writer.scratch
    writer.size = 0
    writer.capacity = SCRATCH
    return chunk


cdef int add_part(Writer* writer, object part, Py_ssize_t size) except -1:
    if writer.parts is NULL:
        made = []
        Py_INCREF(made)
        writer.parts = <PyObject*>made
    parts = <list>writer.parts
    writer.written += writer.size + size
    parts.append(take_chunk(writer))
    parts.append(part)
    return 0


cdef object finish(Writer* writer, bint is_frame):
    """Returns the bytes or parts. A frame starts with its size."""
    cdef Py_ssize_t total = writer.written + writer.size
    cdef uint8_t* head
    if total - 4 * is_frame > LARGEST:
        raise ValueError(f"a frame of {total - 4} bytes exceeds the maximum of {LARGEST}")
    if writer.parts is NULL:
        if is_frame:
            store32(writer.data, <uint32_t>(total - 4))
        return take_chunk(writer)
    parts = <list>writer.parts
    if writer.size:
        parts.append(take_chunk(writer))
    # The first part is a bytes object without other references, so it may be changed.
    head = <uint8_t*>PyBytes_AS_STRING(parts[0])
    store32(head, <uint32_t>(total - 4))
    return parts


cdef inline int put_varint(Writer* writer, uint64_t value) except -1:
    if value < 0x80:
        reserve(writer, 1)[0] = <uint8_t>value
    else:
        write_unsigned(reserve(writer, size_of_unsigned(value)), value)
    return 0


cdef inline int put_length(Writer* writer, Op* op, Py_ssize_t length, bint is_short) except -1:
    """Writes a length; -1 for null."""
    if length > LARGEST - 1:
        raise ValueError(f"{field_name(writer, op)}: {length} is too long")
    if op.compact:
        put_varint(writer, length + 1)
    elif is_short:
        store16(reserve(writer, 2), <uint16_t>length)
    else:
        store32(reserve(writer, 4), <uint32_t>length)
    return 0


# ---- values

cdef str field_name(Writer* writer, Op* op):
    program = <Program>writer.program
    return f"{(<object>program.type).__name__} v{program.version}: {describe(&writer.path, op)}"


cdef int wrong_type(Writer* writer, Op* op, object value, str expected) except -1:
    shown = "None" if value is None else type(value).__name__
    raise TypeError(f"{field_name(writer, op)}: {expected} expected, not {shown}")


cdef inline int64_t integer(Writer* writer, Op* op, PyObject* value, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(<object>value):
        return converted_integer(writer, op, <object>value, low, high)
    number = PyLong_AsLongLongAndOverflow(<object>value, &overflow)
    if overflow or number < low or number > high:
        raise ValueError(f"{field_name(writer, op)}: {<object>value} is not between {low} and {high}")
    return number


cdef int64_t converted_integer(Writer* writer, Op* op, object value, int64_t low, int64_t high) except? -1:
    """Converts a value with `__index__` to int, such as numpy's numbers."""
    if not hasattr(value, "__index__"):
        wrong_type(writer, op, value, "an int")
    number = value.__index__()
    if not PyLong_Check(number):
        wrong_type(writer, op, value, "an int")
    return integer(writer, op, <PyObject*>number, low, high)


cdef int write_string(Writer* writer, Op* op, object value) except -1:
    cdef Py_ssize_t size
    cdef const char* text
    if not PyUnicode_Check(value):
        wrong_type(writer, op, value, "a str")
    try:
        text = PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError as error:
        raise ValueError(f"{field_name(writer, op)}: the string cannot be encoded as UTF-8") from error
    if size > 0x7FFF:
        raise ValueError(f"{field_name(writer, op)}: the string has {size} bytes; at most {0x7FFF} are allowed")
    put_length(writer, op, size, True)
    memcpy(reserve(writer, size), text, size)
    return 0


cdef int write_bytes(Writer* writer, Op* op, object value) except -1:
    cdef Py_buffer buffer
    if PyBytes_CheckExact(value):
        put_length(writer, op, PyBytes_GET_SIZE(value), False)
        memcpy(reserve(writer, PyBytes_GET_SIZE(value)), PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        return 0
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    try:
        put_length(writer, op, buffer.len, False)
        if buffer.len:
            memcpy(reserve(writer, buffer.len), buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)
    return 0


cdef int write_records(Writer* writer, Op* op, object value) except -1:
    """Writes bytes, or adds an object with a length as a part."""
    cdef Py_ssize_t size
    if PyObject_CheckBuffer(value):
        if writer.largest_copy < 0 or len(value) <= writer.largest_copy:
            return write_bytes(writer, op, value)
        view = memoryview(value).cast("B")
        put_length(writer, op, len(view), False)
        return add_part(writer, view, len(view))
    if not writer.takes_parts or isinstance(value, (str, list, tuple, dict)) or not hasattr(value, "__len__"):
        wrong_type(writer, op, value, "bytes or a slice" if writer.takes_parts else "bytes")
    size = PyObject_Size(value)
    put_length(writer, op, size, False)
    return add_part(writer, value, size) if size else 0


cdef int write_uuid(Writer* writer, Op* op, object value) except -1:
    cdef uint8_t* to
    if not isinstance(value, UUID_CLASS):
        wrong_type(writer, op, value, "a Uuid")
    number = value.int
    to = reserve(writer, 16)
    store64(to, PyLong_AsUnsignedLongLong(number >> 64))
    store64(to + 8, PyLong_AsUnsignedLongLong(number & 0xFFFFFFFFFFFFFFFF))
    return 0


cdef int write_float(Writer* writer, Op* op, object value) except -1:
    cdef double number
    cdef uint64_t bits
    if not isinstance(value, (float, int)):
        wrong_type(writer, op, value, "a float")
    number = PyFloat_AsDouble(value)
    memcpy(&bits, &number, 8)
    store64(reserve(writer, 8), bits)
    return 0


cdef int write_null(Writer* writer, Op* op) except -1:
    if op.kind == STRUCT and not op.is_array:
        reserve(writer, 1)[0] = 0xFF
        return 0
    return put_length(writer, op, -1, op.kind == STRING and not op.is_array)


cdef int write_value(Writer* writer, Op* op, PyObject* value) except -1:
    """Writes a field that is not an array, or an element of an array."""
    cdef int kind = op.kind
    cdef int64_t number
    if kind == INT32:
        number = integer(writer, op, value, -0x80000000, 0x7FFFFFFF)
        store32(reserve(writer, 4), <uint32_t>number)
    elif kind == INT64:
        number = integer(writer, op, value, INT64_MIN, INT64_MAX)
        store64(reserve(writer, 8), <uint64_t>number)
    elif kind == INT16:
        number = integer(writer, op, value, -0x8000, 0x7FFF)
        store16(reserve(writer, 2), <uint16_t>number)
    elif kind == STRING:
        write_string(writer, op, <object>value)
    elif kind == STRUCT:
        if op.nullable and not op.is_array:
            reserve(writer, 1)[0] = 1
        write_nested(writer, op, <object>value, -1)
    elif kind == RECORDS:
        write_records(writer, op, <object>value)
    elif kind == BYTES:
        if not PyObject_CheckBuffer(<object>value):
            wrong_type(writer, op, <object>value, "bytes")
        write_bytes(writer, op, <object>value)
    elif kind == BOOL:
        number = integer(writer, op, value, 0, 1)
        reserve(writer, 1)[0] = <uint8_t>number
    elif kind == INT8:
        number = integer(writer, op, value, -0x80, 0x7F)
        reserve(writer, 1)[0] = <uint8_t>number
    elif kind == UINT16:
        number = integer(writer, op, value, 0, 0xFFFF)
        store16(reserve(writer, 2), <uint16_t>number)
    elif kind == UUID:
        write_uuid(writer, op, <object>value)
    else:
        write_float(writer, op, <object>value)
    return 0


cdef inline int write_nested(Writer* writer, Op* op, object value, Py_ssize_t index) except -1:
    cdef Program program = <Program>op.program
    # The program accesses slots by their offsets, so the object must be of exactly this class.
    if Py_TYPE(value) is not program.type:
        wrong_type(writer, op, value, f"a {(<object>program.type).__name__}")
    enter(&writer.path, op, index)
    write_struct(writer, program, value)
    writer.path.depth -= 1
    return 0


cdef int write_array(Writer* writer, Op* op, object values) except -1:
    cdef Py_ssize_t index, count
    if not PyList_Check(values) and not PyTuple_Check(values):
        wrong_type(writer, op, values, "a list")
    count = PySequence_Fast_GET_SIZE(values)
    put_length(writer, op, count, False)
    for index in range(count):
        # Writing an element may run user code, which may change the list.
        if index >= PySequence_Fast_GET_SIZE(values):
            raise ValueError(f"{field_name(writer, op)}: the list changed while it was written")
        value = <object>PySequence_Fast_GET_ITEM(values, index)
        if op.kind == STRUCT:
            write_nested(writer, op, value, index)
        else:
            write_value(writer, op, <PyObject*>value)
        if writer.gives_way:
            give_way(&writer.unpaused)
    return 0


cdef inline int write_field(Writer* writer, Op* op, PyObject* value) except -1:
    if value is <PyObject*>None:
        if not op.nullable:
            wrong_type(writer, op, None, "a value that is not null")
        return write_null(writer, op)
    if op.is_array:
        return write_array(writer, op, <object>value)
    return write_value(writer, op, value)


cdef int write_struct(Writer* writer, Program program, object message) except -1:
    cdef Py_ssize_t number
    cdef Op* op
    for number in range(program.op_count):
        op = &program.ops[number]
        # Keep a reference: writing the value may run user code, which may change the message.
        value = read_slot(writer, op, message)
        write_field(writer, op, <PyObject*>value)
    if program.flexible:
        if program.tagged_count:
            write_tags(writer, program, message)
        else:
            reserve(writer, 1)[0] = 0
    return 0


cdef inline object read_slot(Writer* writer, Op* op, object message):
    cdef PyObject* value = slot_at(<PyObject*>message, op.offset)[0]
    if value is NULL:
        raise TypeError(f"{field_name(writer, op)}: the attribute was deleted")
    return <object>value


cdef int write_tags(Writer* writer, Program program, object message) except -1:
    """Writes the tagged fields. Count and sizes are written afterwards; tagged fields contain no parts."""
    cdef Py_ssize_t number, start, size, extra
    cdef Py_ssize_t count_at = writer.size
    cdef uint8_t count = 0
    cdef Op* op
    reserve(writer, 1)
    for number in range(program.tagged_count):
        op = &program.tagged[number]
        value = read_slot(writer, op, message)
        if is_default(op, value):
            continue
        count += 1
        put_varint(writer, op.tag)
        start = writer.size
        reserve(writer, 1)
        write_field(writer, op, <PyObject*>value)
        size = writer.size - start - 1
        extra = size_of_unsigned(size) - 1
        if extra:
            reserve(writer, extra)
            memmove(writer.data + start + 1 + extra, writer.data + start + 1, size)
        write_unsigned(writer.data + start, size)
    writer.data[count_at] = count
    return 0


cdef bint is_default(Op* op, object value) except -1:
    if <PyObject*>value is op.default:
        return True
    if op.kind == STRUCT and not op.is_array and value is None:
        return not op.nullable
    return PyObject_RichCompareBool(value, <object>op.default, Py_EQ)


# ---- whole messages

def encode(message, Py_ssize_t version):
    """Encodes a message without a header."""
    cdef Writer writer
    cdef Program program = program_of(type(message), version)
    begin(&writer, program, False)
    try:
        write_struct(&writer, program, message)
        return finish(&writer, False)
    finally:
        discard(&writer)


def encode_response(message, Py_ssize_t version, int32_t correlation_id, bint gives_way=False):
    """Encodes a frame: size, header and message. Returns a list of parts if the records contain file slices.

    With `gives_way` it lets other threads run often: call it so in a thread of its own.
    """
    cdef Writer writer
    cdef Program program = program_of(type(message), version)
    begin(&writer, program, True)
    writer.gives_way = gives_way
    store32(reserve(&writer, 8) + 4, <uint32_t>correlation_id)
    try:
        if program.flexible and program.api_key != API_VERSIONS:
            reserve(&writer, 1)[0] = 0
        write_struct(&writer, program, message)
        return finish(&writer, True)
    finally:
        discard(&writer)


def encode_request(message, Py_ssize_t version, int32_t correlation_id, str client_id, Py_ssize_t largest_copy=-1):
    """Encodes a frame: size, header and message. Records larger than `largest_copy` bytes are not copied; the frame is
    then a list of parts with views of them."""
    cdef Writer writer
    cdef Op header
    cdef uint8_t* to
    cdef Program program = program_of(type(message), version)
    begin(&writer, program, False)
    writer.largest_copy = largest_copy
    to = reserve(&writer, 12)
    store16(to + 4, <uint16_t>program.api_key)
    store16(to + 6, <uint16_t>version)
    store32(to + 8, <uint32_t>correlation_id)
    header.kind = STRING
    header.is_array = False
    header.compact = False
    header.name = <PyObject*>CLIENT_ID
    try:
        if client_id is None:
            write_null(&writer, &header)
        else:
            write_string(&writer, &header, client_id)
        if program.flexible:
            reserve(&writer, 1)[0] = 0
        write_struct(&writer, program, message)
        return finish(&writer, True)
    finally:
        discard(&writer)


cdef str CLIENT_ID = "client_id"
