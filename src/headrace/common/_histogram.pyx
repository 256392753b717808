"""The values of a histogram, compiled: brokers record several of them for each request. See `common.metrics`."""

from libc.math cimport INFINITY, frexp

cdef enum:
    BUCKETS_PER_POWER = 8
    ZERO = -(1 << 20)


cdef class HistogramValues:
    """Counts values in buckets whose size grows with the value."""

    cdef public long long count
    cdef public double total
    cdef public double smallest
    cdef public double largest
    cdef public dict buckets

    ZERO_BUCKET = ZERO

    def __cinit__(self):
        self.smallest = INFINITY
        self.largest = -INFINITY
        self.buckets = {}

    cpdef void record(self, double value):
        cdef int exponent
        cdef double fraction
        cdef long bucket
        self.count += 1
        self.total += value
        if value > self.largest:
            self.largest = value
        if value < self.smallest:
            self.smallest = value
        if value > 0:
            fraction = frexp(value, &exponent)  # 0.5 <= fraction < 1
            bucket = exponent * BUCKETS_PER_POWER + <int>(fraction * 2 * BUCKETS_PER_POWER) - BUCKETS_PER_POWER
        else:
            bucket = ZERO
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
