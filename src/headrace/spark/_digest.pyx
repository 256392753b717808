"""Hashes of rows, column by column, without a Python object per row.

As in `client.producer._rows`, this module knows Arrow's memory layout but not pyarrow: it takes plain buffers. Each
function folds one column into an array of uint64 with one entry per row. The sum of the array is the digest of the rows,
whatever their order.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t hr_fold(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    static inline uint64_t hr_load(const uint8_t *at, int64_t size) {
        uint64_t word = 0;
        memcpy(&word, at, size >= 8 ? 8 : (size_t)size);
        return word;
    }

    static inline uint64_t hr_hash(const uint8_t *at, int64_t size, uint64_t seed) {
        uint64_t hash = hr_fold(seed ^ 0x9e3779b97f4a7c15ULL, (uint64_t)size + 0xd1b54a32d192ed03ULL);
        while (size >= 16) {
            hash = hr_fold(hr_load(at, 8) ^ 0xa0761d6478bd642fULL, hr_load(at + 8, 8) ^ hash);
            at += 16;
            size -= 16;
        }
        uint64_t first = size > 0 ? hr_load(at, size) : 0;
        uint64_t second = size > 8 ? hr_load(at + 8, size - 8) : 0;
        return hr_fold(first ^ 0xe7037ed1a0b428dbULL, second ^ hash ^ 0x8ebc6af09c88c6e3ULL);
    }
    """
    uint64_t hr_fold(uint64_t a, uint64_t b) nogil
    uint64_t hr_hash(const uint8_t* at, int64_t size, uint64_t seed) nogil

cdef uint64_t NULL_VALUE = 0x5851f42d4c957f2d
cdef uint64_t MIX = 0x2545f4914f6cdd1d


cdef class _View:
    """Holds a buffer for as long as this object lives."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, buffer, Py_ssize_t least, bint writable=False):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        if self.view.len < least:
            raise ValueError(f"an Arrow buffer has {self.view.len} bytes; its column needs {least}")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef inline bint _is_valid(const uint8_t* bitmap, Py_ssize_t at) noexcept nogil:
    return bitmap == NULL or (bitmap[at >> 3] >> (at & 7)) & 1


def fold_bytes(hashes not None, Py_ssize_t rows, validity, offsets, data, Py_ssize_t shift):
    """Folds a binary or string column: `validity` is a bitmap or None, `offsets` are int32, `data` may be None."""
    cdef _View out = _View(hashes, 8 * rows, True)
    cdef _View ends = _View(offsets, 4 * (shift + rows + 1))
    cdef _View content = None if data is None else _View(data, 0)
    cdef _View bits = None if validity is None else _View(validity, (shift + rows + 7) // 8)
    cdef uint64_t* folded = <uint64_t*>out.view.buf
    cdef const int32_t* at = <const int32_t*>ends.view.buf + shift
    cdef const uint8_t* bytes_ = NULL if content is None else <const uint8_t*>content.view.buf
    cdef Py_ssize_t total = 0 if content is None else content.view.len
    cdef const uint8_t* bitmap = NULL if bits is None else <const uint8_t*>bits.view.buf
    cdef Py_ssize_t row, bad = -1
    with nogil:
        for row in range(rows):
            if not _is_valid(bitmap, row + shift):
                folded[row] = hr_fold(folded[row] ^ NULL_VALUE, MIX)
                continue
            if at[row] < 0 or at[row + 1] < at[row] or at[row + 1] > total:
                bad = row
                break
            folded[row] = hr_hash(bytes_ + at[row], at[row + 1] - at[row], folded[row])
    if bad >= 0:
        raise ValueError(f"row {bad} is outside of its column's data")


def fold_ints(hashes not None, Py_ssize_t rows, validity, data not None, Py_ssize_t shift):
    """Folds a column of int32."""
    cdef _View out = _View(hashes, 8 * rows, True)
    cdef _View content = _View(data, 4 * (shift + rows))
    cdef _View bits = None if validity is None else _View(validity, (shift + rows + 7) // 8)
    cdef uint64_t* folded = <uint64_t*>out.view.buf
    cdef const int32_t* numbers = <const int32_t*>content.view.buf + shift
    cdef const uint8_t* bitmap = NULL if bits is None else <const uint8_t*>bits.view.buf
    cdef Py_ssize_t row
    with nogil:
        for row in range(rows):
            if _is_valid(bitmap, row + shift):
                folded[row] = hr_fold(folded[row] ^ <uint64_t><int64_t>numbers[row], MIX)
            else:
                folded[row] = hr_fold(folded[row] ^ NULL_VALUE, MIX)


def fold_lists(hashes not None, Py_ssize_t rows, validity, offsets not None, Py_ssize_t shift, items not None,
               Py_ssize_t first):
    """Folds a column of lists whose items are already hashed: `items` has the hashes from item `first` on."""
    cdef _View out = _View(hashes, 8 * rows, True)
    cdef _View ends = _View(offsets, 4 * (shift + rows + 1))
    cdef _View content = _View(items, 0)
    cdef _View bits = None if validity is None else _View(validity, (shift + rows + 7) // 8)
    cdef uint64_t* folded = <uint64_t*>out.view.buf
    cdef const int32_t* at = <const int32_t*>ends.view.buf + shift
    cdef const uint64_t* hashed = <const uint64_t*>content.view.buf
    cdef Py_ssize_t total = content.view.len // 8
    cdef const uint8_t* bitmap = NULL if bits is None else <const uint8_t*>bits.view.buf
    cdef Py_ssize_t row, item, bad = -1
    with nogil:
        for row in range(rows):
            if not _is_valid(bitmap, row + shift):
                folded[row] = hr_fold(folded[row] ^ NULL_VALUE, MIX)
                continue
            if at[row] < first or at[row + 1] < at[row] or at[row + 1] - first > total:
                bad = row
                break
            folded[row] = hr_fold(folded[row] ^ <uint64_t>(at[row + 1] - at[row]), MIX)
            for item in range(at[row] - first, at[row + 1] - first):
                folded[row] = hr_fold(folded[row] ^ hashed[item], MIX)
    if bad >= 0:
        raise ValueError(f"row {bad} is outside of its column's data")


def total(hashes not None, Py_ssize_t rows) -> int:
    """Returns the sum modulo 2**64. Each hash is mixed once more, because a sum of products would hide common factors."""
    cdef _View out = _View(hashes, 8 * rows)
    cdef const uint64_t* folded = <const uint64_t*>out.view.buf
    cdef uint64_t found = 0
    cdef Py_ssize_t row
    with nogil:
        for row in range(rows):
            found += hr_fold(folded[row] ^ MIX, 0x9e3779b97f4a7c15)
    return found
