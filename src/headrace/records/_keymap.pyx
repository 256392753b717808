"""Compaction of records: a map from keys to their last offsets, and batches without the removed records.

The map stores only the 128-bit hash of a key: 24 bytes per entry, regardless of the key's size. The hash is SipHash-2-4
with a random secret for each map, so that an attacker cannot craft two keys that collide and make one delete the other.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.limits cimport INT_MAX
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from headrace.records._batch cimport (
    DELETE_HORIZON_BIT, HEADER_BYTES, BatchRecords, HeaderFields, copy_fields, finish_batch,
)
from headrace.records._wire cimport (
    RecordRef, size_of_varint, size_of_varlong, wrapping_subtract, write_varint, write_varlong,
)

import os

from headrace.records.compression import Compression

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t offset_plus_1   # 0: the slot is empty


cdef inline uint64_t _rotate(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void _sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = _rotate(v[1], 13) ^ v[0]
    v[0] = _rotate(v[0], 32)
    v[2] += v[3]
    v[3] = _rotate(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = _rotate(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = _rotate(v[1], 17) ^ v[2]
    v[2] = _rotate(v[2], 32)


cdef void siphash128(const uint8_t* data, Py_ssize_t size, const uint64_t* key, uint64_t* out) noexcept nogil:
    """Computes SipHash-2-4 with 128 bits of output."""
    cdef uint64_t v[4]
    cdef uint64_t word, last
    cdef Py_ssize_t left = size
    cdef int i
    v[0] = key[0] ^ <uint64_t>0x736F6D6570736575ULL
    v[1] = key[1] ^ <uint64_t>0x646F72616E646F6DULL ^ 0xEE
    v[2] = key[0] ^ <uint64_t>0x6C7967656E657261ULL
    v[3] = key[1] ^ <uint64_t>0x7465646279746573ULL
    while left >= 8:
        memcpy(&word, data, 8)
        v[3] ^= word
        _sip_round(v)
        _sip_round(v)
        v[0] ^= word
        data += 8
        left -= 8
    last = (<uint64_t>size & 0xFF) << 56
    for i in range(<int>left):
        last |= <uint64_t>data[i] << (8 * i)
    v[3] ^= last
    _sip_round(v)
    _sip_round(v)
    v[0] ^= last
    v[2] ^= 0xEE
    for i in range(4):
        _sip_round(v)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        _sip_round(v)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


@cython.final
cdef class OffsetMap:
    """The last offset of each key: a hash table with fixed memory and open addressing."""

    cdef Slot* _slots
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t _size
    cdef uint64_t _key[2]

    def __cinit__(self, Py_ssize_t memory_bytes, double load_factor=0.9, bytes secret=None):
        self.slots = memory_bytes // sizeof(Slot)
        if self.slots < 2 or not 0 < load_factor < 1:
            raise ValueError(f"a map of {memory_bytes} bytes with load factor {load_factor} has no room for keys")
        self.capacity = max(1, <Py_ssize_t>(self.slots * load_factor))
        secret = os.urandom(16) if secret is None else secret
        if len(secret) != 16:
            raise ValueError(f"the secret must have 16 bytes, not {len(secret)}")
        memcpy(self._key, PyBytes_AS_STRING(secret), 16)
        # The system zeroes pages when they are first used, so an unused map costs nothing.
        self._slots = <Slot*>PyMem_RawCalloc(self.slots, sizeof(Slot))
        if self._slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_RawFree(self._slots)

    def __len__(self):
        return self._size

    cdef Slot* _find(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        """Returns the slot of a key, or the empty slot for it. There is always an empty slot."""
        cdef uint64_t hashed[2]
        cdef Py_ssize_t at
        siphash128(key, size, self._key, hashed)
        at = <Py_ssize_t>(hashed[0] % <uint64_t>self.slots)
        while True:
            if self._slots[at].offset_plus_1 == 0:
                self._slots[at].low = hashed[0]
                self._slots[at].high = hashed[1]
                return &self._slots[at]
            if self._slots[at].low == hashed[0] and self._slots[at].high == hashed[1]:
                return &self._slots[at]
            at += 1
            if at == self.slots:
                at = 0

    def add(self, BatchRecords records not None, int64_t min_offset=0) -> bool:
        """Adds the keys of a batch. Returns False, and adds nothing, if there might not be enough room."""
        cdef int32_t i
        cdef Slot* slot
        cdef RecordRef* ref
        if self._size + records.count > self.capacity:
            return False
        with nogil:
            for i in range(records.count):
                ref = &records.refs[i]
                if ref.key_len < 0 or records.base_offset + ref.offset_delta < min_offset:
                    continue
                slot = self._find(records.data + ref.key_pos, ref.key_len)
                if slot.offset_plus_1 == 0:
                    self._size += 1
                slot.offset_plus_1 = records.base_offset + ref.offset_delta + 1
        return True

    def get(self, const uint8_t[::1] key not None):
        """Returns the last offset of a key, or None."""
        cdef Slot* slot = self._find(&key[0] if key.shape[0] else NULL, key.shape[0])
        return None if slot.offset_plus_1 == 0 else slot.offset_plus_1 - 1

    def select(self, BatchRecords records not None, int64_t end_offset, bint drop_tombstones):
        """Selects the records to retain: the last of each key, and all from `end_offset` on, which are not in the map.

        Records without a key below `end_offset` are removed. Returns a mask with a byte per record, the number of
        retained records, and True if they include a tombstone.
        """
        cdef bytes mask = PyBytes_FromStringAndSize(NULL, records.count)
        cdef uint8_t* keep = <uint8_t*>PyBytes_AS_STRING(mask)
        cdef int32_t i, kept = 0
        cdef int64_t offset
        cdef bint tombstones = False
        cdef RecordRef* ref
        cdef Slot* slot
        with nogil:
            for i in range(records.count):
                ref = &records.refs[i]
                offset = records.base_offset + ref.offset_delta
                if offset >= end_offset:
                    keep[i] = 1
                elif ref.key_len < 0 or (ref.value_len < 0 and drop_tombstones):
                    keep[i] = 0
                else:
                    slot = self._find(records.data + ref.key_pos, ref.key_len)
                    keep[i] = slot.offset_plus_1 == 0 or offset >= slot.offset_plus_1 - 1
                if keep[i]:
                    kept += 1
                    if ref.value_len < 0:
                        tombstones = True
        return mask, kept, tombstones


cdef inline int64_t _delta(RecordRef* ref, int64_t base_timestamp, bint log_append_time) noexcept nogil:
    """Returns the timestamp delta. With LogAppendTime, all records have the batch's timestamp and deltas are unused."""
    return 0 if log_append_time else wrapping_subtract(ref.timestamp, base_timestamp)


