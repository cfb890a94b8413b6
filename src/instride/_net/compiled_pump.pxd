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

# OpenSSL's functions, whose addresses `openssl.py` has found, and one connection of it.
ctypedef int (*ssl_read_t)(void *ssl, void *buffer, int size) noexcept nogil
ctypedef int (*ssl_write_t)(void *ssl, const void *buffer, int size) noexcept nogil
ctypedef int (*ssl_has_pending_t)(const void *ssl) noexcept nogil
ctypedef int (*ssl_get_error_t)(const void *ssl, int returned) noexcept nogil
ctypedef void (*err_clear_error_t)() noexcept nogil
ctypedef unsigned long (*err_peek_last_error_t)() noexcept nogil

cdef struct Secured:
    void *ssl
    ssl_read_t read
    ssl_write_t write
    ssl_has_pending_t has_pending
    ssl_get_error_t get_error
    err_clear_error_t clear_error
    err_peek_last_error_t peek_last_error
    int outcome
    unsigned long code
    int number

cdef extern from *:
    """
    #include <errno.h>
    static void instride_clear_errno(void) { errno = 0; }
    """
    void clear_errno "instride_clear_errno"() noexcept nogil
