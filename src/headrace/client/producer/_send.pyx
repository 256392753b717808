"""`send()`: serializes a record, chooses its partition and appends it to the partition's open batch.

    interceptors ─▶ serializers ─▶ partition ─▶ open batch of the partition ─▶ future
                                                     │ unknown topic, full batch, no batch
                                                     ▼
                                   BaseProducer: waits for metadata and memory, appends to the accumulator

This is the hot path, about a million records per second. Any thread may send, and no lock is needed: between reading
the open batch and writing the record and its callback into it, no Python code runs and nothing is allocated that could
start the garbage collector, so no other thread gets the GIL. The event loop closes batches while it holds the GIL, and
a closed batch refuses records.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.number cimport PyIndex_Check
from cpython.unicode cimport PyUnicode_CheckExact
from libc.limits cimport INT_MAX
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from headrace.common._clock cimport system_time_ms
from headrace.client.producer._batch cimport BOTH, FutureRecordMetadata, ProducerBatch
from headrace.records._batch cimport HEADER_BYTES
from headrace.records._record cimport RecordParts, bytes_of, encode_headers, fits, largest_size
from headrace.records._wire cimport murmur2_of

from collections import deque

from headrace.client.errors import IllegalArgumentError, SerializationError
from headrace.common.clock import SystemClock
from headrace.common.types import TopicPartition


@cython.final
cdef class PartitionQueue:
    """A partition's batches that wait to be sent, oldest first. The accumulator's lock guards them. `open_batch` is the
    last of them and takes records, or is None. `closed_bytes` is the total size of the batches closed so far."""

    def __init__(self, tp):
        self.tp = tp
        self.partition = tp.partition
        self.batches = deque()
        self.leader = -1

    def __repr__(self):
        return f"PartitionQueue({self.tp}, {len(self.batches)} batches)"


@cython.final
cdef class TopicQueues:
    """The queues of a topic's partitions. When the topic gets more partitions, a longer list replaces `queues`; the
    list itself never changes."""

    def __init__(self, str topic not None):
        self.topic = topic
        self.queues = []
        self.available = []

    def set_leaders(self, list leaders not None):
        """Sets the leader of each partition, -1 for none. A topic may get more partitions, never fewer."""
        cdef PartitionQueue queue
        cdef Py_ssize_t known = len(self.queues)
        more = [PartitionQueue(TopicPartition(self.topic, index)) for index in range(known, len(leaders))]
        if more:
            self.queues = self.queues + more
        for queue in self.queues:
            queue.leader = leaders[queue.partition] if queue.partition < len(leaders) else -1
        self.available = [queue.partition for queue in self.queues if queue.leader >= 0]


@cython.final
cdef class SerializedRecord:
    """A serialized record that is not in a batch yet. `partition` is -1 until one is chosen, and for the sticky one."""

    def __init__(self):
        raise TypeError("Only Producer.send() creates SerializedRecord objects")

    @property
    def batch_size_bytes(self):
        """The upper bound of the size of a batch that contains only this record."""
        return HEADER_BYTES + largest_size(&self._parts)

    def append_to(self, ProducerBatch batch not None):
        """Returns the record's future, or None if the batch is closed or has no room for the record."""
        return _append(batch, &self._parts, self.timestamp, self._headers, self.on_delivery)

    def fail(self, error):
        """Returns a failed future, and calls the delivery callback."""
        cdef FutureRecordMetadata future = _new_future(&self._parts, self.timestamp)
        future.batch = ProducerBatch.failed(TopicPartition(self.topic, self.partition), error)
        if self.on_delivery is not None:
            future.add_done(self.on_delivery)
        return future


cdef inline FutureRecordMetadata _new_future(RecordParts* parts, int64_t timestamp):
    cdef FutureRecordMetadata future = FutureRecordMetadata.__new__(FutureRecordMetadata)
    future.timestamp = timestamp
    future.key_size = <int32_t>parts.key_size
    future.value_size = <int32_t>parts.value_size
    future.headers_size = <int32_t>parts.headers_size if parts.headers_size else -1
    return future


