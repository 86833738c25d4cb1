"""Declarations that other compiled modules use."""

from cpython.array cimport array

ctypedef unsigned char byte


cdef struct Batch:
    Py_ssize_t at  # in the buffer
    long long size
    int attributes
    long long base_offset
    long long last_offset
    int count
    long long base_timestamp
    long long max_timestamp
    long long producer_id
    int leader_epoch


cdef struct Fields:
    long long* offsets
    long long* timestamps
    int* key_starts
    int* key_lengths
    int* value_starts
    int* value_lengths
    int* header_starts


cdef class Columns:
    cdef array offsets, timestamps, key_starts, key_lengths, value_starts, value_lengths, header_starts
    cdef Fields fields
    cdef Py_ssize_t filled
    cdef bytes buffer
    cdef object timestamp_type

    cdef bint fill(self, const byte* data, Py_ssize_t position, Py_ssize_t end, const Batch* batch) noexcept nogil
    cdef bint fill_messages(self, const byte* data, Py_ssize_t end, int magic, bint is_inner) noexcept nogil
    cdef bint make_absolute(self, int magic, long long wrapper_offset) noexcept nogil
    cdef object finish(self)


cdef Columns columns_of_rows(bytes buffer, Py_ssize_t at, limit, Py_ssize_t* rows)


cdef inline bint read_varint(const byte* data, Py_ssize_t* position, Py_ssize_t end, int* value) noexcept nogil:
    """Read a zigzag int32 below ``end``; return False if it is truncated or too long (:mod:`kfs.format.varint`)."""
    cdef Py_ssize_t at = position[0]
    cdef Py_ssize_t after
    cdef unsigned int bits
    if end - at >= 2 and data[at] < 0x80:  # nearly all have one or two bytes
        bits = data[at]
        position[0] = at + 1
    elif end - at >= 2 and data[at + 1] < 0x80:
        bits = (data[at] & 0x7F) | <unsigned int>data[at + 1] << 7
        position[0] = at + 2
    else:
        bits = <unsigned int>read_bits(data, at, end, 5, &after)
        if after < 0:
            return False
        position[0] = after
    value[0] = <int>((bits >> 1) ^ (0 - (bits & 1)))
    return True


cdef inline bint read_varlong(const byte* data, Py_ssize_t* position, Py_ssize_t end, long long* value) noexcept nogil:
    """Read a zigzag int64, like :func:`read_varint`."""
    cdef Py_ssize_t at = position[0]
    cdef Py_ssize_t after
    cdef unsigned long long bits
    if end - at >= 2 and data[at] < 0x80:
        bits = data[at]
        position[0] = at + 1
    elif end - at >= 2 and data[at + 1] < 0x80:
        bits = (data[at] & 0x7F) | <unsigned long long>data[at + 1] << 7
        position[0] = at + 2
    else:
        bits = read_bits(data, at, end, 10, &after)
        if after < 0:
            return False
        position[0] = after
    value[0] = <long long>((bits >> 1) ^ (0 - (bits & 1)))
    return True


cdef unsigned long long read_bits(
    const byte* data, Py_ssize_t at, Py_ssize_t end, int most, Py_ssize_t* after
) noexcept nogil
