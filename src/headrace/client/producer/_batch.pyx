"""A producer batch, and the futures of its records.

A future is a batch and an index: completing a batch does nothing per record, and a future reads its result from the
batch. Only callbacks are stored one by one. A batch that was split points to its parts, and its futures follow.

Any thread appends; the event loop does everything else. Both hold the GIL and do not release it in between (nothing
here that changes a batch runs Python code or allocates an object that the garbage collector tracks), so `put` and
`close` need no lock: a record is either in the batch before it closes, or refused. Free-threaded Python builds enable
the GIL again for this module.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from headrace.records._batch cimport HEADER_BYTES, TRANSACTIONAL_BIT, HeaderFields, finish_batch
from headrace.records._record cimport RecordParts, body_size, encode_headers, largest_size, put_record
from headrace.records._wire cimport wrapping_subtract

import asyncio
import logging

from headrace.client.errors import KafkaTimeoutError
from headrace.client.types import RecordMetadata
from headrace.client.waiting import InterruptibleEvent
from headrace.common.types import TopicPartition
from headrace.records import Compression, RecordBatch, decode_rows

_logger = logging.getLogger(__name__)

cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports


def resize_buffer(bytearray buffer not None, Py_ssize_t size) -> bool:
    """Resizes a used buffer without clearing it. Returns False if a view of it still exists."""
    if (<PyByteArrayObject*>buffer).ob_exports:
        return False
    if PyByteArray_GET_SIZE(buffer) != size:
        PyByteArray_Resize(buffer, size)
    return True


@cython.final
cdef class ProducerBatch:
    """Records of one partition that are sent together. Belongs to the event loop, except for `put`."""

    def __init__(self, tp, bytearray buffer not None, double created_at, codec=Compression.NONE, level=None,
                 Py_ssize_t capacity=-1):
        memset(&self._fields, 0, sizeof(self._fields))
        self._fields.leader_epoch = -1
        self._fields.producer_id = -1
        self._fields.producer_epoch = -1
        self._fields.base_sequence = -1
        self._fields.base_timestamp = -1
        self._fields.max_timestamp = -1
        self._fields.last_offset_delta = -1
        self.tp = tp
        self.buffer = buffer
        self.capacity = capacity if capacity >= 0 else PyByteArray_GET_SIZE(buffer)
        self._p = <uint8_t*>PyByteArray_AS_STRING(buffer)
        self._size = HEADER_BYTES
        self._codec = codec
        self._level = level
        self.created_at = created_at
        self.leader_id = -1
        self.base_offset = -1
        self.log_append_time = -1
        self._callbacks = []

    @staticmethod
    def from_bytes(tp, data, double created_at, Py_ssize_t capacity):
        """Returns a closed batch of encoded records."""
        cdef ProducerBatch batch = ProducerBatch(tp, bytearray(), created_at, capacity=capacity)
        header = RecordBatch(data)
        batch._fields.count = header.count
        batch._fields.last_offset_delta = header.last_offset_delta
        batch._size = header.size_in_bytes
        batch.data = data
        batch.is_closed = True
        batch._p = NULL
        batch.buffer = None
        return batch

    @staticmethod
    def failed(tp, error):
        """Returns a failed batch, for the future of a record that was refused before it was appended."""
        cdef ProducerBatch batch = ProducerBatch(tp, bytearray(), 0.0)
        batch.is_closed = True
        batch.is_done = True
        batch.error = error
        batch._p = NULL
        batch.buffer = None
        return batch

    def __repr__(self):
        return f"ProducerBatch({self.tp}, {self._fields.count} records, sequence {self._fields.base_sequence})"

    def __len__(self):
        return self._fields.count

    @property
    def size_in_bytes(self):
        """The size of the built batch; before `build`, the size without compression."""
        return self._size if self.data is None else len(self.data)

    @property
    def producer_id(self): return self._fields.producer_id

    @property
    def producer_epoch(self): return self._fields.producer_epoch

    @property
    def base_sequence(self): return self._fields.base_sequence

    @property
    def has_sequence(self): return self._fields.base_sequence >= 0

    @property
    def last_sequence(self):
        if self._fields.base_sequence < 0:
            return -1
        return (<int64_t>self._fields.base_sequence + self._fields.count - 1) & INT_MAX

    @property
    def parts(self):
        """The batches that this one was split into, or None."""
        return None if self._children is None else [part for _, part in self._children]

    def future(self):
        """Returns a future of the first record, which completes with the batch."""
        cdef FutureRecordMetadata future = FutureRecordMetadata.__new__(FutureRecordMetadata)
        future.batch = self
        future.timestamp = -1
        future.key_size = future.value_size = future.headers_size = -1
        return future

    @property
    def is_transactional(self): return (self._fields.attributes & TRANSACTIONAL_BIT) != 0

    cdef int32_t put(self, RecordParts* parts, int64_t timestamp, list headers):
        """Appends a record and returns its index, or -1 if the batch is full or closed."""
        cdef int64_t timestamp_delta
        cdef int32_t index = self._fields.count
        cdef Py_ssize_t body
        cdef uint8_t* p
        if self.is_closed or largest_size(parts) > self.capacity - self._size:
            return -1
        timestamp_delta = 0 if index == 0 else wrapping_subtract(timestamp, self._fields.base_timestamp)
        body = body_size(parts, timestamp_delta, index, 0 if headers is None else len(headers))
        p = self._p + self._size
        self._size += put_record(p, parts, body, timestamp_delta, index, headers) - p
        if index == 0:
            self._fields.base_timestamp = timestamp
        if timestamp > self._fields.max_timestamp:
            self._fields.max_timestamp = timestamp
        self._fields.last_offset_delta = index
        self._fields.count = index + 1
        return index

    def grow(self, Py_ssize_t capacity):
        """Enlarges the buffer. Needs the accumulator's lock."""
        if not self.is_closed and capacity > self.capacity:
            PyByteArray_Resize(self.buffer, capacity)
            self._p = <uint8_t*>PyByteArray_AS_STRING(self.buffer)
            self.capacity = capacity

    def move(self, bytearray buffer not None):
        """Moves the records to a larger buffer. Needs the accumulator's lock."""
        if not self.is_closed and PyByteArray_GET_SIZE(buffer) > self.capacity:
            memcpy(PyByteArray_AS_STRING(buffer), self._p, self._size)
            self.buffer = buffer
            self._p = <uint8_t*>PyByteArray_AS_STRING(buffer)
            self.capacity = PyByteArray_GET_SIZE(buffer)

    def close(self):
        """Makes `put` refuse further records."""
        self.is_closed = True

    def set_producer(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional):
        """Sets producer ID, epoch and sequence number; also again, after an epoch bump."""
        self._fields.producer_id = producer_id
        self._fields.producer_epoch = producer_epoch
        self._fields.base_sequence = base_sequence
        self._fields.attributes &= ~TRANSACTIONAL_BIT
        if transactional:
            self._fields.attributes |= TRANSACTIONAL_BIT
        if self.data is not None:
            if self.in_flight:
                # The network may still be sending these bytes: they must keep matching their CRC.
                self.data = bytearray(self.data)
            RecordBatch(self.data).patch_producer(producer_id, producer_epoch, base_sequence, transactional)

    def build(self):
        """Closes the batch and returns the bytes to send. Later calls return the same bytes."""
        if self.data is None:
            self.is_closed = True
            self.data = finish_batch(&self._fields, self.buffer, self._size, self._codec, self._level)
            self._p = NULL
        return self.data

    def split(self, Py_ssize_t max_bytes):
        """Returns new batches of the same records, without sequence numbers. Each has at most `max_bytes` before
        compression, but at least one record. This batch's futures follow them."""
        cdef ProducerBatch part = None
        cdef RecordParts parts
        cdef const char* start
        cdef list encoded, children = []
        cdef int32_t index = 0
        self.build()
        for record in decode_rows(RecordBatch(self.data).records()):
            encoded = None
            parts.headers_size = 0
            if record.headers:
                encoded = encode_headers(record.headers, &parts.headers_size)
            key, value = record.key, record.value
            parts.key_size = parts.value_size = -1
            if key is not None:
                parts.key, parts.key_size = <const char*>key, len(key)
            if value is not None:
                parts.value, parts.value_size = <const char*>value, len(value)
            if part is None or part.put(&parts, record.timestamp, encoded) < 0:
                room = max(max_bytes, HEADER_BYTES + largest_size(&parts))
                part = ProducerBatch(self.tp, bytearray(room), self.created_at, self._codec, self._level)
                part.is_split = True
                part.attempts = self.attempts
                children.append((index, part))
                part.put(&parts, record.timestamp, encoded)
            index += 1
        for _, part in children:
            part.close()
        self._children = children
        self.settle()
        return [part for _, part in children]

    def detach(self):
        """Takes the buffer out of a batch that is done, so that its futures keep no records in memory. Returns the
        buffer and its bytes of pool memory."""
        cdef bytearray buffer = self.buffer
        cdef Py_ssize_t capacity = self.capacity
        self.is_closed = True
        self.buffer = None
        self.data = None
        self.capacity = 0
        self._p = NULL
        return buffer, capacity

    def complete(self, int64_t base_offset, int64_t log_append_time):
        """Completes the batch with its offset, and runs callbacks. Returns False if it was done before."""
        if self.is_done:
            return False
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.settle()
        return True

    def fail(self, error, dict record_errors=None):
        """Fails the batch, and runs callbacks. `record_errors` are errors of single records by index (KIP-467). Returns
        False if it was done before."""
        if self.is_done:
            return False
        self.error = error
        self._record_errors = record_errors
        self.settle()
        return True

    cdef int settle(self) except -1:
        cdef list callbacks = self._callbacks
        cdef object event
        self.is_closed = True
        self.is_done = True
        self._callbacks = None
        event = self._event
        if event is not None:
            event.set()
        if callbacks is not None:
            if self._children is not None:
                # Not done yet: each callback waits for the part that has its record.
                for future, kind, function in callbacks:
                    (<FutureRecordMetadata>future)._when_done((future, kind, function))
            else:
                for future, kind, function in callbacks:
                    _call(<FutureRecordMetadata>future, kind, function)
        return 0


