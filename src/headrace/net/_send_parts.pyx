"""Sends the parts of a large response from a sender thread, without the GIL and without the event loop.

A peer drains a full socket buffer within some microseconds. Waiting for it here, in `poll`, keeps the buffer filled. A
round through the event loop takes longer than that, and the peer would wait for bytes after every buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, ENODATA, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc


cdef extern from "<sys/types.h>" nogil:
    ctypedef long long off_t

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int out_fd, int in_fd, off_t *offset, size_t count)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_MORE
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t send(int fd, const void *data, size_t size, int flags)

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int POLLOUT
    int poll(pollfd *fds, unsigned long count, int timeout_ms)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)


cdef struct Piece:
    const char* data  # NULL: a slice of a file
    int file_fd
    int64_t position
    int64_t size


cdef int64_t _now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef int _send_pieces(int fd, Piece* pieces, int count, int64_t sent_of_first, int stalled_ms, int64_t ends_ms,
                      int64_t* total) noexcept nogil:
    """Returns 0 when everything is sent or the time is over, else the error number."""
    cdef int64_t done = sent_of_first
    cdef ssize_t sent
    cdef off_t offset
    cdef pollfd writable
    cdef Piece* piece
    cdef int index = 0
    while index < count:
        piece = &pieces[index]
        if piece.data != NULL:
            sent = send(fd, piece.data + done, piece.size - done,
                        MSG_NOSIGNAL | MSG_DONTWAIT | (MSG_MORE if index + 1 < count else 0))
        else:
            offset = piece.position + done
            sent = sendfile(fd, piece.file_fd, &offset, piece.size - done)
            if sent == 0:
                return ENODATA
        if sent < 0:
            if errno == EAGAIN:
                if _now_ms() >= ends_ms:
                    return 0
                writable.fd = fd
                writable.events = POLLOUT
                writable.revents = 0
                if poll(&writable, 1, stalled_ms) == 0:
                    return 0
            elif errno != EINTR:
                return errno
            continue
        total[0] += sent
        done += sent
        if done >= piece.size:
            index += 1
            done = 0
    return 0


def send_parts(int fd, list parts, int64_t sent_of_first, int stalled_ms, int most_ms):
    """Sends bytes and file slices to a socket in non-blocking mode, and waits while the socket is full.

    Stops early if the peer takes nothing for `stalled_ms`, or after `most_ms`. Returns the number of bytes sent and the
    error number, 0 without an error. ENODATA: a file is shorter than its slice.
    """
    cdef int count = len(parts), index = 0, error = 0, buffers = 0
    cdef int64_t total = 0, ends_ms = _now_ms() + most_ms
    cdef Piece* pieces = <Piece*>malloc(count * sizeof(Piece))
    cdef Py_buffer* views = <Py_buffer*>malloc(count * sizeof(Py_buffer))
    try:
        if pieces == NULL or views == NULL:
            raise MemoryError
        for index in range(count):
            part = parts[index]
            if isinstance(part, (bytes, bytearray, memoryview)):
                PyObject_GetBuffer(part, &views[buffers], PyBUF_SIMPLE)
                pieces[index] = Piece(<const char*>views[buffers].buf, -1, 0, views[buffers].len)
                buffers += 1
            else:
                pieces[index] = Piece(NULL, part.fileno(), part.position, len(part))
        with nogil:
            error = _send_pieces(fd, pieces, count, sent_of_first, stalled_ms, ends_ms, &total)
    finally:
        for index in range(buffers):
            PyBuffer_Release(&views[index])
        free(views)
        free(pieces)
    return total, error
