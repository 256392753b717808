from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from headrace.records._batch cimport HeaderFields
from headrace.records._record cimport RecordParts


cdef class ProducerBatch:
    cdef HeaderFields _fields
    cdef uint8_t* _p
    cdef Py_ssize_t _size
    cdef readonly bytearray buffer
    cdef readonly Py_ssize_t capacity
    cdef readonly object tp
    cdef readonly bint is_closed
    cdef readonly double created_at
    cdef readonly object data
    cdef object _codec
    cdef object _level

    cdef public int attempts
    cdef public double retry_at
    cdef public bint in_flight
    cdef public bint sequence_was_reset
    cdef public bint is_split
    cdef public int leader_id
    cdef public object last_error   # the error of the last attempt

    cdef readonly bint is_done
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time
    cdef readonly object error
    cdef dict _record_errors
    cdef list _children
    cdef list _callbacks            # None when the batch is done
    cdef object _event

    cdef int32_t put(self, RecordParts* parts, int64_t timestamp, list headers)
    cdef int settle(self) except -1


# The outcome that a callback is for.
cdef enum Kind:
    CALLBACK = 0
    ERRBACK = 1
    BOTH = 2


cdef class FutureRecordMetadata:
    cdef ProducerBatch batch
    cdef int32_t index
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int32_t headers_size
    cdef int64_t timestamp

    cdef int _locate(self) except -1
    cdef object _error(self)
    cdef int _when_done(self, object entry) except -1
