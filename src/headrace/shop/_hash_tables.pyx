"""Hash tables over hashes: a set of event ids, and a map from each device to the day on which it was first seen.

Open addressing, at most three quarters full. The keys are hashes already, so their low bits choose the slot. An event
id has 128 bits as two integers: 16 bytes per slot. A device has 64 bits plus its day: 12 bytes per slot. A slot of
zeros is empty; the key zero, which practically never occurs, is stored outside the table.

A table belongs to one thread. Arguments are buffers of 64-bit integers of equal length; `marks` has one byte per row.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

DUPLICATE = 1
KNOWN_DEVICE = 2

cdef enum:
    FIRST_SLOTS = 1024
    DUPLICATE_BIT = 1
    KNOWN_DEVICE_BIT = 2

cdef struct Id:
    uint64_t low
    uint64_t high

cdef class IdSet:
    """A set of 128-bit hashes."""

    cdef Id* slots
    cdef uint64_t mask
    cdef Py_ssize_t used
    cdef bint has_zero

    def __cinit__(self):
        self.slots = <Id*>PyMem_RawCalloc(FIRST_SLOTS, sizeof(Id))
        if self.slots == NULL:
            raise MemoryError
        self.mask = FIRST_SLOTS - 1

    def __dealloc__(self):
        PyMem_RawFree(self.slots)

    def __len__(self):
        return self.used + self.has_zero

    @property
    def size_bytes(self):
        return (self.mask + 1) * sizeof(Id)

    cdef Id* find(self, uint64_t low, uint64_t high) noexcept nogil:
        """Returns the slot of this id, or the empty slot where it belongs."""
        cdef uint64_t at = low & self.mask
        cdef Id* slot
        while True:
            slot = &self.slots[at]
            if (slot.low == low and slot.high == high) or (slot.low == 0 and slot.high == 0):
                return slot
            at = (at + 1) & self.mask

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef uint64_t count = self.mask + 1
        cdef uint64_t old_count = count
        cdef Id* old = self.slots
        cdef uint64_t i
        while <uint64_t>(self.used + more) * 4 > count * 3:
            count *= 2
        if count == old_count:
            return 0
        self.slots = <Id*>PyMem_RawCalloc(count, sizeof(Id))
        if self.slots == NULL:
            self.slots = old
            raise MemoryError
        self.mask = count - 1
        for i in range(old_count):
            if old[i].low != 0 or old[i].high != 0:
                self.find(old[i].low, old[i].high)[0] = old[i]
        PyMem_RawFree(old)
        return 0

    def mark_duplicates(self, const int64_t[::1] id_lows, const int64_t[::1] id_highs, uint8_t[::1] marks):
        """Marks the rows whose id is in this set as duplicates."""
        cdef Py_ssize_t i
        cdef Id* slot
        _check_lengths(id_lows.shape[0], id_highs.shape[0], marks.shape[0])
        for i in range(id_lows.shape[0]):
            if id_lows[i] == 0 and id_highs[i] == 0:
                if self.has_zero:
                    marks[i] |= DUPLICATE_BIT
                continue
            slot = self.find(<uint64_t>id_lows[i], <uint64_t>id_highs[i])
            if slot.low != 0 or slot.high != 0:
                marks[i] |= DUPLICATE_BIT

    def add(self, const int64_t[::1] id_lows, const int64_t[::1] id_highs, uint8_t[::1] marks):
        """Adds the ids of unmarked rows. Marks rows whose id is in this set already, or repeats in these rows."""
        cdef Py_ssize_t i
        cdef Id* slot
        _check_lengths(id_lows.shape[0], id_highs.shape[0], marks.shape[0])
        for i in range(id_lows.shape[0]):
            if marks[i] & DUPLICATE_BIT:
                continue
            if id_lows[i] == 0 and id_highs[i] == 0:
                if self.has_zero:
                    marks[i] |= DUPLICATE_BIT
                self.has_zero = True
                continue
            self.reserve(1)
            slot = self.find(<uint64_t>id_lows[i], <uint64_t>id_highs[i])
            if slot.low != 0 or slot.high != 0:
                marks[i] |= DUPLICATE_BIT
            else:
                slot.low = <uint64_t>id_lows[i]
                slot.high = <uint64_t>id_highs[i]
                self.used += 1

    def items(self):
        """Returns the low and the high halves of all ids, as bytes of 64-bit integers."""
        cdef Py_ssize_t count = len(self), at = 0
        cdef uint64_t i
        cdef bytes lows = PyBytes_FromStringAndSize(NULL, count * 8)
        cdef bytes highs = PyBytes_FromStringAndSize(NULL, count * 8)
        cdef uint64_t* to_lows = <uint64_t*>PyBytes_AS_STRING(lows)
        cdef uint64_t* to_highs = <uint64_t*>PyBytes_AS_STRING(highs)
        for i in range(self.mask + 1):
            if self.slots[i].low != 0 or self.slots[i].high != 0:
                to_lows[at], to_highs[at] = self.slots[i].low, self.slots[i].high
                at += 1
        if self.has_zero:
            to_lows[at] = to_highs[at] = 0
        return lows, highs

cdef class FirstDays:
    """The day, counted from 1970, on which each device was first seen."""

    cdef uint64_t* keys
    cdef int32_t* days
    cdef uint64_t mask
    cdef Py_ssize_t used
    cdef bint has_zero
    cdef int32_t zero_day

    def __cinit__(self):
        self.mask = FIRST_SLOTS - 1
        self.keys = <uint64_t*>PyMem_RawCalloc(FIRST_SLOTS, sizeof(uint64_t))
        self.days = <int32_t*>PyMem_RawCalloc(FIRST_SLOTS, sizeof(int32_t))
        if self.keys == NULL or self.days == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_RawFree(self.keys)
        PyMem_RawFree(self.days)

    def __len__(self):
        return self.used + self.has_zero

    @property
    def size_bytes(self):
        return (self.mask + 1) * (sizeof(uint64_t) + sizeof(int32_t))

    cdef uint64_t find(self, uint64_t key) noexcept nogil:
        cdef uint64_t at = key & self.mask
        while self.keys[at] != key and self.keys[at] != 0:
            at = (at + 1) & self.mask
        return at

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef uint64_t count = self.mask + 1
        cdef uint64_t old_count = count
        cdef uint64_t* old_keys = self.keys
        cdef int32_t* old_days = self.days
        cdef uint64_t* new_keys
        cdef int32_t* new_days
        cdef uint64_t i, at
        while <uint64_t>(self.used + more) * 4 > count * 3:
            count *= 2
        if count == old_count:
            return 0
        new_keys = <uint64_t*>PyMem_RawCalloc(count, sizeof(uint64_t))
        new_days = <int32_t*>PyMem_RawCalloc(count, sizeof(int32_t))
        if new_keys == NULL or new_days == NULL:
            PyMem_RawFree(new_keys)
            PyMem_RawFree(new_days)
            raise MemoryError
        self.keys, self.days, self.mask = new_keys, new_days, count - 1
        for i in range(old_count):
            if old_keys[i] != 0:
                at = self.find(old_keys[i])
                self.keys[at] = old_keys[i]
                self.days[at] = old_days[i]
        PyMem_RawFree(old_keys)
        PyMem_RawFree(old_days)
        return 0

    cdef bint lower(self, uint64_t key, int32_t day, int32_t* before) noexcept nogil:
        """Lowers the first day of a device to `day`, or adds the device. Sets `before` to its previous first day, or to
        `day` if the device is new. Returns True if the table changed."""
        cdef uint64_t at
        cdef bint is_known
        cdef int32_t* place
        if key == 0:
            is_known, place = self.has_zero, &self.zero_day
            self.has_zero = True
        else:
            at = self.find(key)
            is_known, place = self.keys[at] != 0, &self.days[at]
            if not is_known:
                self.keys[at] = key
                self.used += 1
        before[0] = place[0] if is_known else day
        if is_known and place[0] <= day:
            return False
        place[0] = day
        return True

    def restore(self, const int64_t[::1] devices, const int32_t[::1] days):
        """Adds devices and days that `mark_known_devices` or `items` returned."""
        cdef Py_ssize_t i
        cdef int32_t before
        _check_lengths(devices.shape[0], days.shape[0], days.shape[0])
        for i in range(devices.shape[0]):
            self.reserve(1)
            self.lower(<uint64_t>devices[i], days[i], &before)

    def mark_known_devices(
        self,
        const int64_t[::1] devices,
        const int64_t[::1] days,
        const int64_t[::1] new_flags,
        uint8_t[::1] marks,
    ):
        """Records the devices of all rows in their order. Marks rows whose device claims to be new (flag 1), but was
        seen on an earlier day. Skips rows that are marked as duplicates.

        A device without the flag was seen before its row: its first day is at most the day before.
        Returns the devices whose first day changed and these days, as bytes of 64-bit and 32-bit integers.
        """
        cdef Py_ssize_t i, changed = 0, count = devices.shape[0]
        cdef int32_t day, before
        cdef bytes changed_devices = PyBytes_FromStringAndSize(NULL, count * 8)
        cdef bytes changed_days = PyBytes_FromStringAndSize(NULL, count * 4)
        cdef int64_t* to_devices = <int64_t*>PyBytes_AS_STRING(changed_devices)
        cdef int32_t* to_days = <int32_t*>PyBytes_AS_STRING(changed_days)
        _check_lengths(count, days.shape[0], marks.shape[0])
        _check_lengths(count, new_flags.shape[0], marks.shape[0])
        for i in range(count):
            if marks[i] & DUPLICATE_BIT:
                continue
            self.reserve(1)
            day = <int32_t>days[i]
            if self.lower(<uint64_t>devices[i], day if new_flags[i] else day - 1, &before):
                to_devices[changed] = devices[i]
                to_days[changed] = day if new_flags[i] else day - 1
                changed += 1
            if new_flags[i] and before < day:
                marks[i] |= KNOWN_DEVICE_BIT
        return changed_devices[:changed * 8], changed_days[:changed * 4]

    def items(self):
        """Returns all devices and their first days, as bytes of 64-bit and 32-bit integers."""
        cdef Py_ssize_t count = len(self), at = 0
        cdef uint64_t i
        cdef bytes devices = PyBytes_FromStringAndSize(NULL, count * 8)
        cdef bytes days = PyBytes_FromStringAndSize(NULL, count * 4)
        cdef int64_t* to_devices = <int64_t*>PyBytes_AS_STRING(devices)
        cdef int32_t* to_days = <int32_t*>PyBytes_AS_STRING(days)
        for i in range(self.mask + 1):
            if self.keys[i] != 0:
                to_devices[at] = <int64_t>self.keys[i]
                to_days[at] = self.days[i]
                at += 1
        if self.has_zero:
            to_devices[at] = 0
            to_days[at] = self.zero_day
        return devices, days

cdef int _check_lengths(Py_ssize_t one, Py_ssize_t other, Py_ssize_t third) except -1:
    if one != other or one != third:
        raise ValueError(f"buffers have {one}, {other} and {third} rows; expected equal lengths")
    return 0