def rewrite_batch(BatchRecords records not None, const uint8_t[::1] mask not None, delete_horizon_ms=None,
                  level=None) -> bytearray:
    """Returns the batch with only the records whose byte in `mask` is set, with the same offsets and codec.

    A new delete horizon replaces the base timestamp, so timestamps are written relative to it (KIP-534).
    """
    cdef HeaderFields fields
    cdef Py_ssize_t size = HEADER_BYTES
    cdef int64_t base_timestamp, highest = -1
    cdef int32_t i, kept = 0
    cdef Py_ssize_t body
    cdef RecordRef* ref
    cdef bytearray raw
    cdef uint8_t* p
    cdef bint log_append_time = records.batch.is_log_append_time
    if mask.shape[0] != records.count:
        raise ValueError(f"the mask has {mask.shape[0]} bytes for {records.count} records")
    copy_fields(records.batch, &fields)
    if delete_horizon_ms is not None:
        fields.base_timestamp = delete_horizon_ms
        fields.attributes |= DELETE_HORIZON_BIT
    base_timestamp = fields.base_timestamp
    for i in range(records.count):
        if mask[i]:
            ref = &records.refs[i]
            body = 1 + size_of_varlong(_delta(ref, base_timestamp, log_append_time)) + ref.end - ref.rest
            size += size_of_varint(<int32_t>body) + body
            kept += 1
            if ref.timestamp > highest:
                highest = ref.timestamp
    if kept == 0:
        raise ValueError("a rewritten batch must retain at least one record")
    if size > INT_MAX:
        raise ValueError("the batch exceeds the format's 32-bit length")
    raw = PyByteArray_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyByteArray_AS_STRING(raw) + HEADER_BYTES
    for i in range(records.count):
        if mask[i]:
            ref = &records.refs[i]
            body = 1 + size_of_varlong(_delta(ref, base_timestamp, log_append_time)) + ref.end - ref.rest
            p = write_varint(p, <int32_t>body)
            p[0] = 0
            p = write_varlong(p + 1, _delta(ref, base_timestamp, log_append_time))
            memcpy(p, records.data + ref.rest, ref.end - ref.rest)
            p += ref.end - ref.rest
    fields.count = kept
    if not log_append_time:
        fields.max_timestamp = highest
    return finish_batch(&fields, raw, size, Compression.from_id(records.batch.codec), level)
