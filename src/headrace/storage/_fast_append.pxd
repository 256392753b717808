# The fields of logs, segments and indexes that the compiled append uses. See _fast_append.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class IndexFields:
    cdef public bytearray _data


cdef class SegmentFields:
    cdef public int64_t base_offset
    cdef public int64_t created_ms
    cdef public int64_t size
    cdef public int64_t jitter_ms
    cdef public int64_t _bytes_since_index
    cdef public IndexFields offset_index
    cdef public IndexFields time_index
    cdef public object _file
    cdef public bint recently_used
    cdef public bint _tail_may_be_dirty
    cdef public object _first_batch_timestamp
    cdef public object _max_timestamp
    cdef public object _last_batch

    cdef bint _must_roll(self, Limits* limits, Py_ssize_t size, int64_t timestamp, int64_t now_ms)
    cdef int _add(self, Limits* limits, Py_ssize_t size, int64_t base_offset, int64_t last_offset,
                  int64_t timestamp) except -1


# The configuration of a log, as far as an append needs it.
cdef struct Limits:
    bint is_ordinary        # the configuration has nothing that only the general append does
    int64_t max_batch_bytes
    int64_t segment_bytes
    int64_t segment_ms
    int64_t offset_index_bytes
    int64_t time_index_bytes
    int64_t index_interval_bytes
    int64_t timestamp_after_max_ms
    int64_t flush_messages


cdef class LogFields:
    cdef public object config
    cdef public object segments
    cdef public object epochs
    cdef public object producers
    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef public int64_t recovery_point
    cdef public int64_t high_watermark
    cdef public bint _ends_in_gap
    cdef public bint _closed
    cdef public object _failed_appends
    cdef object _limits_of  # the configuration from which `_limits` were computed
    cdef Limits _limits

    cdef int _update_limits(self) except -1
    cdef int64_t append_ordinary(self, uint8_t* batch, Py_ssize_t size, int32_t leader_epoch, int64_t now_ms) except -2
    cdef int advance_high_watermark(self) except -1
