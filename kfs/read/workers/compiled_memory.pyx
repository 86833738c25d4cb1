# cython: language_level=3
"""Mapped file memory that needs no open descriptor, and reports when it is no longer in use."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_SetFromErrno
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap


cdef class Mapping:
    """Memory shared with another process, unmapped once it is no longer in use; the descriptor may be closed before.

    The file must not be truncated meanwhile. Raises OSError if it can't be mapped.
    """

    cdef void* data
    cdef Py_ssize_t size
    cdef bint is_writable

    def __cinit__(self, int descriptor, Py_ssize_t size, bint is_writable=False):
        self.size = size
        self.is_writable = is_writable
        self.data = mmap(NULL, size, PROT_READ | (PROT_WRITE if is_writable else 0), MAP_SHARED, descriptor, 0)
        if self.data == MAP_FAILED:
            PyErr_SetFromErrno(OSError)

    def __dealloc__(self):
        if self.data != MAP_FAILED:
            munmap(self.data, self.size)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, not self.is_writable, flags)


cdef class Lease:
    """The first ``size`` bytes of a mapping; ``number`` is appended to ``returned`` when they are no longer in use."""

    cdef Mapping mapping
    cdef Py_ssize_t size
    cdef object returned, number

    def __init__(self, Mapping mapping not None, Py_ssize_t size, returned, number):
        if not 0 <= size <= mapping.size:
            raise ValueError(f"{size} bytes of {mapping.size}")
        self.mapping = mapping
        self.size = size
        self.returned = returned
        self.number = number

    def __del__(self):
        if self.returned is not None:
            self.returned.append(self.number)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.mapping.data, self.size, True, flags)
