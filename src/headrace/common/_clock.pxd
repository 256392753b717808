# The system's wall clock for compiled code: the same time as SystemClock.time_ms, without a Python call. Use it only if
# the clock that was passed in is a SystemClock, so that tests still control time.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    static inline int64_t hr_system_time_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    """
    int64_t system_time_ms "hr_system_time_ms"() noexcept nogil
