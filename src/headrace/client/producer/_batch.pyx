"""A batch that records are appended to, and the futures of its records.

A future is a batch and an index: nothing happens for each record when a batch is acknowledged, and who asks a future
finds the answer in its batch. Only callbacks are kept one by one. A batch that had to be split points at its parts, and
a future follows.

Appends come from any thread, everything else from the loop; both run under the GIL without giving it up in between
(nothing here that changes a batch runs Python code, or makes an object that the garbage collector tracks), so `put`
and `close` need no lock: a record is in the batch before it is closed, or is refused. A build of Python without a GIL
turns it on again for modules like this one.
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
from threading import Event

from headrace.client.errors import KafkaTimeoutError
from headrace.client.types import RecordMetadata
from headrace.common.types import TopicPartition
from headrace.records import Compression, RecordBatch, decode_rows

_logger = logging.getLogger(__name__)

cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_exports


def resize_buffer(bytearray buffer not None, Py_ssize_t size) -> bool:
    """Makes a buffer of `size` bytes of one that was used, without clearing it. False if somebody still has a view."""
    if (<PyByteArrayObject*>buffer).ob_exports:
        return False
    if PyByteArray_GET_SIZE(buffer) != size:
        PyByteArray_Resize(buffer, size)
    return True


@cython.final
cdef class ProducerBatch:
    """Records of one partition that go out together. The loop owns it, but for `append`."""

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
        """A batch that was encoded elsewhere; it takes no more records."""
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
        """A batch of one record that was refused before it was appended anywhere."""
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
        """Of what is sent, once that is built; before, without compression."""
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
        """What the batch was split into, or None."""
        return None if self._children is None else [part for _, part in self._children]

    def future(self):
        """A future of its first record, for who deals in whole batches."""
        cdef FutureRecordMetadata future = FutureRecordMetadata.__new__(FutureRecordMetadata)
        future.batch = self
        future.timestamp = -1
        future.key_size = future.value_size = future.headers_size = -1
        return future

    @property
    def is_transactional(self): return (self._fields.attributes & TRANSACTIONAL_BIT) != 0

    cdef int32_t put(self, RecordParts* parts, int64_t timestamp, list headers):
        """Adds a record and returns its index, or -1 if there is no room or the batch is closed."""
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
        """More room. Not while somebody else may append a batch to the same queue: under the accumulator's lock."""
        if not self.is_closed and capacity > self.capacity:
            PyByteArray_Resize(self.buffer, capacity)
            self._p = <uint8_t*>PyByteArray_AS_STRING(self.buffer)
            self.capacity = capacity

    def move(self, bytearray buffer not None):
        """Goes on in a larger buffer. As `grow`."""
        if not self.is_closed and PyByteArray_GET_SIZE(buffer) > self.capacity:
            memcpy(PyByteArray_AS_STRING(buffer), self._p, self._size)
            self.buffer = buffer
            self._p = <uint8_t*>PyByteArray_AS_STRING(buffer)
            self.capacity = PyByteArray_GET_SIZE(buffer)

    def close(self):
        """Takes no more records."""
        self.is_closed = True

    def set_producer(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional):
        """Gives the batch its place among its producer's, also again after an epoch bump."""
        self._fields.producer_id = producer_id
        self._fields.producer_epoch = producer_epoch
        self._fields.base_sequence = base_sequence
        self._fields.attributes &= ~TRANSACTIONAL_BIT
        if transactional:
            self._fields.attributes |= TRANSACTIONAL_BIT
        if self.data is not None:
            if self.in_flight:
                # The network may not have taken all of it yet; what it has must not change under its CRC.
                self.data = bytearray(self.data)
            RecordBatch(self.data).patch_producer(producer_id, producer_epoch, base_sequence, transactional)

    def build(self):
        """The bytes to send. Built once; the batch is closed by it."""
        if self.data is None:
            self.is_closed = True
            self.data = finish_batch(&self._fields, self.buffer, self._size, self._codec, self._level)
            self._p = NULL
        return self.data

    def split(self, Py_ssize_t max_bytes):
        """New batches of the same records, each of at most `max_bytes` before compression and of at least one record.
        The futures of this one look there from now on. They have no sequences yet."""
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
        """The buffer, and how many bytes of the pool it stands for: once, when the batch is done. From then on whoever
        keeps futures keeps no records with them."""
        cdef bytearray buffer = self.buffer
        cdef Py_ssize_t capacity = self.capacity
        self.is_closed = True
        self.buffer = None
        self.data = None
        self.capacity = 0
        self._p = NULL
        return buffer, capacity

    def complete(self, int64_t base_offset, int64_t log_append_time):
        """The batch is in the log. Runs callbacks."""
        if self.is_done:
            return False
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.settle()
        return True

    def fail(self, error, dict record_errors=None):
        """The batch is not in the log, or nobody knows. `record_errors` has those of single records (KIP-467)."""
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
                # Not done really: each waits on for the part that has its record.
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
        _logger.exception("a callback for a record of %s failed", future.batch.tp)
    return 0


