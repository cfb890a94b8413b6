# The structure of Arrow's C data interface, which `arrow_array.py` fills.

cdef struct ArrowArray:
    long long length
    long long null_count
    long long offset
    long long n_buffers
    long long n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data

cdef extern from "Python.h" nogil:
    int Py_IsInitialized()
