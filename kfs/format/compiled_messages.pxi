"""Messages of v0 and v1 in C. Part of compiled_decode.pyx."""

cdef struct Message:
    Py_ssize_t end
    unsigned int crc
    int attributes
    long long offset
    long long timestamp
    Py_ssize_t key_start
    int key_length
    Py_ssize_t value_start
    int value_length


cdef bint read_message(const byte* data, Py_ssize_t at, Py_ssize_t end, int magic, Message* message) noexcept nogil:
    """Read the message of format ``magic`` at ``at``; return False if there is none, or it is incomplete."""
    cdef int overhead = LOG_OVERHEAD + (MIN_SIZE_V1 if magic == MAGIC_V1 else MIN_SIZE_V0)
    cdef long long stop
    if end - at < overhead or data[at + 16] != magic:
        return False
    stop = <long long>at + LOG_OVERHEAD + read_int32(data + at + 8)
    if stop > end or stop - at < overhead:
        return False
    message.end = stop
    message.offset = read_int64(data + at)
    message.crc = read_uint32(data + at + 12)
    message.attributes = data[at + 17]
    at += 18
    message.timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        message.timestamp = read_int64(data + at)
        at += 8
    message.key_length = read_int32(data + at)
    at += 4
    message.key_start = at
    if message.key_length > stop - at:
        return False
    if message.key_length > 0:
        at += message.key_length
    if stop - at < 4:
        return False
    message.value_length = read_int32(data + at)
    at += 4
    message.value_start = at
    if message.value_length < 0:
        return at == stop
    return message.value_length == stop - at


cdef inline bint is_message_intact(const byte* data, Py_ssize_t at, Py_ssize_t end, unsigned int crc) noexcept nogil:
    return crc32_of(data + at + LEGACY_CRC_START, end - at - LEGACY_CRC_START) == crc


cdef void scan_messages(
    const byte* data,
    Py_ssize_t* position,
    Py_ssize_t end,
    int magic,
    int attributes,
    long long* last,
    long long limit,
    long long* latest,
) noexcept nogil:
    cdef Py_ssize_t at = position[0]
    cdef long long size
    while end - at >= LEGACY_HEADER_SIZE:
        size = <long long>read_int32(data + at + 8) + LOG_OVERHEAD
        if data[at + 16] != magic or data[at + 17] != attributes or size > end - at:
            break
        if size < LOG_OVERHEAD + (MIN_SIZE_V1 if magic == MAGIC_V1 else MIN_SIZE_V0):
            break
        if last[0] >= limit - 1 or read_int64(data + at) != last[0] + 1:
            break
        if not is_message_intact(data, at, at + size, read_uint32(data + at + 12)):
            break
        last[0] += 1
        if magic == MAGIC_V1:
            latest[0] = max(latest[0], read_int64(data + at + 18))
        at += size
    position[0] = at


cdef Py_ssize_t count_messages(const byte* data, Py_ssize_t end) noexcept nogil:
    """Return the number of consecutive messages that make up exactly these bytes, or -1 if they don't."""
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t count = 0
    cdef long long size
    while end - at >= LEGACY_HEADER_SIZE:
        size = <long long>read_int32(data + at + 8) + LOG_OVERHEAD
        if size < LEGACY_HEADER_SIZE or size > end - at:
            return -1
        at += size
        count += 1
    return count if at == end else -1