@cython.final
@cython.freelist(4096)
@cython.no_gc
cdef class FutureRecordMetadata:
    """What becomes of one record. As kafka-python's: `get(timeout)` waits for it, callbacks hear of it; in asyncio code
    it can be awaited.

    Callbacks run where replies are read (the producer's own thread, or the event loop): they should be quick. One that
    is added when the outcome is known already is called at once, by who adds it.
    """

    def __init__(self):
        raise TypeError("futures come from Producer.send()")

    cdef int _locate(self) except -1:
        """Follows the batch into the parts that it was split into."""
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
        """Offset -1 if it is not known."""
        cdef ProducerBatch batch = self.batch
        return RecordMetadata(
            batch.tp.topic,
            batch.tp.partition,
            batch.base_offset + self.index if batch.base_offset >= 0 else -1,
            batch.log_append_time if batch.log_append_time >= 0 else self.timestamp,
            self.key_size,
            self.value_size,
            self.headers_size,
        )

    cdef int _when_done(self, object entry) except -1:
        """Calls the entry now, or leaves it with the batch."""
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
        """Whether the record is known to be in the log (with acks=0: to have been sent)."""
        return self.is_done and self._error() is None

    def failed(self):
        return self.is_done and self._error() is not None

    @property
    def value(self):
        """The RecordMetadata, or None as long as there is none."""
        return self._metadata() if self.succeeded() else None

    @property
    def exception(self):
        return self._error() if self.is_done else None

    def retriable(self):
        error = self.exception
        return bool(getattr(error, "retriable", False))

    def get(self, timeout=None):
        """The RecordMetadata, when the broker has acknowledged the record, or the error raised. Waits for `timeout`
        seconds, and raises KafkaTimeoutError then; without one, as long as it takes (at most `delivery.timeout.ms`)."""
        if not self.is_done:
            self._wait(timeout)
        error = self._error()
        if error is not None:
            # The records of a batch share it: without this, each of them would add to its traceback.
            raise error.with_traceback(None)
        return self._metadata()

    def _wait(self, timeout):
        cdef ProducerBatch batch
        while True:
            self._locate()
            batch = self.batch
            if batch.is_done:
                return
            event = batch._event
            if event is None:
                made = Event()
                if batch._event is None:
                    batch._event = made
                event = batch._event
            if batch.is_done:
                continue
            # A batch is split rarely: that the wait begins anew then is no harm.
            if not event.wait(timeout):
                raise KafkaTimeoutError(f"no reply for the record of {batch.tp} within {timeout} s; it may still come")

    def add_callback(self, function, *args, **kwargs):
        """Calls `function(*args, metadata, **kwargs)` if the record was acknowledged."""
        self._when_done((self, CALLBACK, _bind(function, args, kwargs)))
        return self

    def add_errback(self, function, *args, **kwargs):
        """Calls `function(*args, error, **kwargs)` if the record failed."""
        self._when_done((self, ERRBACK, _bind(function, args, kwargs)))
        return self

    def add_both(self, function, *args, **kwargs):
        """Both of the above."""
        self.add_callback(function, *args, **kwargs)
        return self.add_errback(function, *args, **kwargs)

    def add_done(self, function):
        """Calls `function(error, metadata)`, error None for a record that was acknowledged."""
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
        return self.get(0)

    def __repr__(self):
        state = "pending" if not self.is_done else "failed" if self.failed() else "succeeded"
        return f"FutureRecordMetadata({self.batch.tp}, {state})"


def _release(waiter):
    if not waiter.done():
        waiter.set_result(None)


def _bind(function, args, kwargs):
    if not args and not kwargs:
        return function
    return lambda result: function(*args, result, **kwargs)
