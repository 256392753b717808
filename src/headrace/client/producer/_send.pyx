"""The way of one record from `send()` into the open batch of its partition: what happens a million times a second.

    serialize ─▶ choose a partition ─▶ put into the partition's open batch ─▶ future

Any thread may send. There is no lock here: from the look at the open batch to the record in it and the callback beside
it, no Python code runs and nothing is allocated that could start the garbage collector, so no other thread gets the GIL
in between. The loop closes a batch under the GIL too, and a closed batch refuses.

Whatever is not this plain case leaves as a SendRequest to `_place`, which may take the accumulator's lock, make a
batch, or wait: an unknown topic, a full batch, no memory, a partition that there is not.
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
    """The batches of a partition that wait to be sent, the oldest first; the accumulator's lock guards them. Records go
    into `open_batch`, which is the last of them, or None. `closed_bytes` is what closed batches have had so far."""

    def __init__(self, tp):
        self.tp = tp
        self.partition = tp.partition
        self.batches = deque()
        self.leader = -1

    def __repr__(self):
        return f"PartitionQueue({self.tp}, {len(self.batches)} batches)"


@cython.final
cdef class TopicQueues:
    """The partitions of a topic. `queues` is replaced by a longer list when the topic grows, never changed."""

    def __init__(self, str topic not None):
        self.topic = topic
        self.queues = []
        self.available = []

    def set_leaders(self, list leaders not None):
        """The leader of each partition, -1 for none. A topic may get more partitions, never fewer."""
        cdef PartitionQueue queue
        cdef Py_ssize_t known = len(self.queues)
        more = [PartitionQueue(TopicPartition(self.topic, index)) for index in range(known, len(leaders))]
        if more:
            self.queues = self.queues + more
        for queue in self.queues:
            queue.leader = leaders[queue.partition] if queue.partition < len(leaders) else -1
        self.available = [queue.partition for queue in self.queues if queue.leader >= 0]


@cython.final
cdef class SendRequest:
    """One record, serialized, on its way. `partition` is -1 as long as none is chosen."""

    def __init__(self):
        raise TypeError("requests come from SendPath")

    @property
    def largest_size(self):
        """What the record takes at most as the only one of a batch."""
        return HEADER_BYTES + largest_size(&self._parts)

    def append_to(self, ProducerBatch batch not None):
        """The record's future, or None if it does not fit the batch or comes too late for it."""
        return _append(batch, &self._parts, self.timestamp, self._headers, self.on_delivery)

    def refuse(self, error):
        """A future that has failed; the delivery callback hears of it at once."""
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
    cdef FutureRecordMetadata future = _new_future(parts, timestamp)
    cdef int32_t index
    cdef tuple entry = None if on_delivery is None else (future, BOTH, on_delivery)
    # From here on nothing that could run Python code.
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
    """The `serialize` of an object: called with (topic, data), or with (topic, headers, data)."""

    def __init__(self, function, bint wants_headers):
        self.function = function
        self.wants_headers = wants_headers


