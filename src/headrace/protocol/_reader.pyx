"""Decodes messages from untrusted bytes.

Every length is compared with the remaining bytes before it is used. An array must have room for the number of elements
that it claims, at their smallest size, and all arrays of the message together must not exceed a given number of
elements. Invalid input raises ProtocolError, which names the field and the byte. Unknown tags (KIP-482) and bytes after
the message are ignored. Records are views of the buffer; everything else is copied.

    compact length  varint, one more than the length; 0 is null
    plain length    int16 of a string, int32 of bytes and arrays; negative is null
    tags            varint count, then each: varint tag, varint size, content
    nullable struct int8, negative is null, and the struct (KIP-893)
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_FromDouble
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong, PyLong_FromUnsignedLongLong
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headrace.protocol._message cimport allocate, slot_at, slot_offset
from headrace.protocol._program cimport (
    BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UINT16, UUID, Op, Path, Program, describe,
    enter, give_way, program_of,
)
from headrace.records._wire cimport load16, load32, load64

from uuid import UUID as UUID_CLASS

from headrace.common.ids import ZERO_UUID, Uuid
from headrace.protocol.api_keys import VERSIONS
from headrace.protocol.header import RequestHeader
from headrace.protocol.message import ProtocolError, TooManyElementsError

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)
    Py_buffer* PyMemoryView_GET_BUFFER(object view) noexcept
    bint PyMemoryView_Check(object o) noexcept
    Py_ssize_t PY_SSIZE_T_MAX


cdef struct Reader:
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end      # of the frame, or of a tagged field while that is read
    PyObject* source        # the buffer
    PyObject* view          # of the buffer, created for the first records; owned
    PyObject* program       # of the whole message
    Py_ssize_t elements     # of all arrays so far
    Py_ssize_t max_elements
    bint gives_way          # lets other threads run once in a while
    int unpaused            # elements since it last did
    Path path


cdef object fail(Reader* reader, Op* op, str what):
    name = (<object>(<Program>reader.program).type).__name__
    where = describe(&reader.path, op) or "tags"
    version = (<Program>reader.program).version
    raise ProtocolError(f"{name} v{version}: {where}: {what} (at byte {reader.at - reader.start})")


cdef inline int need(Reader* reader, Op* op, Py_ssize_t size) except -1:
    if reader.end - reader.at < size:
        fail(reader, op, f"{size} bytes expected, but {reader.end - reader.at} are left")
    return 0


cdef inline uint32_t read_varint(Reader* reader, Op* op) except? 0xFFFFFFFF:
    cdef uint32_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    if reader.at < reader.end and reader.at[0] < 0x80:
        reader.at += 1
        return (reader.at - 1)[0]
    while shift < 35:
        need(reader, op, 1)
        byte = reader.at[0]
        if shift == 28 and byte > 0x0F:
            break
        reader.at += 1
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    fail(reader, op, "a varint of more than 32 bits")


cdef inline Py_ssize_t read_length(Reader* reader, Op* op, bint is_short) except -2:
    """Reads a length; -1 for null, if null is allowed. The caller compares it with the remaining bytes."""
    cdef Py_ssize_t length
    if op.compact:
        length = <Py_ssize_t>read_varint(reader, op) - 1
    elif is_short:
        need(reader, op, 2)
        length = <int16_t>load16(reader.at)
        reader.at += 2
    else:
        need(reader, op, 4)
        length = <int32_t>load32(reader.at)
        reader.at += 4
    if length < 0:
        if not op.nullable:
            fail(reader, op, "null, where a value must be" if length == -1 else f"a length of {length}")
        return -1
    return length


cdef object read_string(Reader* reader, Op* op, Py_ssize_t length):
    cdef const uint8_t* text = reader.at
    if length > 0x7FFF:
        fail(reader, op, f"a string of {length} bytes; {0x7FFF} are allowed")
    need(reader, op, length)
    try:
        decoded = PyUnicode_DecodeUTF8(<const char*>text, length, NULL)
    except UnicodeDecodeError as error:
        fail(reader, op, f"a string that is not UTF-8: {error.reason} at byte {error.start} of it")
    reader.at += length
    return decoded


cdef object read_records(Reader* reader, Op* op, Py_ssize_t length):
    """Returns a view of the buffer, which is writable if the buffer is."""
    cdef Py_ssize_t position = reader.at - reader.start
    cdef Py_buffer* shape
    need(reader, op, length)
    if reader.view is NULL:
        source = <object>reader.source
        view = source if PyMemoryView_Check(source) else memoryview(source)
        shape = PyMemoryView_GET_BUFFER(view)
        if shape.ndim != 1 or shape.itemsize != 1:
            view = view.cast("B")
        Py_INCREF(view)
        reader.view = <PyObject*>view
    reader.at += length
    return (<object>reader.view)[position:position + length]


cdef object read_uuid(const uint8_t* data):
    cdef uint64_t high = load64(data)
    cdef uint64_t low = load64(data + 8)
    if high == 0 and low == 0:
        return ZERO_UUID
    return make_uuid((PyLong_FromUnsignedLongLong(high) << 64) | PyLong_FromUnsignedLongLong(low))


cdef object make_uuid(object number):
    """Creates an id without the checks of its constructor, which take longer than a small message."""
    made = allocate(<PyTypeObject*>Uuid, 0)
    set_slot(slot_at(<PyObject*>made, INT_OFFSET), number)
    set_slot(slot_at(<PyObject*>made, IS_SAFE_OFFSET), UNKNOWN)
    return made


cdef Py_ssize_t INT_OFFSET = slot_offset(UUID_CLASS.__dict__["int"])
cdef Py_ssize_t IS_SAFE_OFFSET = slot_offset(UUID_CLASS.__dict__["is_safe"])
cdef object UNKNOWN = ZERO_UUID.is_safe


cdef object read_value(Reader* reader, Op* op):
    """Reads a field that is not an array, or an element of an array. Elements are never null."""
    cdef Py_ssize_t length
    cdef uint64_t bits
    cdef double number
    cdef int kind = op.kind
    cdef const uint8_t* at = reader.at
    if kind == INT32:
        need(reader, op, 4)
        reader.at += 4
        return PyLong_FromLong(<int32_t>load32(at))
    elif kind == INT64:
        need(reader, op, 8)
        reader.at += 8
        return PyLong_FromLongLong(<int64_t>load64(at))
    elif kind == INT16:
        need(reader, op, 2)
        reader.at += 2
        return PyLong_FromLong(<int16_t>load16(at))
    elif kind == STRING:
        length = read_length(reader, op, True)
        return None if length < 0 else read_string(reader, op, length)
    elif kind == STRUCT:
        return read_nullable_struct(reader, op) if op.nullable else read_nested(reader, op, -1)
    elif kind == RECORDS:
        length = read_length(reader, op, False)
        return None if length < 0 else read_records(reader, op, length)
    elif kind == BYTES:
        length = read_length(reader, op, False)
        if length < 0:
            return None
        need(reader, op, length)
        at = reader.at
        reader.at += length
        return PyBytes_FromStringAndSize(<const char*>at, length)
    elif kind == BOOL:
        need(reader, op, 1)
        reader.at += 1
        return at[0] != 0
    elif kind == INT8:
        need(reader, op, 1)
        reader.at += 1
        return PyLong_FromLong(<int8_t>at[0])
    elif kind == UINT16:
        need(reader, op, 2)
        reader.at += 2
        return PyLong_FromLong(load16(at))
    elif kind == UUID:
        need(reader, op, 16)
        reader.at += 16
        return read_uuid(at)
    else:
        need(reader, op, 8)
        reader.at += 8
        bits = load64(at)
        memcpy(&number, &bits, 8)
        return PyFloat_FromDouble(number)


cdef object read_nullable_struct(Reader* reader, Op* op):
    need(reader, op, 1)
    reader.at += 1
    return None if <int8_t>(reader.at - 1)[0] < 0 else read_nested(reader, op, -1)


cdef inline object read_nested(Reader* reader, Op* op, Py_ssize_t index):
    # The depth is bounded by the program's, which was checked at its compilation.
    enter(&reader.path, op, index)
    read = read_struct(reader, <Program>op.program)
    reader.path.depth -= 1
    return read


cdef object read_array(Reader* reader, Op* op):
    cdef Py_ssize_t index
    cdef Py_ssize_t count = read_length(reader, op, False)
    cdef Op element
    if count < 0:
        return None
    if count > (reader.end - reader.at) // op.element_size:
        fail(reader, op, f"an array of {count} elements, but {reader.end - reader.at} bytes are left")
    reader.elements += count
    if reader.elements > reader.max_elements:
        raise TooManyElementsError((<object>(<Program>reader.program).type).__name__, reader.elements)
    elements = PyList_New(count)
    if op.kind == STRUCT:
        for index in range(count):
            read = read_nested(reader, op, index)
            Py_INCREF(read)
            PyList_SET_ITEM(elements, index, read)
            if reader.gives_way:
                give_way(&reader.unpaused)
    else:
        element = op[0]
        element.nullable = False
        for index in range(count):
            read = read_value(reader, &element)
            Py_INCREF(read)
            PyList_SET_ITEM(elements, index, read)
            if reader.gives_way:
                give_way(&reader.unpaused)
    return elements


cdef inline object read_field(Reader* reader, Op* op):
    return read_array(reader, op) if op.is_array else read_value(reader, op)


cdef object read_struct(Reader* reader, Program program):
    cdef Py_ssize_t number
    cdef Op* op
    cdef object message = allocate(program.type, 0)
    for number in range(program.op_count):
        op = &program.ops[number]
        read = read_field(reader, op)
        Py_INCREF(read)
        slot_at(<PyObject*>message, op.offset)[0] = <PyObject*>read
    for number in range(program.absent_count):
        fill_default(program, message, program.absent[number])
    if program.flexible:
        if reader.at < reader.end and reader.at[0] == 0:
            reader.at += 1
        else:
            read_tags(reader, program, message)
        for number in range(program.tagged_count):
            fill_default(program, message, program.tagged[number].index)
    return message


cdef inline int fill_default(Program program, object message, Py_ssize_t index) except -1:
    cdef PyObject** slot = slot_at(<PyObject*>message, program.layout.offsets[index])
    if slot[0] is NULL:
        slot[0] = program.layout.make_default(index)
    return 0


cdef int read_tags(Reader* reader, Program program, object message) except -1:
    """Reads tagged fields in any order; if a tag occurs twice, the last one wins."""
    cdef uint32_t count = read_varint(reader, NULL)
    cdef uint32_t tag
    cdef Py_ssize_t size, number
    cdef const uint8_t* end
    cdef Op* op
    while count:
        count -= 1
        tag = read_varint(reader, NULL)
        size = read_varint(reader, NULL)
        need(reader, NULL, size)
        op = NULL
        for number in range(program.tagged_count):
            if <uint32_t>program.tagged[number].tag == tag:
                op = &program.tagged[number]
        if op is NULL:
            reader.at += size
            continue
        end = reader.end
        reader.end = reader.at + size
        read = read_field(reader, op)
        if reader.at != reader.end:
            fail(reader, op, f"{reader.end - reader.at} bytes too many in the tagged field")
        reader.end = end
        set_slot(slot_at(<PyObject*>message, op.offset), read)
    return 0


cdef inline void set_slot(PyObject** slot, object value) noexcept:
    cdef PyObject* old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(old)


def decode(
    cls,
    Py_ssize_t version,
    data,
    Py_ssize_t position=0,
    Py_ssize_t max_elements=PY_SSIZE_T_MAX,
    bint gives_way=False,
):
    """Reads a message and ignores the bytes after it.

    Raises ProtocolError; it is a TooManyElementsError if the arrays have more than `max_elements` elements in total.
    With `gives_way` it lets other threads run often: call it so in a thread of its own.
    """
    cdef Reader reader
    cdef Py_buffer buffer
    if not isinstance(cls, type):
        raise TypeError(f"{cls!r} is not a message class")
    cdef Program program = program_of(cls, version)
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    reader.view = NULL
    try:
        if not 0 <= position <= buffer.len:
            raise ProtocolError(f"{cls.__name__} v{version}: position {position} in a frame of {buffer.len} bytes")
        reader.start = <const uint8_t*>buffer.buf
        reader.at = reader.start + position
        reader.end = reader.start + buffer.len
        reader.source = <PyObject*>data
        reader.program = <PyObject*>program
        reader.elements = 0
        reader.max_elements = max_elements
        reader.gives_way = gives_way
        reader.unpaused = 0
        reader.path.depth = 0
        return read_struct(&reader, program)
    finally:
        Py_XDECREF(reader.view)
        PyBuffer_Release(&buffer)


# ---- the header of requests

cdef enum:
    KEYS = 256

cdef int16_t[KEYS] first_flexible
cdef int16_t[KEYS] last_known

cdef int fill_tables() except -1:
    cdef int key
    for key in range(KEYS):
        first_flexible[key] = 0
        last_known[key] = -1
    for key, (_, _, last, flexible) in VERSIONS.items():
        first_flexible[key] = last + 1 if flexible < 0 else flexible
        last_known[key] = last
    return 0

fill_tables()


cdef object header_failed(str what, Py_ssize_t size):
    raise ProtocolError(f"request header: {what} (in a frame of {size} bytes)")


def decode_request_header(frame):
    """Reads the header of a request. For an unknown API or version, reads only the common part."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE)
    try:
        return read_header(<const uint8_t*>buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


cdef object read_header(const uint8_t* data, Py_ssize_t size):
    cdef Py_ssize_t position = 10
    cdef int key, version, length
    cdef Reader reader
    if size < 10:
        header_failed("cut off", size)
    key = <int16_t>load16(data)
    version = <int16_t>load16(data + 2)
    length = <int16_t>load16(data + 8)
    client_id = None
    if length >= 0:
        if length > size - position:
            header_failed(f"a client id of {length} bytes", size)
        try:
            client_id = PyUnicode_DecodeUTF8(<const char*>data + position, length, NULL)
        except UnicodeDecodeError:
            header_failed("a client id that is not UTF-8", size)
        position += length
    if 0 <= key < KEYS and first_flexible[key] <= version <= last_known[key]:
        position = skip_header_tags(data, size, position)
    header = allocate(<PyTypeObject*>RequestHeader, 5)
    set_item(header, 0, PyLong_FromLong(key))
    set_item(header, 1, PyLong_FromLong(version))
    set_item(header, 2, PyLong_FromLong(<int32_t>load32(data + 4)))
    set_item(header, 3, client_id)
    set_item(header, 4, PyLong_FromLong(position))
    return header


cdef inline void set_item(object header, Py_ssize_t index, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(header, index, value)


cdef Py_ssize_t skip_header_tags(const uint8_t* data, Py_ssize_t size, Py_ssize_t position) except -1:
    """Skips the tags of a request header; none is defined."""
    cdef uint64_t count = 0, length
    if position < size and data[position] == 0:
        return position + 1
    position = skip_varint(data, size, position, &count)
    while count:
        count -= 1
        position = skip_varint(data, size, position, &length)
        position = skip_varint(data, size, position, &length)
        if length > <uint64_t>(size - position):
            header_failed(f"a tag of {length} bytes", size)
        position += length
    return position


cdef Py_ssize_t skip_varint(const uint8_t* data, Py_ssize_t size, Py_ssize_t position, uint64_t* value) except -1:
    cdef int shift = 0
    value[0] = 0
    while shift < 35:
        if position >= size:
            header_failed("cut off in its tags", size)
        value[0] |= <uint64_t>(data[position] & 0x7F) << shift
        position += 1
        if data[position - 1] < 0x80:
            return position
        shift += 7
    header_failed("a varint of more than 32 bits", size)
