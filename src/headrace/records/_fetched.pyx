"""The records of one partition in a fetch response, returned in portions as rows or columns.

    FetchedRecords(buffer)    batch | batch | batch | (an incomplete batch at the end of the response)
                                        ^ position of the next batch to open; `next_offset` is the next record

The constructor only reads the headers to find the end offset, which the next fetch needs. A batch is validated,
decompressed and parsed when it is opened. Batches of aborted transactions and control batches are skipped. One thread
at a time owns the object: the event loop creates it, the polling thread takes records from it.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_Append, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from headrace.records._batch cimport (
    AT_ATTRIBUTES, AT_BASE_OFFSET, AT_LAST_OFFSET_DELTA, AT_LEADER_EPOCH, AT_LENGTH, AT_PRODUCER_ID, CONTROL_BIT,
    HEADER_BYTES, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchRecords, RecordBatch,
)
from headrace.records._wire cimport (
    FAULT_NONE, HeaderRef, ParseFault, RecordRef, load32, load64, next_header, raise_fault, wrapping_add,
)

from types import GenericAlias

from headrace.records.compression import DEFAULT_MAX_INFLATED_BYTES
from headrace.records.control import ControlType, read_marker
from headrace.records.undecodable import Undecodable

cdef object _ABORT = ControlType.ABORT
cdef tuple _FIELDS = (
    "topic", "partition", "leader_epoch", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "checksum",
    "serialized_key_size", "serialized_value_size", "serialized_header_size",
)


# Not tracked by the garbage collector: each collection would traverse all records of a poll.
@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class ConsumerRecord:
    """A consumed record. It has the fields of kafka-python's named tuple, in the same order.

    `headers` is a list of (name, value) pairs. `timestamp` is in milliseconds since 1970, -1 for none; `timestamp_type`
    is 0 for CreateTime (set by the producer) and 1 for LogAppendTime (set by the broker). `checksum` is None, since the
    format has a CRC per batch, not per record. Sizes are before deserialization; -1 for None or no headers.
    """

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t timestamp_type
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size
    cdef readonly int32_t serialized_header_size
    cdef readonly object key
    cdef readonly object value
    cdef tuple _headers

    _fields = _FIELDS

    def __class_getitem__(cls, types):
        """Returns the generic alias: `ConsumerRecord[str, Order]` in annotations."""
        return GenericAlias(cls, types)

    def __init__(self, str topic, int32_t partition, int32_t leader_epoch, int64_t offset, int64_t timestamp,
                 int32_t timestamp_type, key, value, headers=(), checksum=None, int32_t serialized_key_size=-1,
                 int32_t serialized_value_size=-1, int32_t serialized_header_size=-1):
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self._headers = tuple(headers) or None
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.serialized_header_size = serialized_header_size

    @property
    def headers(self):
        return [] if self._headers is None else list(self._headers)

    @property
    def checksum(self):
        return None

    cdef tuple _values(self):
        return (
            self.topic, self.partition, self.leader_epoch, self.offset, self.timestamp, self.timestamp_type, self.key,
            self.value, self.headers, None, self.serialized_key_size, self.serialized_value_size,
            self.serialized_header_size,
        )

    def _asdict(self):
        return dict(zip(_FIELDS, self._values()))

    def __len__(self):
        return len(_FIELDS)

    def __iter__(self):
        return iter(self._values())

    def __getitem__(self, index):
        return self._values()[index]

    def __reduce__(self):
        return ConsumerRecord, self._values()

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._values() == (<ConsumerRecord>other)._values()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self):
        shown = ", ".join([f"{name}={value!r}" for name, value in zip(_FIELDS, self._values())])
        return f"ConsumerRecord({shown})"


cdef tuple _decode_headers(BatchRecords records, RecordRef* ref, int32_t* size):
    cdef HeaderRef header
    cdef ParseFault fault
    cdef int32_t position = ref.headers_pos, i
    cdef list found = []
    cdef const char* data = <const char*>records.data
    memset(&fault, 0, sizeof(fault))
    size[0] = 0
    for i in range(ref.headers_count):
        if next_header(records.data, &position, ref.end, &header, &fault) != FAULT_NONE:
            raise_fault(&fault, 0, True)
        name = PyUnicode_DecodeUTF8(data + header.key_pos, header.key_len, "replace")
        value = None if header.value_len < 0 else PyBytes_FromStringAndSize(data + header.value_pos, header.value_len)
        size[0] += header.key_len + (header.value_len if header.value_len > 0 else 0)
        found.append((name, value))
    return tuple(found)


# It cannot be part of a reference cycle. If it were tracked, a collection could clear the buffer that it uses.
@cython.final
@cython.no_gc
cdef class FetchedRecords:
    """The records of one partition in one fetch response, from `fetch_offset` on.

    `next_offset` is the offset after the records taken so far, `end_offset` the offset after all records. `leader_epoch`
    is that of the last opened batch, -1 before. `aborted` lists (producer id, first offset) of the aborted transactions
    in the response; None returns all records, committed or not.
    """

    cdef Py_buffer _view
    cdef bint _held
    cdef object _buffer
    cdef Py_ssize_t _position       # of the next batch to open
    cdef Py_ssize_t _end            # of the last complete batch
    cdef BatchRecords _records      # of the open batch
    cdef int32_t _index             # of the next record in the open batch
    cdef list _aborted              # (first offset, producer id), sorted
    cdef Py_ssize_t _next_aborted
    cdef set _aborting              # producers with an aborted transaction at this position
    cdef bint _check_crcs
    cdef Py_ssize_t _max_inflated_bytes
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t next_offset       # after the records taken so far
    cdef readonly int64_t end_offset        # after all records
    cdef readonly int32_t leader_epoch      # of the last opened batch, -1 before

    def __cinit__(self, str topic not None, int32_t partition, buffer, int64_t fetch_offset, aborted=None,
                  bint check_crcs=True, Py_ssize_t max_inflated_bytes=DEFAULT_MAX_INFLATED_BYTES):
        cdef const uint8_t* p
        cdef Py_ssize_t left
        cdef int32_t length
        self.topic = topic
        self.partition = partition
        self._buffer = buffer
        self._check_crcs = check_crcs
        self._max_inflated_bytes = max_inflated_bytes
        self.next_offset = self.end_offset = fetch_offset
        self.leader_epoch = -1
        if aborted:
            self._aborted = sorted([(first, producer) for producer, first in aborted])
            self._aborting = set()
        PyObject_GetBuffer(buffer, &self._view, PyBUF_SIMPLE)
        self._held = True
        while True:
            p = <const uint8_t*>self._view.buf + self._end
            left = self._view.len - self._end
            if left < HEADER_BYTES:
                break
            length = <int32_t>load32(p + AT_LENGTH)
            if length > left - 12:
                break
            if length < HEADER_BYTES - 12:
                # Not a batch: opening it raises the error. The following batches cannot be found.
                self._end = self._view.len
                break
            self._end += 12 + <Py_ssize_t>length
            self.end_offset = max(self.end_offset, self._next_offset_of(p))

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    cdef inline int64_t _next_offset_of(self, const uint8_t* p) noexcept:
        return wrapping_add(<int64_t>load64(p + AT_BASE_OFFSET), <int64_t><int32_t>load32(p + AT_LAST_OFFSET_DELTA) + 1)

    @property
    def is_done(self):
        """True if all records were taken."""
        return self._records is None and self._position >= self._end

    @property
    def has_batches(self):
        """True if the response has at least one complete batch."""
        return self._end > 0

    @property
    def size_in_bytes(self):
        return self._view.len

    cdef bint _open(self) except -1:
        """Opens the next batch with records to return; False if there is none. If it raises CorruptRecordError, the
        position stays at the corrupt batch."""
        cdef RecordBatch batch
        cdef BatchRecords records
        cdef int16_t attributes
        cdef int64_t next_offset
        while self._position < self._end:
            batch = RecordBatch(self._buffer, self._position)
            next_offset = self._next_offset_of(batch._p)
            if next_offset <= self.next_offset:
                # Below the fetch offset: responses start with the complete batch that contains it.
                self._position += batch.size_in_bytes
                continue
            if self._check_crcs:
                batch.check_crc()
            attributes = batch._attributes()
            records = None
            if attributes & CONTROL_BIT:
                if self._aborted is not None:
                    self._end_transaction(batch)
            elif not (attributes & TRANSACTIONAL_BIT and self._aborted is not None and self._is_aborted(batch)):
                records = BatchRecords(batch, self._max_inflated_bytes)
            self._position += batch.size_in_bytes
            self.leader_epoch = <int32_t>load32(batch._p + AT_LEADER_EPOCH)
            if records is not None:
                self._index = 0
                while (self._index < records.count
                       and records.base_offset + records.refs[self._index].offset_delta < self.next_offset):
                    self._index += 1
                if self._index < records.count:
                    self._records = records
                    return True
            self.next_offset = next_offset
        return False

    cdef bint _is_aborted(self, RecordBatch batch) except -1:
        cdef int64_t last_offset = self._next_offset_of(batch._p) - 1
        while self._next_aborted < PyList_GET_SIZE(self._aborted):
            first_offset, producer_id = self._aborted[self._next_aborted]
            if first_offset > last_offset:
                break
            self._aborting.add(producer_id)
            self._next_aborted += 1
        return <int64_t>load64(batch._p + AT_PRODUCER_ID) in self._aborting

    cdef int _end_transaction(self, RecordBatch batch) except -1:
        """Ends an aborted transaction: the producer's batches after the marker belong to its next transaction."""
        self._is_aborted(batch)
        marker = read_marker(BatchRecords(batch, self._max_inflated_bytes))
        if marker is not None and marker.control_type is _ABORT:
            self._aborting.discard(<int64_t>load64(batch._p + AT_PRODUCER_ID))
        return 0

    cdef inline int _close(self) except -1:
        """Closes the open batch, since all its records were taken."""
        self.next_offset = self._next_offset_of(self._records.batch._p)
        self._records = None
        return 0

    def take(self, Py_ssize_t max_records, key_deserializer=None, value_deserializer=None) -> list:
        """Returns up to `max_records` records; fewer only at the end of the response or before an error.

        An error (a corrupt batch, an Undecodable record) is raised only if no record precedes it; otherwise the records
        before it are returned first. Further calls raise the same error again.
        """
        cdef list rows = []
        cdef int32_t count
        cdef object key_method = getattr(key_deserializer, "deserialize", None)
        cdef object value_method = getattr(value_deserializer, "deserialize", None)
        while max_records > 0:
            if self._records is None:
                try:
                    if not self._open():
                        break
                except Exception:
                    if PyList_GET_SIZE(rows):
                        return rows
                    raise
            count = <int32_t>min(<Py_ssize_t>(self._records.count - self._index), max_records)
            if key_deserializer is None and value_deserializer is None:
                if PyList_GET_SIZE(rows) == 0:
                    rows = self._rows(count)
                else:
                    rows += self._rows(count)
            elif not self._deserialized(rows, count, key_deserializer, key_method, value_deserializer, value_method):
                return rows
            max_records -= count
            if self._index == self._records.count:
                self._close()
        return rows

    cdef ConsumerRecord _row(self, RecordRef* ref, int32_t timestamp_type):
        cdef BatchRecords records = self._records
        cdef const char* data = <const char*>records.data
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        record.topic = self.topic
        record.partition = self.partition
        record.leader_epoch = self.leader_epoch
        record.offset = records.base_offset + ref.offset_delta
        record.timestamp = ref.timestamp
        record.timestamp_type = timestamp_type
        record.serialized_key_size = ref.key_len
        record.serialized_value_size = ref.value_len
        record.serialized_header_size = -1
        if ref.key_len >= 0:
            record.key = PyBytes_FromStringAndSize(data + ref.key_pos, ref.key_len)
        if ref.value_len >= 0:
            record.value = PyBytes_FromStringAndSize(data + ref.value_pos, ref.value_len)
        if ref.headers_count:
            record._headers = _decode_headers(records, ref, &record.serialized_header_size)
        return record

    cdef list _rows(self, int32_t count):
        cdef int32_t i
        cdef int32_t timestamp_type = 1 if self._records.batch._attributes() & LOG_APPEND_TIME_BIT else 0
        cdef list rows = PyList_New(count)
        cdef RecordRef* ref = &self._records.refs[self._index]
        cdef ConsumerRecord record
        for i in range(count):
            record = self._row(ref + i, timestamp_type)
            Py_INCREF(record)
            PyList_SET_ITEM(rows, i, record)
        self._index += count
        if count:
            self.next_offset = record.offset + 1
        return rows

    cdef bint _deserialized(self, list rows, int32_t count, key_deserializer, key_method, value_deserializer,
                            value_method) except -1:
        """Appends rows with deserialized keys and values. Returns False if a record failed after others."""
        cdef BatchRecords records = self._records
        cdef int32_t timestamp_type = 1 if records.batch._attributes() & LOG_APPEND_TIME_BIT else 0
        cdef int32_t i
        cdef ConsumerRecord record
        cdef str field
        for i in range(count):
            record = self._row(&records.refs[self._index], timestamp_type)
            field = "key"
            try:
                if key_method is not None:
                    record.key = key_method(self.topic, record.headers, record.key)
                elif key_deserializer is not None:
                    record.key = key_deserializer(record.key)
                field = "value"
                if value_method is not None:
                    record.value = value_method(self.topic, record.headers, record.value)
                elif value_deserializer is not None:
                    record.value = value_deserializer(record.value)
            except Exception as error:
                if PyList_GET_SIZE(rows):
                    return False
                raise Undecodable(record.offset, field) from error
            if self._records is not records or self._index >= records.count:
                raise RuntimeError("a deserializer must not consume from its own consumer")
            PyList_Append(rows, record)
            self._index += 1
            self.next_offset = record.offset + 1
        return True

    def take_columns(self, columns, Py_ssize_t max_records) -> int:
        """Adds up to `max_records` records to a ColumnDecoder or ArrowDecoder; returns their number. Errors as in `take`."""
        cdef Py_ssize_t taken = 0
        cdef int32_t count
        while taken < max_records:
            if self._records is None:
                try:
                    if not self._open():
                        break
                except Exception:
                    if taken:
                        return taken
                    raise
            count = columns.add(self._records, self.next_offset, max_records - taken)
            taken += count
            self._index += count
            if self._index == self._records.count:
                self._close()
            else:
                self.next_offset = self._records.base_offset + self._records.refs[self._index].offset_delta
        return taken
