"""Hashes of event ids and devices, and the log time of a partition.

Hashes are MurmurHash3 (x64, 128 bits). They are part of the state in checkpoints, so they never change.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

cdef enum:
    RECENT = 31

cdef uint64_t FIRST_FACTOR = 0x87C37B91114253D5ULL
cdef uint64_t SECOND_FACTOR = 0x4CF5AD432745937FULL


cdef inline uint64_t rotate(uint64_t number, int bits) noexcept nogil:
    return (number << bits) | (number >> (64 - bits))


cdef inline uint64_t mix(uint64_t number) noexcept nogil:
    number ^= number >> 33
    number *= 0xFF51AFD7ED558CCDULL
    number ^= number >> 33
    number *= 0xC4CEB9FE1A85EC53ULL
    number ^= number >> 33
    return number


cdef void murmur3(const uint8_t* data, Py_ssize_t size, uint64_t* low, uint64_t* high) noexcept nogil:
    cdef uint64_t one = 0, two = 0, first, second
    cdef Py_ssize_t at = 0
    while size - at >= 16:
        memcpy(&first, data + at, 8)
        memcpy(&second, data + at + 8, 8)
        one ^= rotate(first * FIRST_FACTOR, 31) * SECOND_FACTOR
        one = (rotate(one, 27) + two) * 5 + 0x52DCE729
        two ^= rotate(second * SECOND_FACTOR, 33) * FIRST_FACTOR
        two = (rotate(two, 31) + one) * 5 + 0x38495AB5
        at += 16
    first = second = 0
    memcpy(&first, data + at, min(size - at, 8))
    if size - at > 8:
        memcpy(&second, data + at + 8, size - at - 8)
    two ^= rotate(second * SECOND_FACTOR, 33) * FIRST_FACTOR
    one ^= rotate(first * FIRST_FACTOR, 31) * SECOND_FACTOR
    one ^= <uint64_t>size
    two ^= <uint64_t>size
    one += two
    two += one
    one, two = mix(one), mix(two)
    one += two
    two += one
    low[0], high[0] = one, two


def hash_texts(const uint8_t[::1] data, const int32_t[::1] offsets, const int32_t[::1] rows):
    """Returns the low and the high halves of the hashes of these rows of a text array, as bytes of 64-bit integers.

    `data`, `offsets`: the buffers of the array, beginning with its first row.
    """
    cdef Py_ssize_t i, row, count = rows.shape[0]
    cdef bytes lows = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef bytes highs = PyBytes_FromStringAndSize(NULL, count * 8)
    cdef uint64_t* to_lows = <uint64_t*>PyBytes_AS_STRING(lows)
    cdef uint64_t* to_highs = <uint64_t*>PyBytes_AS_STRING(highs)
    cdef const uint8_t* base = &data[0] if data.shape[0] else <const uint8_t*>b""
    for i in range(count):
        row = rows[i]
        if row < 0 or row + 1 >= offsets.shape[0] or not 0 <= offsets[row] <= offsets[row + 1] <= data.shape[0]:
            raise ValueError(f"row {row} is outside of the array")
        murmur3(base + offsets[row], offsets[row + 1] - offsets[row], &to_lows[i], &to_highs[i])
    return lows, highs


cdef class LogTime:
    """The log time of a partition, and the generation of each record.

    Log time is the median timestamp of the last 31 records. So a few records from the future do not change it.
    The next generation begins when log time is `generation_ms` past the beginning of the current one, however far it
    jumped: the records just before a jump are the newest ones. It also begins when log time goes back by more than
    `max_back_ms`, because then most clocks were wrong before.
    """

    cdef int64_t[RECENT] recent
    cdef int64_t[RECENT] ordered
    cdef int count
    cdef int oldest
    cdef int64_t generation_ms
    cdef int64_t max_back_ms
    cdef readonly int64_t generation
    cdef readonly int64_t begin_ms

    def __cinit__(self, int64_t generation_ms, int64_t max_back_ms):
        if generation_ms < 1:
            raise ValueError(f"generations of {generation_ms} ms are too short")
        self.generation_ms, self.max_back_ms = generation_ms, max_back_ms
        self.begin_ms = -1

    cdef void observe(self, int64_t timestamp_ms) noexcept nogil:
        """Adds a timestamp to the last ones, in order of time and in order of size."""
        cdef int at = 0
        cdef int64_t removed
        if self.count == RECENT:
            removed = self.recent[self.oldest]
            while self.ordered[at] != removed:
                at += 1
            memmove(&self.ordered[at], &self.ordered[at + 1], (RECENT - 1 - at) * sizeof(int64_t))
            self.count -= 1
        at = self.count
        while at and self.ordered[at - 1] > timestamp_ms:
            self.ordered[at] = self.ordered[at - 1]
            at -= 1
        self.ordered[at] = timestamp_ms
        self.recent[self.oldest] = timestamp_ms
        self.oldest = (self.oldest + 1) % RECENT
        self.count += 1

    cdef void move(self) noexcept nogil:
        cdef int64_t time_ms = self.ordered[(self.count - 1) // 2]
        if self.begin_ms < 0:
            self.begin_ms = time_ms
        elif time_ms >= self.begin_ms + self.generation_ms or time_ms < self.begin_ms - self.max_back_ms:
            self.generation += 1
            self.begin_ms = time_ms

    def advance(self, const int64_t[::1] timestamps_ms):
        """Adds records in log order. Returns the generation of each, as bytes of 64-bit integers. Records without a
        timestamp (negative) do not change the log time."""
        cdef Py_ssize_t i
        cdef bytes generations = PyBytes_FromStringAndSize(NULL, timestamps_ms.shape[0] * 8)
        cdef int64_t* to = <int64_t*>PyBytes_AS_STRING(generations)
        with nogil:
            for i in range(timestamps_ms.shape[0]):
                if timestamps_ms[i] >= 0:
                    self.observe(timestamps_ms[i])
                    self.move()
                to[i] = self.generation
        return generations

    def save(self):
        """Returns the generation, its first moment, and the last timestamps in log order."""
        first = self.oldest - self.count + RECENT
        return self.generation, self.begin_ms, [self.recent[(first + i) % RECENT] for i in range(self.count)]

    def load(self, int64_t generation, int64_t begin_ms, timestamps_ms):
        """Restores what `save` returned."""
        self.generation, self.begin_ms = generation, begin_ms
        self.count = self.oldest = 0
        for timestamp_ms in timestamps_ms[-RECENT:]:
            self.observe(timestamp_ms)
