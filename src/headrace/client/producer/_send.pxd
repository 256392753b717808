from libc.stdint cimport int32_t, int64_t

from headrace.client.producer._batch cimport ProducerBatch
from headrace.records._record cimport RecordParts


cdef class PartitionQueue:
    cdef readonly object tp
    cdef readonly int partition
    cdef readonly object batches
    cdef public ProducerBatch open_batch
    cdef public bint is_muted
    cdef public int leader          # -1: none
    cdef public int64_t closed_bytes


cdef class TopicQueues:
    cdef readonly str topic
    cdef public list queues
    cdef public list available
    cdef public PartitionQueue sticky
    cdef public int64_t sticky_from


cdef class SerializedRecord:
    cdef readonly str topic
    cdef readonly object key
    cdef readonly object value
    cdef list _headers
    cdef RecordParts _parts
    cdef readonly int64_t timestamp
    cdef public int32_t partition
    cdef readonly object on_delivery


cdef class SerializeMethod:
    cdef readonly object function
    cdef readonly bint wants_headers


cdef class RecordAppender:
    cdef public dict _topics
    cdef public object _check_state
    cdef public object _interceptors
    cdef public object _key_serializer
    cdef public object _value_serializer
    cdef public object _partitioner
    cdef object _time
    cdef bint _is_system_time
    cdef public object _on_delivery
    cdef public bint _ignore_keys
    cdef public Py_ssize_t _max_record_bytes

    cdef int32_t partition_of(self, object key, TopicQueues queues) except -2
