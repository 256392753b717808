"""Finds fields of JSON objects in an Arrow column, without creating Python objects.

One pass over the bytes of a value: strings and nested values that are not asked for are skipped. The values may come from
anywhere, so every read is checked against the end of the value. A value that is not a JSON object has no fields. A field
that occurs more than once has its last value, as in `json.loads`. Numbers are not checked.
"""

import json

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

cdef enum:
    MAX_DEPTH = 512

cdef struct Node:
    const char* name
    Py_ssize_t name_length
    int first_child
    int next_sibling
    int field


cdef struct Output:
    int32_t* ends
    char* content
    char* present
    Py_ssize_t size
    Py_ssize_t capacity


cdef struct Found:
    Py_ssize_t start
    Py_ssize_t end
    bint is_text
    bint has_escapes


cdef class FieldFinder:
    """Finds the fields with these paths, for example `("src", "p")`."""

    cdef Node* nodes
    cdef int node_count
    cdef int field_count
    cdef list names
    cdef Found* found

    def __cinit__(self, paths):
        self.names = []
        cdef int capacity = 1 + sum(len(path) for path in paths)
        self.nodes = <Node*> malloc(capacity * sizeof(Node))
        self.found = <Found*> malloc(max(1, len(paths)) * sizeof(Found))
        if self.nodes == NULL or self.found == NULL:
            raise MemoryError()
        self.nodes[0].first_child = -1
        self.nodes[0].next_sibling = -1
        self.nodes[0].field = -1
        self.node_count = 1
        self.field_count = len(paths)
        cdef int node, child
        for number, path in enumerate(paths):
            node = 0
            for name in path:
                node = self._child(node, name.encode())
            self.nodes[node].field = number

    def __dealloc__(self):
        free(self.nodes)
        free(self.found)

    cdef int _child(self, int node, bytes name) except -1:
        cdef int child = self._find(node, name, len(name))
        if child >= 0:
            return child
        self.names.append(name)  # keeps the bytes alive
        child = self.node_count
        self.node_count += 1
        self.nodes[child].name = name
        self.nodes[child].name_length = len(name)
        self.nodes[child].first_child = -1
        self.nodes[child].field = -1
        self.nodes[child].next_sibling = self.nodes[node].first_child
        self.nodes[node].first_child = child
        return child

    cdef inline int _find(self, int node, const char* name, Py_ssize_t length) noexcept nogil:
        cdef int child = self.nodes[node].first_child
        while child >= 0:
            if self.nodes[child].name_length == length and memcmp(self.nodes[child].name, name, length) == 0:
                return child
            child = self.nodes[child].next_sibling
        return -1

    def find(self, const int32_t[::1] ends, const uint8_t[::1] data, Py_ssize_t first, Py_ssize_t rows):
        """Returns, for each path, the texts of all rows as (ends, data, present): the buffers of an Arrow column, with a
        byte for each row that is 1 if the row has the field. `ends` and `data` are the buffers of the values. Text is
        decoded. Other values are returned as they are written. `null` counts as missing."""
        cdef Py_ssize_t row, start, end, length
        cdef int field
        cdef Found* found
        cdef Output* output
        cdef const char* text = <const char*> &data[0] if data.shape[0] else NULL
        if first < 0 or rows < 0 or first + rows + 1 > ends.shape[0]:
            raise ValueError("the column has fewer rows")
        cdef list columns = [(bytearray(4 * (rows + 1)), bytearray(1024), bytearray(rows)) for _ in range(self.field_count)]
        cdef Output* outputs = <Output*> malloc(max(1, self.field_count) * sizeof(Output))
        if outputs == NULL:
            raise MemoryError()
        try:
            for field in range(self.field_count):
                outputs[field].ends = <int32_t*> PyByteArray_AS_STRING(columns[field][0])
                outputs[field].content = PyByteArray_AS_STRING(columns[field][1])
                outputs[field].capacity = 1024
                outputs[field].present = PyByteArray_AS_STRING(columns[field][2])
                outputs[field].size = 0
            for row in range(rows):
                start, end = ends[first + row], ends[first + row + 1]
                if start < 0 or end < start or end > data.shape[0]:
                    raise ValueError("the column's offsets are not valid")
                for field in range(self.field_count):
                    self.found[field].start = -1
                if not self._scan(text, start, end):
                    for field in range(self.field_count):
                        self.found[field].start = -1
                for field in range(self.field_count):
                    found = &self.found[field]
                    output = &outputs[field]
                    if found.start >= 0:
                        piece = None
                        length = found.end - found.start
                        if found.has_escapes:
                            piece = _decoded(text[found.start - 1 : found.end + 1])
                            if piece is None:
                                output.ends[row + 1] = <int32_t> output.size
                                continue
                            length = len(piece)
                        if output.size + length > output.capacity:
                            output.capacity = 2 * (output.size + length)
                            PyByteArray_Resize(columns[field][1], output.capacity)
                            output.content = PyByteArray_AS_STRING(columns[field][1])
                        memcpy(output.content + output.size, (text + found.start) if piece is None else (<const char*> <bytes> piece), length)
                        output.size += length
                        output.present[row] = 1
                    output.ends[row + 1] = <int32_t> output.size
            return columns
        finally:
            free(outputs)

    cdef bint _scan(self, const char* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
        """Notes the fields of one value. Returns False if it is not an object, or ends early."""
        at = _skip_space(text, at, end)
        if at >= end or text[at] != b'{':
            return False
        at = self._object(text, at, end, 0)
        return at >= 0 and _skip_space(text, at, end) == end

    cdef Py_ssize_t _object(self, const char* text, Py_ssize_t at, Py_ssize_t end, int node) noexcept nogil:
        """Notes the fields of the object at `at`. Returns the position after it, or -1."""
        cdef Py_ssize_t name, name_end
        cdef bint escapes
        cdef int child
        at = _skip_space(text, at + 1, end)
        if at < end and text[at] == b'}':
            return at + 1
        while True:
            if at >= end or text[at] != b'"':
                return -1
            name = at + 1
            at = _skip_text(text, at, end, &escapes)
            if at < 0:
                return -1
            name_end = at - 1
            at = _skip_space(text, at, end)
            if at >= end or text[at] != b':':
                return -1
            at = _skip_space(text, at + 1, end)
            child = -1 if node < 0 else self._find(node, text + name, name_end - name)
            at = self._value(text, at, end, child)
            if at < 0:
                return -1
            at = _skip_space(text, at, end)
            if at >= end:
                return -1
            if text[at] == b'}':
                return at + 1
            if text[at] != b',':
                return -1
            at = _skip_space(text, at + 1, end)

    cdef Py_ssize_t _value(self, const char* text, Py_ssize_t at, Py_ssize_t end, int node) noexcept nogil:
        cdef Py_ssize_t start = at
        cdef bint escapes = False
        cdef bint is_text
        cdef Found* found
        if at >= end:
            return -1
        is_text = text[at] == b'"'
        if is_text:
            at = _skip_text(text, at, end, &escapes)
        elif text[at] == b'{' and node >= 0 and self.nodes[node].first_child >= 0:
            at = self._object(text, at, end, node)
        elif text[at] == b'{' or text[at] == b'[':
            at = _skip_nested(text, at, end)
        else:
            at = _skip_scalar(text, at, end)
        if at < 0 or node < 0 or self.nodes[node].field < 0:
            return at
        found = &self.found[self.nodes[node].field]
        if at - start == 4 and memcmp(text + start, b"null", 4) == 0:
            found.start = -1
            return at
        found.start = start + is_text
        found.end = at - is_text
        found.is_text = is_text
        found.has_escapes = escapes
        return at


cdef inline Py_ssize_t _skip_space(const char* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    while at < end and (text[at] == b' ' or text[at] == b'\n' or text[at] == b'\t' or text[at] == b'\r'):
        at += 1
    return at


cdef inline Py_ssize_t _skip_text(const char* text, Py_ssize_t at, Py_ssize_t end, bint* escapes) noexcept nogil:
    """Returns the position after the closing quote of the text at `at`, or -1."""
    escapes[0] = False
    at += 1
    while at < end:
        if text[at] == b'"':
            return at + 1
        if text[at] == b'\\':
            escapes[0] = True
            at += 1
        at += 1
    return -1


cdef Py_ssize_t _skip_nested(const char* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Returns the position after the object or list at `at`, or -1."""
    cdef char[MAX_DEPTH] closing
    cdef int depth = 0
    cdef bint escapes
    while at < end:
        if text[at] == b'"':
            at = _skip_text(text, at, end, &escapes)
            if at < 0:
                return -1
            continue
        if text[at] == b'{' or text[at] == b'[':
            if depth == MAX_DEPTH:
                return -1
            closing[depth] = b'}' if text[at] == b'{' else b']'
            depth += 1
        elif text[at] == b'}' or text[at] == b']':
            depth -= 1
            if closing[depth] != text[at]:
                return -1
            if depth == 0:
                return at + 1
        at += 1
    return -1


cdef inline Py_ssize_t _skip_scalar(const char* text, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t start = at
    cdef char c
    while at < end:
        c = text[at]
        if c == b',' or c == b'}' or c == b']' or c == b' ' or c == b'\n' or c == b'\t' or c == b'\r':
            break
        if c == b'"' or c == b'{' or c == b'[' or c == b':':
            return -1
        at += 1
    return at if at > start else -1


cdef object _decoded(bytes text):
    try:
        return json.loads(text).encode()
    except ValueError:  # not a valid escape, or half of a surrogate pair
        return None
