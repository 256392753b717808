"""Compiles a message class in one version into a program: arrays of operations that `_reader` and `_writer` execute.

An operation (`Op`) describes one field: its wire type, slot in the object, nullability, tag and, for a struct, the
program of the struct. A program is compiled when its version is first read or written. A nested struct has one program
per version of its message, because its fields depend on the version of the message.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free

from headrace.protocol._message cimport layout_of

from headrace.protocol.message import ProtocolError, parse_versions

cdef int[12] FIXED_SIZES = [1, 1, 2, 2, 4, 8, 8, 16, 0, 0, 0, 0]


cdef class Program:
    """The operations for one struct in one version."""

    def __cinit__(self, Layout layout, int version, bint flexible, dict nested, int depth):
        cdef Op* op
        cdef Py_ssize_t index
        if depth >= MAX_DEPTH:
            raise ValueError(f"structs are nested more than {MAX_DEPTH} levels deep")
        self.layout = layout
        self.type = layout.type
        self.version = version
        self.flexible = flexible
        self.api_key = (<object>layout.type).__api_key__
        self.references = []
        present, tagged, absent = [], [], []
        for index in range(layout.count):
            field = layout.fields[index]
            first, last = parse_versions(field.versions)
            if not first <= version <= last:
                absent.append(index)
            elif field.tag < 0:
                present.append(index)
            else:
                tagged.append((field.tag, index))
        if tagged and not flexible:
            raise ValueError("tagged fields in a version that is not flexible")
        if len(tagged) > 127:
            raise ValueError("more than 127 tagged fields")
        self.op_count, self.tagged_count, self.absent_count = len(present), len(tagged), len(absent)
        self.ops = <Op*>PyMem_Calloc(self.op_count + 1, sizeof(Op))
        self.tagged = <Op*>PyMem_Calloc(self.tagged_count + 1, sizeof(Op))
        self.absent = <Py_ssize_t*>PyMem_Calloc(self.absent_count + 1, sizeof(Py_ssize_t))
        if self.ops is NULL or self.tagged is NULL or self.absent is NULL:
            raise MemoryError
        for number, index in enumerate(present):
            self.min_size += self.compile_op(&self.ops[<Py_ssize_t>number], index, nested, depth)
        for number, (_, index) in enumerate(sorted(tagged)):
            self.compile_op(&self.tagged[<Py_ssize_t>number], index, nested, depth)
        for number, index in enumerate(absent):
            self.absent[<Py_ssize_t>number] = index
        self.min_size += flexible

    def __dealloc__(self):
        PyMem_Free(self.ops)
        PyMem_Free(self.tagged)
        PyMem_Free(self.absent)

    cdef Py_ssize_t compile_op(self, Op* op, Py_ssize_t index, dict nested, int depth) except -1:
        """Fills in the operation of one field. Returns the smallest size of the field in bytes."""
        cdef Py_ssize_t size
        cdef Program program
        field = self.layout.fields[index]
        first, last = parse_versions(field.nullable)
        op.kind = field.kind
        op.is_array = field.is_array
        op.nullable = first <= self.version <= last
        op.compact = self.flexible
        op.tag = field.tag
        op.offset = self.layout.offsets[index]
        op.index = index
        op.name = <PyObject*>self.layout.names[index]
        size = FIXED_SIZES[op.kind]
        if op.kind == STRUCT:
            if field.struct not in nested:
                layout = layout_of(<PyTypeObject*>field.struct)
                nested[field.struct] = Program(layout, self.version, self.flexible, nested, depth + 1)
            program = nested[field.struct]
            self.references.append(program)
            op.program = <PyObject*>program
            # A nullable struct starts with a byte that is negative for null.
            size = 1 if op.nullable and not op.is_array else program.min_size
        elif op.kind in (STRING, BYTES, RECORDS):
            size = 1 if self.flexible else 2 if op.kind == STRING else 4
        if op.tag >= 0:
            if op.kind == RECORDS or (op.kind == STRUCT and contains_records(<Program>op.program)):
                raise ValueError(f"{field.name}: records in a tagged field")
            default = field.default
            if field.factory is not None or op.kind == STRUCT:
                default = (field.factory or field.struct)()
            self.references.append(default)
            op.default = <PyObject*>default
        # At least 1: the reader limits an array's length by the remaining bytes, even if its elements are empty.
        op.element_size = max(1, size)
        return (1 if self.flexible else 4) if op.is_array else size


cdef bint contains_records(Program program) except -1:
    cdef Py_ssize_t number
    cdef Op* op
    for number in range(program.op_count):
        op = &program.ops[number]
        if op.kind == RECORDS or (op.kind == STRUCT and contains_records(<Program>op.program)):
            return True
    return False


cdef Program program_of(object cls, Py_ssize_t version):
    """Returns the program of a message class in one version, and compiles it on first use."""
    cdef Layout layout = layout_of(<PyTypeObject*>cls)
    if 0 <= version < len(layout.programs):
        cached = layout.programs[version]
        if cached is not None:
            return <Program>cached
    if not cls.__versions__:
        raise TypeError(f"{cls.__name__} is a nested struct of a message and has no versions")
    first, last = parse_versions(cls.__versions__)
    if not first <= version <= last:
        raise ProtocolError(f"{cls.__name__} has no version {version}; supported versions: {cls.__versions__}")
    first_flexible, last_flexible = parse_versions(cls.__flexible__)
    program = Program(layout, version, first_flexible <= version <= last_flexible, {}, 0)
    if not layout.programs:
        layout.programs = [None] * (last + 1)
    layout.programs[version] = program
    return program


cdef str describe(Path* path, Op* op):
    """Returns the path of a field for error messages, such as `topics[2].partitions[0].records`."""
    steps = []
    cdef int level
    for level in range(path.depth):
        name = <str>path.ops[level].name
        steps.append(name if path.indexes[level] < 0 else f"{name}[{path.indexes[level]}]")
    if op is not NULL:
        steps.append(<str>op.name)
    return ".".join(steps)
