# Programs that read and write messages, used by _reader and _writer. See _program.pyx.

from cpython.object cimport PyObject, PyTypeObject

from headrace.protocol._message cimport Layout


# The same numbers as in message.py.
cdef enum Kind:
    BOOL = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT64 = 6
    UUID = 7
    STRING = 8
    BYTES = 9
    RECORDS = 10
    STRUCT = 11


# One field in one version.
cdef struct Op:
    int kind                # of the field, or of its elements
    bint is_array
    bint nullable
    bint compact            # lengths are varints of length + 1
    int tag
    Py_ssize_t offset       # of the slot in the object
    Py_ssize_t index        # of the field in its layout
    Py_ssize_t element_size # the smallest size of an array element, at least 1
    PyObject* name
    PyObject* program       # of a struct
    PyObject* default       # of a tagged field: this value is not written


cdef class Program:
    cdef Layout layout
    cdef PyTypeObject* type
    cdef readonly int version
    cdef readonly bint flexible
    cdef readonly int api_key   # -1 in nested structs
    cdef Op* ops                # untagged fields, in their order on the wire
    cdef Py_ssize_t op_count
    cdef Op* tagged             # by tag
    cdef Py_ssize_t tagged_count
    cdef Py_ssize_t* absent     # fields that this version lacks
    cdef Py_ssize_t absent_count
    cdef readonly Py_ssize_t min_size   # of the struct, in bytes
    cdef list references        # keeps the objects alive that ops point to

    cdef Py_ssize_t compile_op(self, Op* op, Py_ssize_t index, dict nested, int depth) except -1


cdef enum:
    MAX_DEPTH = 12


# The codec's position in a message, for error messages.
cdef struct Path:
    int depth
    Op* ops[MAX_DEPTH]
    Py_ssize_t indexes[MAX_DEPTH]   # in an array, or -1


cdef inline void enter(Path* path, Op* op, Py_ssize_t index) noexcept:
    path.ops[path.depth] = op
    path.indexes[path.depth] = index
    path.depth += 1


cdef enum:
    ELEMENTS_PER_PAUSE = 256
    PAUSE_NANOSECONDS = 20000

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* duration, timespec* remaining)


# Releases the GIL after every few elements, and sleeps: without the pause, this thread would mostly get it again.
cdef inline int give_way(int* unpaused) except -1:
    cdef timespec pause
    unpaused[0] += 1
    if unpaused[0] >= ELEMENTS_PER_PAUSE:
        unpaused[0] = 0
        pause.tv_sec = 0
        pause.tv_nsec = PAUSE_NANOSECONDS
        with nogil:
            nanosleep(&pause, NULL)
    return 0


cdef Program program_of(object cls, Py_ssize_t version)
cdef str describe(Path* path, Op* op)
