"""Produce requests with ordinary batches, compiled: decodes the request, appends, and encodes the response.

`handlers.produce` handles every request that `FastProduce` does not, and is the reference for it:

    handle(frame) ┬─ bytes   all batches are appended; this is the response (empty with acks=0)
                  ├─ a list  the first batches are appended; the general handler appends the others
                  └─ None    nothing is appended; the general handler does everything

Only a request with a few ordinary batches (`storage._fast_append`) for partitions with one replica is completed here.
Nothing is appended before the whole request is decoded, so a malformed request has no effect.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headrace.common._clock cimport system_time_ms
from headrace.records._batch cimport AT_COUNT
from headrace.records._wire cimport load16, load32, store16, store32, store64, write_unsigned
from headrace.storage._fast_append cimport LogFields

from headrace.cluster.topics import INTERNAL_TOPICS
from headrace.common.clock import SystemClock
from headrace.common.ids import Uuid

cdef extern from "Python.h":
    object PyUnicode_DecodeASCII(const char* text, Py_ssize_t size, const char* errors)

cdef enum:
    MAX_BATCHES = 16            # a request with more is handled in turns
    MAX_NAME_BYTES = 249        # of a topic
    MAX_KNOWN_IDS = 10_000
    RESPONSE_BYTES = 16 * 1024  # more than MAX_BATCHES topics and partitions need
    LOWEST_VERSION = 3
    FIRST_WITH_LOG_START_OFFSET = 5
    FIRST_WITH_RECORD_ERRORS = 8
    FIRST_FLEXIBLE = 9
    FIRST_WITH_TOPIC_IDS = 13
    HIGHEST_VERSION = 13


cdef struct Cursor:
    uint8_t* at
    uint8_t* end


# One batch of a request. Its partition is borrowed from the list of the request's partitions.
cdef struct Batch:
    uint8_t* topic          # the name without its length, or the id
    int32_t topic_bytes
    int32_t index
    uint8_t* records
    int32_t size
    int64_t base_offset
    int64_t log_start_offset


cdef class TopicTraffic:
    """Counts the traffic of one topic on this broker. `broker.traffic` documents the fields."""

    cdef public int64_t messages_in
    cdef public int64_t bytes_in
    cdef public int64_t bytes_out
    cdef public int64_t bytes_rejected
    cdef public int64_t replication_bytes_in
    cdef public int64_t replication_bytes_out
    cdef public int64_t produces
    cdef public int64_t failed_produces
    cdef public int64_t fetches
    cdef public int64_t failed_fetches


cdef class PartitionFields:
    """The fields of a partition that an append uses. See `broker.partition`."""

    cdef public object log
    cdef public TopicTraffic traffic
    cdef public list isr
    cdef public list replicas
    cdef public bint is_leader
    cdef public int32_t leader_epoch
    cdef public bint _append_failing


cdef inline bint _skip(Cursor* cursor, Py_ssize_t size) noexcept:
    if size < 0 or cursor.end - cursor.at < size:
        return False
    cursor.at += size
    return True


cdef inline bint _read16(Cursor* cursor, int16_t* value) noexcept:
    if cursor.end - cursor.at < 2:
        return False
    value[0] = <int16_t>load16(cursor.at)
    cursor.at += 2
    return True


cdef inline bint _read32(Cursor* cursor, int32_t* value) noexcept:
    if cursor.end - cursor.at < 4:
        return False
    value[0] = <int32_t>load32(cursor.at)
    cursor.at += 4
    return True


cdef inline bint _read_length(Cursor* cursor, bint flexible, int32_t* value) noexcept:
    """Reads the length of an array or of bytes. Compact lengths of more than four bytes are not ordinary."""
    cdef uint32_t raw = 0
    cdef int shift = 0
    if not flexible:
        return _read32(cursor, value)
    while cursor.at < cursor.end and shift < 28:
        raw |= <uint32_t>(cursor.at[0] & 0x7F) << shift
        cursor.at += 1
        if (cursor.at - 1)[0] < 0x80:
            value[0] = <int32_t>raw - 1
            return True
        shift += 7
    return False


cdef inline bint _no_tags(Cursor* cursor, bint flexible) noexcept:
    if not flexible:
        return True
    if cursor.at == cursor.end or cursor.at[0] != 0:
        return False
    cursor.at += 1
    return True


cdef inline bint _is_ascii(const uint8_t* text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        if text[i] >= 0x80:
            return False
    return True


cdef class FastProduce:
    """Handles Produce requests with ordinary batches. Owned by the broker's loop."""

    cdef object _image
    cdef object _replicas
    cdef dict _topics
    cdef dict _waiting_fetches
    cdef dict _waiting_produces
    cdef object _clock
    cdef bint _is_system_clock
    cdef dict _ids              # the bytes of topic ids -> Uuid
    cdef object _writable       # the set of topics that the client may write to, or None: all of them
    cdef uint8_t _response[RESPONSE_BYTES]

    def __init__(self, replicas, image, clock):
        self._image = image
        self._replicas = replicas
        self._topics = replicas._topics
        self._waiting_fetches = replicas.fetches._watchers
        self._waiting_produces = replicas.produces._watchers
        self._clock = clock
        self._is_system_clock = type(clock) is SystemClock
        self._ids = {}
        self._writable = None

    def handle(self, frame, writable=None):
        """Handles a frame, without its size field, if it is an ordinary Produce request. See the module for the result.

        `writable` has the topics that the client is known to be authorized for; None: all topics.
        """
        cdef Py_buffer view
        self._writable = writable
        PyObject_GetBuffer(frame, &view, PyBUF_WRITABLE)
        try:
            return self._handle(<uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef object _handle(self, uint8_t* frame, Py_ssize_t size):
        cdef Batch batches[MAX_BATCHES]
        cdef Cursor cursor
        cdef int16_t version, acks
        cdef int32_t correlation_id
        cdef int count, appended
        if size < 10 or load16(frame) != 0:
            return None
        version = <int16_t>load16(frame + 2)
        if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
            return None
        correlation_id = <int32_t>load32(frame + 4)
        cursor.at = frame + 8
        cursor.end = frame + size
        count = _decode(&cursor, version, &acks, batches)
        if count == 0:
            return None
        appended = self._append_all(batches, count, version)
        if appended < count:
            return [(batches[i].base_offset, batches[i].log_start_offset) for i in range(appended)] or None
        if acks == 0:
            return b""
        return self._encode(batches, count, version, correlation_id)

    cdef int _append_all(self, Batch* batches, int count, int16_t version) except -1:
        """Appends the batches up to the first that is not ordinary. Returns their number."""
        cdef int64_t now_ms = system_time_ms() if self._is_system_clock else <int64_t>self._clock.time_ms()
        cdef PartitionFields partition
        cdef TopicTraffic traffic
        cdef LogFields log
        cdef Batch* batch
        cdef int i
        for i in range(count):
            batch = &batches[i]
            partition = self._partition_of(batch, version)
            if partition is None:
                return i
            log = <LogFields?>partition.log
            batch.base_offset = log.append_ordinary(batch.records, batch.size, partition.leader_epoch, now_ms)
            if batch.base_offset < 0:
                return i
            batch.log_start_offset = log.log_start_offset
            traffic = partition.traffic
            traffic.produces += 1
            traffic.messages_in += <int32_t>load32(batch.records + AT_COUNT)
            traffic.bytes_in += batch.size
            log.advance_high_watermark()
            if partition in self._waiting_fetches or partition in self._waiting_produces:
                self._replicas.appended(partition)
        return count

    cdef PartitionFields _partition_of(self, Batch* batch, int16_t version):
        """Returns the partition if this broker leads it and it has one replica, else None."""
        cdef dict partitions
        cdef PartitionFields partition
        cdef bytes id_bytes
        if version < FIRST_WITH_TOPIC_IDS:
            name = PyUnicode_DecodeASCII(<const char*>batch.topic, batch.topic_bytes, NULL)
        else:
            id_bytes = PyBytes_FromStringAndSize(<const char*>batch.topic, 16)
            topic_id = self._ids.get(id_bytes)
            if topic_id is None:
                if len(self._ids) >= MAX_KNOWN_IDS:
                    self._ids.clear()
                topic_id = self._ids[id_bytes] = Uuid(bytes=id_bytes)
            name = self._image.topic_name(topic_id)
        if self._writable is not None and name not in self._writable:
            return None  # the general handler asks the authorizer
        partitions = self._topics.get(name)
        if partitions is None or name in INTERNAL_TOPICS:
            return None
        partition = partitions.get(batch.index)
        if (
            partition is None
            or partition.log is None
            or not partition.is_leader
            or partition._append_failing
            or len(partition.replicas) != 1
            or len(partition.isr) != 1
        ):
            return None
        return partition

    cdef bytes _encode(self, Batch* batches, int count, int16_t version, int32_t correlation_id):
        """Returns the response with its size field."""
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef uint8_t* p = self._response + 4
        cdef int i = 0, first, same_topic
        store32(p, <uint32_t>correlation_id)
        p += 4
        if flexible:
            p = write_unsigned(p, 0)
        p = _write_length(p, _count_topics(batches, count), flexible)
        while i < count:
            first = i
            while i < count and batches[i].topic == batches[first].topic:
                i += 1
            p = _write_topic(p, &batches[first], version)
            p = _write_length(p, i - first, flexible)
            for same_topic in range(first, i):
                p = _write_partition(p, &batches[same_topic], version)
            if flexible:
                p = write_unsigned(p, 0)
        store32(p, 0)  # throttle time
        p += 4
        if flexible:
            p = write_unsigned(p, 0)
        store32(self._response, <uint32_t>(p - self._response - 4))
        return PyBytes_FromStringAndSize(<const char*>self._response, p - self._response)


cdef int _decode(Cursor* cursor, int16_t version, int16_t* acks, Batch* batches) noexcept:
    """Reads the request after the correlation id. Returns the number of batches; 0 if the request is not ordinary."""
    cdef bint flexible = version >= FIRST_FLEXIBLE
    cdef int16_t client_id_bytes, short_length
    cdef int32_t timeout_ms, topics, partitions, length
    cdef uint8_t* topic
    cdef int count = 0
    if not _read16(cursor, &client_id_bytes):
        return 0
    if client_id_bytes > 0:
        if not _skip(cursor, client_id_bytes) or not _is_ascii(cursor.at - client_id_bytes, client_id_bytes):
            return 0
    if not _no_tags(cursor, flexible):
        return 0
    if flexible:
        if not _read_length(cursor, True, &length):
            return 0
    else:
        if not _read16(cursor, &short_length):
            return 0
        length = short_length
    if length != -1:  # a transactional id
        return 0
    if not _read16(cursor, acks) or not -1 <= acks[0] <= 1 or not _read32(cursor, &timeout_ms):
        return 0
    if not _read_length(cursor, flexible, &topics) or not 0 < topics <= MAX_BATCHES:
        return 0
    while topics > 0:
        topics -= 1
        if version >= FIRST_WITH_TOPIC_IDS:
            length = 16
        elif flexible:
            if not _read_length(cursor, True, &length):
                return 0
        else:
            if not _read16(cursor, &short_length):
                return 0
            length = short_length
        topic = cursor.at
        if not 0 < length <= MAX_NAME_BYTES or not _skip(cursor, length):
            return 0
        if version < FIRST_WITH_TOPIC_IDS and not _is_ascii(topic, length):
            return 0
        if not _read_length(cursor, flexible, &partitions) or partitions <= 0:
            return 0
        while partitions > 0:
            partitions -= 1
            if count == MAX_BATCHES:
                return 0
            batches[count].topic = topic
            batches[count].topic_bytes = length
            if not _read32(cursor, &batches[count].index) or not _read_length(cursor, flexible, &batches[count].size):
                return 0
            batches[count].records = cursor.at
            if not _skip(cursor, batches[count].size) or not _no_tags(cursor, flexible):
                return 0
            count += 1
        if not _no_tags(cursor, flexible):
            return 0
    return count if _no_tags(cursor, flexible) else 0


cdef int _count_topics(Batch* batches, int count) noexcept:
    cdef int i, topics = 1
    for i in range(1, count):
        if batches[i].topic != batches[i - 1].topic:
            topics += 1
    return topics


cdef uint8_t* _write_length(uint8_t* p, int32_t length, bint flexible) noexcept:
    if flexible:
        return write_unsigned(p, <uint32_t>length + 1)
    store32(p, <uint32_t>length)
    return p + 4


cdef uint8_t* _write_topic(uint8_t* p, Batch* batch, int16_t version) noexcept:
    if version < FIRST_FLEXIBLE:
        store16(p, <uint16_t>batch.topic_bytes)
        p += 2
    elif version < FIRST_WITH_TOPIC_IDS:
        p = write_unsigned(p, <uint32_t>batch.topic_bytes + 1)
    memcpy(p, batch.topic, batch.topic_bytes)
    return p + batch.topic_bytes


cdef uint8_t* _write_partition(uint8_t* p, Batch* batch, int16_t version) noexcept:
    store32(p, <uint32_t>batch.index)
    store16(p + 4, 0)  # no error
    store64(p + 6, <uint64_t>batch.base_offset)
    store64(p + 14, <uint64_t>-1)  # no log append time
    p += 22
    if version >= FIRST_WITH_LOG_START_OFFSET:
        store64(p, <uint64_t>batch.log_start_offset)
        p += 8
    if version >= FIRST_FLEXIBLE:
        p[0] = 1  # no record errors
        p[1] = 0  # no error message
        p[2] = 0  # no tags
        p += 3
    elif version >= FIRST_WITH_RECORD_ERRORS:
        store32(p, 0)
        store16(p + 4, 0xFFFF)
        p += 6
    return p
