"""A leader's append of one ordinary batch, compiled. Everything else is appended by `Log.append_as_leader`.

`LogFields.append_ordinary` does the same as `append_as_leader`, or it changes nothing and returns -1. A batch is
ordinary if all of these hold; then nothing can be wrong with it, so this module raises no errors:

- the batch: valid, not compressed, not transactional, CreateTime, with the correct maximum timestamp
- its producer: not idempotent, or known, with the next sequence number and no open transaction
- the topic: not compacted, CreateTime, compression.type=producer or uncompressed
- the segment: open, not empty, and with room for the batch

The classes here are the bases of Log, LogSegment and the indexes. They hold the fields that an append reads and changes
as C types; the rest of these classes is Python and documents the fields.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.mem cimport PyMem_RawMalloc
from libc.limits cimport INT_MAX
from libc.stdint cimport INT64_MAX, int16_t, uint32_t, uint64_t

from headrace.records._batch cimport (
    AT_ATTRIBUTES, AT_BASE_OFFSET, AT_BASE_SEQUENCE, AT_BASE_TIMESTAMP, AT_COUNT, AT_CRC, AT_LAST_OFFSET_DELTA,
    AT_LEADER_EPOCH, AT_LENGTH, AT_MAGIC, AT_MAX_TIMESTAMP, AT_PRODUCER_EPOCH, AT_PRODUCER_ID, HEADER_BYTES, crc_of,
)
from headrace.records._wire cimport ParseFault, RecordRef, load16, load32, load64, scan_records, store32, store64

from headrace.storage.files import DataFile
from headrace.storage.producer_state import BatchMetadata

cdef extern from "unistd.h" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)

cdef enum:
    SMALLEST_RECORD = 7
    MAX_RECORDS = 8192      # a batch with more records is not ordinary
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    NOT_ORDINARY = -3       # instead of a timestamp, which is at least -1

cdef RecordRef* _records = NULL  # memory for parsed records, reused; the GIL protects it

_BatchPosition = None


cdef class IndexFields:
    """The entries of an index. See `storage.index`."""


cdef int64_t _last_offset_entry(bytearray entries) noexcept:
    """Returns the relative offset of the last entry of an offset index; -1 if it is empty."""
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(entries)
    if size < OFFSET_ENTRY_BYTES:
        return -1
    return <int32_t>load32(<const uint8_t*>PyByteArray_AS_STRING(entries) + size - OFFSET_ENTRY_BYTES)


cdef int _append_offset_entry(bytearray entries, int32_t offset, int32_t position) except -1:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(entries)
    cdef uint8_t* entry
    PyByteArray_Resize(entries, size + OFFSET_ENTRY_BYTES)
    entry = <uint8_t*>PyByteArray_AS_STRING(entries) + size
    store32(entry, <uint32_t>offset)
    store32(entry + 4, <uint32_t>position)
    return 0


cdef int _append_time_entry(bytearray entries, int64_t timestamp, int32_t offset) except -1:
    """Adds an entry if the timestamp is newer than the last entry's."""
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(entries)
    cdef uint8_t* entry
    if timestamp < 0:
        return 0
    if size:
        entry = <uint8_t*>PyByteArray_AS_STRING(entries) + size - TIME_ENTRY_BYTES
        if <int64_t>load64(entry) >= timestamp:
            return 0
    PyByteArray_Resize(entries, size + TIME_ENTRY_BYTES)
    entry = <uint8_t*>PyByteArray_AS_STRING(entries) + size
    store64(entry, <uint64_t>timestamp)
    store32(entry + 8, <uint32_t>offset)
    return 0


