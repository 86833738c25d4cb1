"""What compiled code elsewhere needs of the formats."""

ctypedef unsigned char byte


cdef inline bint read_varint(const byte* data, Py_ssize_t* position, Py_ssize_t end, int* value) noexcept nogil:
    """Read a zigzag int32 below ``end``; False where it is cut off or too long (:mod:`kfs.format.varint`)."""
    cdef Py_ssize_t at = position[0]
    cdef Py_ssize_t after
    cdef unsigned int bits
    if end - at >= 2 and data[at] < 0x80:  # nearly all have one byte or two
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
    """Read a zigzag int64 as :func:`read_varint` does an int32."""
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