cdef class SendPath:
    """What both faces of the producer inherit `send` from.

    `_gate` is None while records may be sent; else it is called to raise what stands in the way. `_place(request)` is
    the subclass's.
    """

    def __cinit__(self):
        self._topics = {}
        self._max_request_bytes = INT_MAX // 4
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
        """Sends a record and returns its future at once; it goes out with its batch.

        `headers` are pairs of a name and bytes. Without `partition` the key decides, or else the partitioner. When the
        producer has no memory left, or does not know the topic yet, this waits for at most `max.block.ms`.
        `on_delivery(error, metadata)` is called when the outcome is known.
        """
        cdef RecordParts parts
        cdef list encoded = None
        cdef TopicQueues queues
        cdef PartitionQueue queue = None
        cdef ProducerBatch batch
        cdef FutureRecordMetadata future
        cdef SendRequest request
        cdef int64_t timestamp
        cdef int32_t chosen = -1
        if self._gate is not None:
            self._gate()
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
            timestamp = _whole(timestamp_ms, INT64_MAX, "timestamp_ms is milliseconds since 1970")
        if partition is not None:
            chosen = <int32_t>_whole(partition, INT_MAX, "a partition is at least 0 and below 2**31")
        if on_delivery is None:
            on_delivery = self._on_delivery
        queues = <TopicQueues>self._topics.get(name)
        if queues is not None and fits(&parts) and largest_size(&parts) + HEADER_BYTES <= self._max_request_bytes:
            if chosen < 0:
                chosen = self._by_key(key, queues)
            if chosen < 0:
                queue = queues.sticky
            elif chosen < len(queues.queues):
                queue = <PartitionQueue>queues.queues[chosen]
            if queue is not None:
                batch = queue.open_batch
                if batch is not None:
                    future = _append(batch, &parts, timestamp, encoded, on_delivery)
                    if future is not None:
                        return future
        request = SendRequest.__new__(SendRequest)
        request.topic = name
        request.key = key
        request.value = value
        request._headers = encoded
        request._parts = parts
        request.timestamp = timestamp
        request.partition = chosen
        request.on_delivery = on_delivery
        return self._place(request)

    cdef int32_t _by_key(self, object key, TopicQueues queues) except -2:
        """The partition that the partitioner, or else the key, says; -1 for the sticky one."""
        cdef Py_ssize_t count = len(queues.queues)
        cdef int32_t chosen
        if self._partitioner is not None:
            chosen = self._partitioner(key, list(range(count)), queues.available)
            if not 0 <= chosen < count:
                raise IllegalArgumentError(f"the partitioner chose partition {chosen} of {queues.topic}, which has {count}")
            return chosen
        if key is None or self._ignore_keys or count == 0:
            return -1
        return (murmur2_of(<const unsigned char*><const char*><bytes>key, len(<bytes>key)) & 0x7FFFFFFF) % <int32_t>count

    def _choose_partition(self, SendRequest request not None):
        """Chooses for a request that has come without one. False if the topic is not known, or has no such
        partition."""
        cdef TopicQueues queues = <TopicQueues>self._topics.get(request.topic)
        if queues is None or len(queues.queues) == 0:
            return False
        if request.partition < 0:
            request.partition = self._by_key(request.key, queues)
        return request.partition < <int32_t>len(queues.queues)

    def _place(self, SendRequest request):
        raise NotImplementedError


cdef inline bint _wants_headers(object serializer) noexcept:
    return type(serializer) is SerializeMethod and (<SerializeMethod>serializer).wants_headers


cdef object _serialize(object serializer, str topic, object headers, object data, str what):
    cdef SerializeMethod method
    try:
        if type(serializer) is not SerializeMethod:
            return serializer(data)
        method = <SerializeMethod>serializer
        return method.function(topic, headers, data) if method.wants_headers else method.function(topic, data)
    except Exception as error:
        raise SerializationError(f"the serializer of the {what} for topic {topic!r} failed: {error!r}") from error


cdef str _as_name(object topic):
    if not isinstance(topic, str):
        raise TypeError(f"a topic's name is a str, not {type(topic).__name__}")
    return str.__str__(topic)  # of a subclass, an enum say, which may print itself in another way


cdef int64_t _whole(object number, int64_t most, str expected) except -1:
    """A whole number of any kind, and no float."""
    cdef int overflow = 0
    cdef int64_t value
    if not PyIndex_Check(number):
        raise TypeError(f"{expected}, a whole number, not {type(number).__name__}")
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow or not 0 <= value <= most:
        raise IllegalArgumentError(f"{expected}, not {number}")
    return value


cdef bytes _as_bytes(object data, str what):
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(
        f"a record's {what} is bytes or None, not {type(data).__name__}; a {what}_serializer makes bytes of other things"
    )
