# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Joins raw keys or values: the compiled equivalent of :func:`~kfs.cat.output.python_fields`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

include "../read/compiled_rows.pxi"


def compiled_fields(bytes buffer, array starts, array lengths, indexes, bytes delimiter):
    """See :func:`~kfs.cat.output.python_fields`."""
    cdef array rows = indexes if isinstance(indexes, array) and indexes.typecode == "i" else index_array(indexes)
    cdef const char* data = buffer
    cdef const char* separator = b"" if delimiter is None else delimiter
    cdef const int* row = rows.data.as_ints
    cdef const int* start = starts.data.as_ints
    cdef const int* length = lengths.data.as_ints
    cdef bint has_lengths = delimiter is None
    cdef Py_ssize_t around = 4 if has_lengths else len(delimiter)
    cdef Py_ssize_t count = len(rows)
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t number
    cdef int here
    cdef char* to
    for number in range(count):
        size += max(length[row[number]], 0) + around
    joined = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(joined)
    with nogil:
        for number in range(count):
            here = length[row[number]]
            if has_lengths:
                to[0] = <char>(here >> 24)
                to[1] = <char>(here >> 16)
                to[2] = <char>(here >> 8)
                to[3] = <char>here
                to += 4
            if here > 0:
                memcpy(to, data + start[row[number]], here)
                to += here
            if not has_lengths:
                memcpy(to, separator, around)
                to += around
    return joined