cdef inline FutureRecordMetadata _append(ProducerBatch batch, RecordParts* parts, int64_t timestamp, list headers,
                                         object on_delivery):
    """Returns the record's future, or None if the batch is closed or has no room for the record."""
    cdef FutureRecordMetadata future = _new_future(parts, timestamp)
    cdef int32_t index
    cdef tuple entry = None if on_delivery is None else (future, BOTH, on_delivery)
    # From here on, nothing may run Python code.
    index = batch.put(parts, timestamp, headers)
    if index < 0:
        return None
    future.batch = batch
    future.index = index
    if entry is not None:
        batch._callbacks.append(entry)
    return future


@cython.final
cdef class SerializeMethod:
    """The `serialize` method of a serializer object: called with (topic, data) or with (topic, headers, data)."""

    def __init__(self, function, bint wants_headers):
        self.function = function
        self.wants_headers = wants_headers


cdef class RecordAppender:
    """The compiled part of a producer: `send` up to the open batch.

    `_check_state` is None while records may be sent; otherwise it is called to raise the reason why not. The subclass
    implements `_append_to_accumulator(record)`.
    """

    def __cinit__(self):
        self._topics = {}
        self._max_record_bytes = INT_MAX // 4
        self._clock = SystemClock()

    @property
    def _clock(self):
        return self._time

    @_clock.setter
    def _clock(self, clock):
        self._time = clock
        self._is_system_time = type(clock) is SystemClock

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None,
             on_delivery=None):
        """Appends a record to the batch of its partition and returns the record's future.

        `headers` are pairs of a name and bytes. Without `partition`, the partitioner chooses one, by default from the
        key. If the producer has no memory left or no metadata of the topic yet, this waits up to `max.block.ms`. The
        producer calls `on_delivery(error, metadata)` when the record is acknowledged or has failed.
        """
        result = _try_append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return result if type(result) is FutureRecordMetadata else self._append_to_accumulator(result)

    def _try_append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        """Appends a record to the open batch of its partition and returns its future. If that needs metadata or memory
        first, returns the SerializedRecord."""
        return _try_append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)

    cdef int32_t partition_of(self, object key, TopicQueues queues) except -2:
        """Returns the partition that the partitioner or the key determines; -1 stands for the sticky partition."""
        cdef Py_ssize_t count = len(queues.queues)
        cdef int32_t partition
        if self._partitioner is not None:
            partition = self._partitioner(key, list(range(count)), queues.available)
            if not 0 <= partition < count:
                raise IllegalArgumentError(
                    f"The partitioner returned partition {partition} for topic {queues.topic!r}, "
                    f"which has {count} partitions")
            return partition
        if key is None or self._ignore_keys or count == 0:
            return -1
        return (murmur2_of(<const unsigned char*><const char*><bytes>key, len(<bytes>key)) & 0x7FFFFFFF) % <int32_t>count

    def _choose_partition(self, SerializedRecord record not None):
        """Chooses the partition if the record has none. Returns False if the metadata does not have the topic or the
        partition."""
        cdef TopicQueues queues = <TopicQueues>self._topics.get(record.topic)
        if queues is None or len(queues.queues) == 0:
            return False
        if record.partition < 0:
            record.partition = self.partition_of(record.key, queues)
        return record.partition < <int32_t>len(queues.queues)

    def _append_to_accumulator(self, SerializedRecord record):
        raise NotImplementedError


# Module functions instead of methods, so that the compiler inlines them into `send`.


cdef inline object _try_append(
    RecordAppender self, topic, value, key, headers, partition, timestamp_ms, on_delivery
):
    if on_delivery is None:
        on_delivery = self._on_delivery
    if self._interceptors is None:
        return _serialize_and_append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
    return _intercept_and_append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)


