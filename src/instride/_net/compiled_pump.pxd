# What `compiled_pump.py` takes from the system.

cdef extern from "<poll.h>" nogil:
    ctypedef unsigned long nfds_t
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, nfds_t count, int milliseconds)
    const short POLLIN
    const short POLLOUT

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    ssize_t _send "send"(int fd, const void *data, size_t size, int flags)
    int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
    const int SOL_SOCKET
    const int SO_RCVLOWAT

cdef extern from "<time.h>" nogil:
    ctypedef int clockid_t
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(clockid_t clock, timespec *time)
    const clockid_t CLOCK_MONOTONIC
