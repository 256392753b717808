"""Message objects: construction, comparison and representation.

A message class has `__slots__`, so each field is a pointer at a fixed offset in the object. `lay_out` reads these
offsets from the slots' descriptors into a `Layout`, the class attribute `__layout__`, and installs a constructor that
takes keyword arguments directly from the caller's stack, about three times as fast as an `__init__` with as many
arguments. The codec reads and writes the slots with the same offsets.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport Py_EQ, Py_TYPE, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        int type
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

    PyTypeObject PyMemberDescr_Type
    const unsigned long Py_TPFLAGS_HAVE_VECTORCALL
    const int T_OBJECT_EX
    Py_ssize_t PyVectorcall_NARGS(size_t nargsf) noexcept
    PyObject* PyDict_GetItemWithError(object dictionary, object key) except? NULL
    void Py_XINCREF(PyObject* o) noexcept
    void Py_XDECREF(PyObject* o) noexcept

cdef extern from "structmember.h":
    pass


cdef str LAYOUT = "__layout__"


cdef class Layout:
    """The slot offsets and defaults of the fields of one message class."""

    def __cinit__(self, object cls, tuple fields):
        cdef Py_ssize_t index
        self.type = <PyTypeObject*>cls
        self.fields = fields
        self.names = tuple([field.name for field in fields])
        self.count = len(fields)
        self.offsets = <Py_ssize_t*>PyMem_Malloc(max(1, self.count) * sizeof(Py_ssize_t))
        self.defaults = <PyObject**>PyMem_Malloc(max(1, self.count) * sizeof(PyObject*))
        self.origins = <char*>PyMem_Malloc(max(1, self.count))
        if self.offsets is NULL or self.defaults is NULL or self.origins is NULL:
            raise MemoryError
        self.programs = []
        keepers = []
        for index in range(self.count):
            field = fields[index]
            self.offsets[index] = slot_offset(cls.__dict__[field.name])
            default = field.default
            self.origins[index] = SHARED
            if field.factory is list:
                self.origins[index] = NEW_LIST
            elif field.factory is not None:
                self.origins[index] = CALLED
                default = field.factory
            keepers.append(default)
            self.defaults[index] = <PyObject*>default
        self.keepers = tuple(keepers)

    def __dealloc__(self):
        PyMem_Free(self.offsets)
        PyMem_Free(self.defaults)
        PyMem_Free(self.origins)

    cdef PyObject* make_default(self, Py_ssize_t index) except NULL:
        """Returns a new reference to the default of a field."""
        cdef object default
        if self.origins[index] == NEW_LIST:
            default = []
        elif self.origins[index] == CALLED:
            default = (<object>self.defaults[index])()
        else:
            default = <object>self.defaults[index]
        Py_INCREF(default)
        return <PyObject*>default


cdef Py_ssize_t slot_offset(object descriptor) except -1:
    """Returns the offset of a slot in the objects of its class."""
    if Py_TYPE(descriptor) is not &PyMemberDescr_Type:
        raise TypeError(f"{descriptor!r} is not a slot")
    if (<PyMemberDescrObject*>descriptor).d_member.type != T_OBJECT_EX:
        raise TypeError(f"{descriptor!r} is not a slot for an object")
    return (<PyMemberDescrObject*>descriptor).d_member.offset


cdef Layout layout_of(PyTypeObject* type):
    cdef PyObject* attributes = type_dict(type)  # NULL for built-in types since Python 3.12
    cdef PyObject* found = NULL if attributes is NULL else PyDict_GetItemWithError(<object>attributes, LAYOUT)
    if found is NULL:
        raise TypeError(f"{(<object>type).__name__} is not a message class")
    return <Layout>found


cdef Py_ssize_t _index_of(Layout layout, PyObject* name, Py_ssize_t guess) except -2:
    """Returns the index of the field with a name, or -1. Arguments are mostly in the order of the fields."""
    cdef Py_ssize_t index
    for index in range(guess, layout.count):
        if PyTuple_GET_ITEM(layout.names, index) is name:
            return index
    for index in range(guess):
        if PyTuple_GET_ITEM(layout.names, index) is name:
            return index
    for index in range(layout.count):
        if <str>PyTuple_GET_ITEM(layout.names, index) == <object>name:
            return index
    return -1


cdef object _construct(object cls, PyObject* const* arguments, size_t nargsf, PyObject* keywords):
    """Constructs a message: PyTypeObject.tp_vectorcall of every message class."""
    cdef Layout layout = layout_of(<PyTypeObject*>cls)
    cdef PyObject** slot
    cdef PyObject* name
    cdef Py_ssize_t number, index = 0
    if PyVectorcall_NARGS(nargsf):
        raise TypeError(f"{cls.__name__}() takes keyword arguments only")
    cdef object message = allocate(layout.type, 0)
    if keywords is not NULL:
        for number in range(PyTuple_GET_SIZE(<tuple>keywords)):
            name = <PyObject*>PyTuple_GET_ITEM(<tuple>keywords, number)
            index = _index_of(layout, name, index)
            if index < 0:
                raise TypeError(f"{cls.__name__}() got an unexpected keyword argument '{<object>name}'")
            slot = slot_at(<PyObject*>message, layout.offsets[index])
            Py_XINCREF(arguments[number])
            Py_XDECREF(slot[0])
            slot[0] = arguments[number]
            index += 1
    for index in range(layout.count):
        slot = slot_at(<PyObject*>message, layout.offsets[index])
        if slot[0] is NULL:
            slot[0] = layout.make_default(index)
    return message


cdef class MessageBase:
    """The compiled base of `headrace.protocol.message.Message`; subclass that instead."""

    def __init__(self, *arguments, **values):
        """Constructs a message for callers that bypass tp_vectorcall, as compiled code may."""
        cdef Layout layout = layout_of(Py_TYPE(self))
        cdef Py_ssize_t index
        cdef PyObject** slot
        if arguments:
            raise TypeError(f"{type(self).__name__}() takes keyword arguments only")
        for name, value in values.items():
            if name not in layout.names:
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument '{name}'")
            setattr(self, name, value)
        for index in range(layout.count):
            slot = slot_at(<PyObject*>self, layout.offsets[index])
            if slot[0] is NULL:
                slot[0] = layout.make_default(index)

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        cdef Layout layout = layout_of(Py_TYPE(self))
        cdef PyObject* left
        cdef PyObject* right
        cdef Py_ssize_t index
        for index in range(layout.count):
            left = slot_at(<PyObject*>self, layout.offsets[index])[0]
            right = slot_at(<PyObject*>other, layout.offsets[index])[0]
            if left is NULL or right is NULL:
                if left is not right:
                    return False
            elif not PyObject_RichCompareBool(<object>left, <object>right, Py_EQ):
                return False
        return True

    __hash__ = None

    def __repr__(self):
        shown = [f"{name}={getattr(self, name, None)!r}" for name in type(self).__slots__]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self):
        """Supports copy and pickle."""
        return _make, (type(self), {name: getattr(self, name) for name in type(self).__slots__})


def _make(cls, dict values):
    return cls(**values)


def lay_out(object cls, tuple fields):
    """Installs the layout and the constructor of a message class."""
    if not isinstance(cls, type) or not issubclass(cls, MessageBase):
        raise TypeError(f"{cls!r} is not a message class")
    setattr(cls, LAYOUT, Layout(cls, fields))
    set_vectorcall(<PyObject*>cls, <void*>_construct)


def allow_vectorcall(object metaclass):
    """Makes calls of a metaclass's classes use their tp_vectorcall, as Python 3.12 does by default."""
    if not issubclass(metaclass, type):
        raise TypeError(f"{metaclass!r} is not a metaclass")
    add_type_flag(<PyObject*>metaclass, Py_TPFLAGS_HAVE_VECTORCALL)
