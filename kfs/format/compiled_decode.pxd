"""What compiled code elsewhere needs of the formats."""

ctypedef unsigned char byte


cdef inline bint read_varint(const byte* data, Py_ssize_t* position, Py_ssize_t end, int* value) noexcept nogil:
    """Read a zigzag int32 below ``end``; False where it is cut off or too long (:mod:`kfs.format.varint`)."""
    cdef Py_ssize_t at = position[0]
    cdef unsigned int bits, piece
    cdef int shift = 7
    if at >= end:
        return False
    bits = data[at]
    at += 1
    if bits >= 0x80:
        bits &= 0x7F
        while True:
            if at >= end or shift > 28:
                return False
            piece = data[at]
            at += 1
            bits |= (piece & 0x7F) << shift
            if piece < 0x80:
                break
            shift += 7
    position[0] = at
    value[0] = <int>((bits >> 1) ^ (0 - (bits & 1)))
    return True


cdef inline bint read_varlong(const byte* data, Py_ssize_t* position, Py_ssize_t end, long long* value) noexcept nogil:
    """Read a zigzag int64 as :func:`read_varint` does an int32."""
    cdef Py_ssize_t at = position[0]
    cdef unsigned long long bits, piece
    cdef int shift = 7
    if at >= end:
        return False
    bits = data[at]
    at += 1
    if bits >= 0x80:
        bits &= 0x7F
        while True:
            if at >= end or shift > 63:
                return False
            piece = data[at]
            at += 1
            bits |= (piece & 0x7F) << shift
            if piece < 0x80:
                break
            shift += 7
    position[0] = at
    value[0] = <long long>((bits >> 1) ^ (0 - (bits & 1)))
    return True