cdef class SegmentFields:
    """The fields of a segment. See `storage.segment`."""

    cdef bint _must_roll(self, Limits* limits, Py_ssize_t size, int64_t timestamp, int64_t now_ms):
        """Returns True if a batch may have to go to another segment, or if the segment is not ready for it."""
        cdef int64_t first_timestamp, waited_ms
        if self.size == 0 or self._file is None or self._first_batch_timestamp is None or self._max_timestamp is None:
            return True
        if self.offset_index._data is None or self.time_index._data is None:
            return True
        first_timestamp = self._first_batch_timestamp
        if first_timestamp >= 0 and timestamp >= 0:
            waited_ms = timestamp - first_timestamp
        else:
            waited_ms = now_ms - self.created_ms
        return (
            self.size + size > limits.segment_bytes
            or self.size > INT_MAX
            or waited_ms > limits.segment_ms - self.jitter_ms
            or PyByteArray_GET_SIZE(self.offset_index._data) >= limits.offset_index_bytes
            or PyByteArray_GET_SIZE(self.time_index._data) >= limits.time_index_bytes
        )

    cdef int _add(self, Limits* limits, Py_ssize_t size, int64_t base_offset, int64_t last_offset,
                  int64_t timestamp) except -1:
        """Notes a batch that was written at the end of the file, like `LogSegment.index_batch`."""
        global _BatchPosition
        cdef int64_t position = self.size
        cdef tuple newest = self._max_timestamp
        if _BatchPosition is None:
            from headrace.storage.segment import BatchPosition
            _BatchPosition = BatchPosition
        self.size = position + size
        if timestamp > <int64_t>newest[0]:
            newest = (timestamp, last_offset)
            self._max_timestamp = newest
        if self._bytes_since_index > limits.index_interval_bytes:
            _append_offset_entry(self.offset_index._data, <int32_t>(last_offset - self.base_offset), <int32_t>position)
            _append_time_entry(
                self.time_index._data, <int64_t>newest[0], <int32_t>(<int64_t>newest[1] - self.base_offset)
            )
            self._bytes_since_index = 0
        self._bytes_since_index += size
        self._last_batch = _BatchPosition(position, size, base_offset, last_offset, timestamp)
        return 0


cdef int64_t _check_batch(const uint8_t* p, Py_ssize_t size, Limits* limits, int64_t now_ms) except -2:
    """Returns the largest timestamp of an ordinary batch, else NOT_ORDINARY."""
    global _records
    cdef ParseFault fault
    cdef int32_t count, i
    cdef int64_t newest = -1
    if (
        size < HEADER_BYTES
        or size > limits.max_batch_bytes
        or size > limits.segment_bytes
        or 12 + <int64_t><int32_t>load32(p + AT_LENGTH) != size
        or p[AT_MAGIC] != 2
        or load16(p + AT_ATTRIBUTES) != 0
        or load64(p + AT_BASE_OFFSET) != 0
    ):
        return NOT_ORDINARY
    count = <int32_t>load32(p + AT_COUNT)
    if (
        not 0 < count <= MAX_RECORDS
        or count > (size - HEADER_BYTES) // SMALLEST_RECORD
        or <int32_t>load32(p + AT_LAST_OFFSET_DELTA) != count - 1
        or crc_of(p + AT_ATTRIBUTES, size - AT_ATTRIBUTES) != load32(p + AT_CRC)
    ):
        return NOT_ORDINARY
    if _records == NULL:
        _records = <RecordRef*>PyMem_RawMalloc(MAX_RECORDS * sizeof(RecordRef))
        if _records == NULL:
            raise MemoryError()
    if scan_records(p + HEADER_BYTES, size - HEADER_BYTES, count, count - 1, <int64_t>load64(p + AT_BASE_TIMESTAMP),
                    _records, &fault) < 0:
        return NOT_ORDINARY
    # The offset deltas increase and are at most count - 1, so they are consecutive.
    for i in range(count):
        if _records[i].timestamp > newest:
            newest = _records[i].timestamp
    if newest != <int64_t>load64(p + AT_MAX_TIMESTAMP) or newest - now_ms > limits.timestamp_after_max_ms:
        return NOT_ORDINARY
    return newest


