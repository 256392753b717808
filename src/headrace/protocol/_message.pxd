# The layout of message objects, shared by the codec's modules. See _message.pyx.

from cpython.object cimport PyObject, PyTypeObject


# How a missing field gets its default.
cdef enum Origin:
    SHARED = 0      # the default itself
    NEW_LIST = 1
    CALLED = 2      # the default is a class to call


cdef class Layout:
    cdef readonly tuple fields
    cdef readonly tuple names
    cdef tuple keepers          # keeps the objects alive that `defaults` points to
    cdef PyTypeObject* type     # the message class, which owns this object
    cdef Py_ssize_t count
    cdef Py_ssize_t* offsets    # of the fields' slots, in the order of the fields
    cdef PyObject** defaults
    cdef char* origins
    cdef list programs          # of the codec, by version; None until first used

    cdef PyObject* make_default(self, Py_ssize_t index) except NULL


cdef Layout layout_of(PyTypeObject* type)
cdef Py_ssize_t slot_offset(object descriptor) except -1


cdef extern from *:
    """
    #define HR_TYPE_DICT(type) (((PyTypeObject *)(type))->tp_dict)
    #define HR_ADD_TYPE_FLAG(type, flag) (((PyTypeObject *)(type))->tp_flags |= (flag))
    #define HR_SET_VECTORCALL(type, function) (((PyTypeObject *)(type))->tp_vectorcall = (vectorcallfunc)(function))
    #define HR_ALLOCATE(type, items) ((type)->tp_alloc((type), (items)))
    """
    PyObject* type_dict "HR_TYPE_DICT"(PyTypeObject* type) noexcept
    void add_type_flag "HR_ADD_TYPE_FLAG"(PyObject* type, unsigned long flag) noexcept
    void set_vectorcall "HR_SET_VECTORCALL"(PyObject* type, void* function) noexcept
    object allocate "HR_ALLOCATE"(PyTypeObject* type, Py_ssize_t items)


cdef inline PyObject** slot_at(PyObject* message, Py_ssize_t offset) noexcept:
    return <PyObject**>(<char*>message + offset)