cdef int _call(FutureRecordMetadata future, int kind, object function) except -1:
    error = future._error()
    try:
        if kind == BOTH:
            function(error, future._metadata())
        elif kind == CALLBACK:
            if error is None:
                function(future._metadata())
        elif error is not None:
            function(error)
    except Exception:
        _logger.exception("Partition %s: the delivery callback of a record failed", future.batch.tp)
    return 0


@cython.final
@cython.freelist(4096)
@cython.no_gc
cdef class FutureRecordMetadata:
    """The result of sending one record, as in kafka-python: `get(timeout_ms=...)` waits for it, and callbacks receive it. In
    asyncio code, it can be awaited.

    Callbacks run where responses are read (the producer's own thread, or the event loop), so they should be quick. A
    callback that is added after the record is done runs at once, in the calling thread.
    """

    def __init__(self):
        raise TypeError("Only Producer.send() creates FutureRecordMetadata objects")

    cdef int _locate(self) except -1:
        """Moves on to the part of a split batch that has the record."""
        cdef list children
        cdef Py_ssize_t i
        while self.batch._children is not None:
            children = self.batch._children
            i = len(children) - 1
            while i > 0 and <int32_t>children[i][0] > self.index:
                i -= 1
            self.index -= <int32_t>children[i][0]
            self.batch = <ProducerBatch>children[i][1]
        return 0

    cdef object _error(self):
        if self.batch.error is None:
            return None
        if self.batch._record_errors:
            return self.batch._record_errors.get(self.index, self.batch.error)
        return self.batch.error

    def _metadata(self):
        """Returns the RecordMetadata, with offset -1 if it is not known."""
        cdef ProducerBatch batch = self.batch
        return RecordMetadata(
            batch.tp.topic,
            batch.tp.partition,
            batch.tp,
            batch.base_offset + self.index if batch.base_offset >= 0 else -1,
            batch.log_append_time if batch.log_append_time >= 0 else self.timestamp,
            None,
            self.key_size,
            self.value_size,
            self.headers_size,
        )

    cdef int _when_done(self, object entry) except -1:
        """Calls a callback now, or when the batch is done."""
        self._locate()
        if self.batch.is_done:
            return _call(self, entry[1], entry[2])
        self.batch._callbacks.append(entry)
        return 0

    @property
    def is_done(self):
        self._locate()
        return self.batch.is_done

    def succeeded(self):
        """Returns True if the record was acknowledged (with acks=0: sent)."""
        return self.is_done and self._error() is None

    def failed(self):
        return self.is_done and self._error() is not None

    @property
    def value(self):
        """The RecordMetadata, or None until the record is acknowledged."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self):
        return self._error() if self.is_done else None

    def retriable(self):
        error = self.exception
        return bool(getattr(error, "retriable", False))

    def get(self, *, timeout_ms=None):
        """Waits until the record is acknowledged and returns its RecordMetadata, or raises its error. Raises
        KafkaTimeoutError after `timeout_ms`; the default is to wait, at most `delivery.timeout.ms`."""
        if not self.is_done:
            self._wait(timeout_ms)
        error = self._error()
        if error is not None:
            raise _copy(error)
        return self._metadata()

    def _wait(self, timeout_ms):
        cdef ProducerBatch batch
        while True:
            self._locate()
            batch = self.batch
            if batch.is_done:
                return
            event = batch._event
            if event is None:
                new_event = InterruptibleEvent()
                if batch._event is None:
                    batch._event = new_event
                event = batch._event
            if batch.is_done:
                continue
            # After a split, the wait starts again; splits are rare.
            if not event.wait(None if timeout_ms is None else timeout_ms / 1000):
                raise KafkaTimeoutError(
                    f"The record for {batch.tp} was not acknowledged within {timeout_ms:g} ms; that may still happen")

    def add_callback(self, function, *args, **kwargs):
        """Calls `function(*args, metadata, **kwargs)` if the record was acknowledged."""
        self._when_done((self, CALLBACK, _bind(function, args, kwargs)))
        return self

    def add_errback(self, function, *args, **kwargs):
        """Calls `function(*args, error, **kwargs)` if the record failed."""
        self._when_done((self, ERRBACK, _bind(function, args, kwargs)))
        return self

    def add_both(self, function, *args, **kwargs):
        """Adds a function both as callback and as errback."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)

    def add_done(self, function):
        """Calls `function(error, metadata)` when the record is done; `error` is None if it was acknowledged."""
        self._when_done((self, BOTH, function))
        return self

    def __await__(self):
        if not self.is_done:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()

            def done(_error, _metadata):
                loop.call_soon_threadsafe(_release, waiter)

            self.add_done(done)
            yield from waiter
        return self.get(timeout_ms=0)

    def __repr__(self):
        state = "pending" if not self.is_done else "failed" if self.failed() else "succeeded"
        return f"FutureRecordMetadata({self.batch.tp}, {state})"


def _copy(error):
    """Returns a copy of a batch's error, without its traceback.

    The traceback of a raised error has the frames of its callers. If it belonged to the error of the batch, they would
    stay in memory together with the batch: the garbage collector does not see that a future in one of them refers to it.
    """
    cls = type(error)
    copy = cls.__new__(cls, *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


def _release(waiter):
    if not waiter.done():
        waiter.set_result(None)


def _bind(function, args, kwargs):
    if not args and not kwargs:
        return function
    return lambda result: function(*args, result, **kwargs)