cdef class LogFields:
    """The fields of a log. See `storage.log`."""

    cdef int _update_limits(self) except -1:
        config = self.config
        cdef Limits* limits = &self._limits
        limits.is_ordinary = (
            not config.compact
            and not config.log_append_time
            and config.compression_type in ("producer", "uncompressed")
            and config.message_timestamp_before_max_ms == INT64_MAX
        )
        limits.max_batch_bytes = config.max_message_bytes
        limits.segment_bytes = config.segment_bytes
        limits.segment_ms = config.max_segment_ms
        limits.offset_index_bytes = config.segment_index_bytes // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES
        limits.time_index_bytes = (config.segment_index_bytes // TIME_ENTRY_BYTES - 1) * TIME_ENTRY_BYTES
        limits.index_interval_bytes = config.index_interval_bytes
        limits.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        limits.flush_messages = config.flush_messages
        self._limits_of = config
        return 0

    cdef int64_t append_ordinary(self, uint8_t* batch, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms) except -2:
        """Appends a producer's batch and returns its base offset; -1 if the batch or the log is not ordinary.

        Assigns offset and leader epoch in place, also if it returns -1 because the write failed.
        """
        cdef SegmentFields segment
        cdef list segments, epochs
        cdef int64_t timestamp, base_offset, last_offset, end_offset, producer_id, position
        cdef int32_t count
        cdef ssize_t written
        cdef int fd
        if self._limits_of is not self.config:
            self._update_limits()
        if self._closed or leader_epoch < 0 or not self._limits.is_ordinary:
            return -1
        epochs = self.epochs._entries
        if not epochs or <int64_t>(<tuple>epochs[len(epochs) - 1])[0] != leader_epoch:
            return -1
        timestamp = _check_batch(batch, size, &self._limits, now_ms)
        if timestamp == NOT_ORDINARY:
            return -1
        count = <int32_t>load32(batch + AT_COUNT)
        base_offset = self.log_end_offset
        last_offset = base_offset + count - 1
        end_offset = last_offset + 1
        segments = self.segments._segments
        segment = segments[len(segments) - 1]
        if (
            last_offset - segment.base_offset > INT_MAX
            or end_offset - self.recovery_point >= self._limits.flush_messages
            or segment._must_roll(&self._limits, size, timestamp, now_ms)
            or _last_offset_entry(segment.offset_index._data) >= last_offset - segment.base_offset
            or type(segment._file) is not DataFile
        ):
            return -1
        producer = None
        producers = self.producers
        producer_id = <int64_t>load64(batch + AT_PRODUCER_ID)
        if producer_id >= 0:
            producer = _known_producer(producers, producer_id, batch)
            if producer is None or self._failed_appends:
                return -1

        store64(batch + AT_BASE_OFFSET, <uint64_t>base_offset)
        store32(batch + AT_LEADER_EPOCH, <uint32_t>leader_epoch)
        file = segment._file  # stays open during the write
        fd = file._fd
        position = segment.size
        segment.recently_used = True
        with nogil:
            written = pwrite(fd, batch, size, position)
        if written != size:
            # The general append tries it again at the same position, and handles the error.
            segment._tail_may_be_dirty = True
            store64(batch + AT_BASE_OFFSET, 0)
            return -1
        segment._add(&self._limits, size, base_offset, last_offset, timestamp)
        self.log_end_offset = end_offset
        self._ends_in_gap = False
        if producer is not None:
            producer.last_timestamp = timestamp
            base_sequence = <int32_t>load32(batch + AT_BASE_SEQUENCE)
            last_sequence = (<int64_t><int32_t>load32(batch + AT_BASE_SEQUENCE) + count - 1) & INT_MAX
            producer.batches.append(BatchMetadata(base_sequence, last_sequence, last_offset, count - 1, timestamp))
        producers.end_offset = end_offset
        return base_offset

    cdef int advance_high_watermark(self) except -1:
        """Advances the high watermark to the log end offset, for a partition with one replica."""
        producers = self.producers
        self.high_watermark = self.log_end_offset
        if producers._unreplicated:
            producers.on_high_watermark_updated(self.log_end_offset)
        return 0


cdef object _known_producer(producers, int64_t producer_id, const uint8_t* batch):
    """Returns the producer's state if the batch has its epoch and its next sequence number, else None."""
    cdef dict entries = producers.entries
    cdef int64_t last_sequence
    producer = entries.get(producer_id)
    if (
        producer is None
        or producer.transaction_first_offset is not None
        or <int64_t>producer.epoch != <int16_t>load16(batch + AT_PRODUCER_EPOCH)
        or <int16_t>load16(batch + AT_PRODUCER_EPOCH) < 0
        or not producer.batches
    ):
        return None
    last_sequence = producer.batches[len(producer.batches) - 1].last_sequence
    return producer if (last_sequence + 1) & INT_MAX == <int32_t>load32(batch + AT_BASE_SEQUENCE) else None