cdef object _intercept_and_append(
    RecordAppender self, topic, value, key, headers, partition, timestamp_ms, on_delivery
):
    topic, value, key, headers, partition, timestamp_ms = self._interceptors.on_send(
        topic, value, key, headers, partition, timestamp_ms)
    on_delivery = self._interceptors.callback(on_delivery)
    try:
        return _serialize_and_append(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
    except Exception as error:
        self._interceptors.on_acknowledgement(error, None)
        raise


cdef inline object _serialize_and_append(
    RecordAppender self, topic, value, key, headers, partition, timestamp_ms, on_delivery
):
    cdef RecordParts parts
    cdef list encoded = None
    cdef TopicQueues queues
    cdef PartitionQueue queue = None
    cdef FutureRecordMetadata future
    cdef SerializedRecord record
    cdef int64_t timestamp
    cdef int32_t chosen = -1
    if self._check_state is not None:
        self._check_state()

    # Serialize.
    cdef str name = <str>topic if PyUnicode_CheckExact(topic) else _as_name(topic)
    if _wants_headers(self._key_serializer) or _wants_headers(self._value_serializer):
        headers = list(headers.items() if isinstance(headers, dict) else headers or ())
    if self._key_serializer is not None:
        key = _serialize(self._key_serializer, name, headers, key, "key")
    if self._value_serializer is not None:
        value = _serialize(self._value_serializer, name, headers, value, "value")
    if key is not None and not PyBytes_CheckExact(key):
        key = _as_bytes(key, "key")
    if value is not None and not PyBytes_CheckExact(value):
        value = _as_bytes(value, "value")
    parts.key = parts.value = NULL
    bytes_of(key, "key", &parts.key, &parts.key_size)
    bytes_of(value, "value", &parts.value, &parts.value_size)
    parts.headers_size = 0
    if headers:
        encoded = encode_headers(headers.items() if isinstance(headers, dict) else headers, &parts.headers_size)
    if timestamp_ms is None:
        timestamp = system_time_ms() if self._is_system_time else self._time.time_ms()
    else:
        timestamp = _whole_number(timestamp_ms, INT64_MAX, "timestamp_ms", "milliseconds since 1970")

    # Choose the partition.
    if partition is not None:
        chosen = <int32_t>_whole_number(partition, INT_MAX, "partition", "a number from 0 to 2**31 - 1")
    queues = <TopicQueues>self._topics.get(name)
    if queues is not None and fits(&parts) and largest_size(&parts) + HEADER_BYTES <= self._max_record_bytes:
        if chosen < 0:
            chosen = self.partition_of(key, queues)
        if chosen < 0:
            queue = queues.sticky
        elif chosen < len(queues.queues):
            queue = <PartitionQueue>queues.queues[chosen]

        # Append to the open batch.
        if queue is not None and queue.open_batch is not None:
            future = _append(queue.open_batch, &parts, timestamp, encoded, on_delivery)
            if future is not None:
                return future

    # Metadata, memory or a new batch is needed first.
    record = SerializedRecord.__new__(SerializedRecord)
    record.topic = name
    record.key = key
    record.value = value
    record._headers = encoded
    record._parts = parts
    record.timestamp = timestamp
    record.partition = chosen
    record.on_delivery = on_delivery
    return record


cdef inline bint _wants_headers(object serializer) noexcept:
    return type(serializer) is SerializeMethod and (<SerializeMethod>serializer).wants_headers


cdef object _serialize(object serializer, str topic, object headers, object data, str field):
    cdef SerializeMethod method
    try:
        if type(serializer) is not SerializeMethod:
            return serializer(data)
        method = <SerializeMethod>serializer
        return method.function(topic, headers, data) if method.wants_headers else method.function(topic, data)
    except Exception as error:
        raise SerializationError(f"The {field} serializer failed for topic {topic!r}: {error!r}") from error


cdef str _as_name(object topic):
    if not isinstance(topic, str):
        raise TypeError(f"Topic names must be str, not {type(topic).__name__}")
    return str.__str__(topic)  # subclasses of str, such as enums, may override __str__


cdef int64_t _whole_number(object number, int64_t highest, str name, str expected) except -1:
    """Accepts integers of any type, but no float."""
    cdef int overflow = 0
    cdef int64_t value
    if not PyIndex_Check(number):
        raise TypeError(f"{name} must be an int ({expected}), not {type(number).__name__}")
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow or not 0 <= value <= highest:
        raise IllegalArgumentError(f"{name}={number} is not valid: expected {expected}")
    return value


cdef bytes _as_bytes(object data, str field):
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(
        f"A record's {field} must be bytes or None, not {type(data).__name__}: "
        f"configure a {field}_serializer to send other types"
    )
