"""Record batches (v2) in C: headers and records. Part of compiled_decode.pyx."""

cdef struct Times:
    long long earliest  # of the records of a batch; the highest int64 if there are none
    long long latest  # the lowest int64 if there are none


cdef bint read_batch(const byte* data, Py_ssize_t at, Py_ssize_t end, Batch* batch) noexcept nogil:
    """Read the header of a record batch at ``at``; return False if there is none (``read_header``)."""
    cdef int length, last_offset_delta
    if end - at < BATCH_OVERHEAD:
        return False
    data += at
    length = read_int32(data + 8)
    if data[16] != MAGIC_V2 or length < BATCH_MIN_LENGTH:
        return False
    batch.at = at
    batch.size = <long long>length + LOG_OVERHEAD
    batch.attributes = read_uint16(data + 21)
    batch.base_offset = read_int64(data)
    last_offset_delta = read_int32(data + 23)
    batch.count = read_int32(data + 57)
    if batch.base_offset < 0 or last_offset_delta < 0 or batch.base_offset > MAX_INT64 - last_offset_delta:
        return False
    if batch.count < 0 or batch.count > <long long>last_offset_delta + 1:
        return False
    batch.last_offset = batch.base_offset + last_offset_delta
    batch.base_timestamp = read_int64(data + 27)
    batch.max_timestamp = read_int64(data + 35)
    batch.producer_id = read_int64(data + 43)
    batch.leader_epoch = read_int32(data + 12)
    return True


cdef bint is_intact(const byte* data, const Batch* batch) noexcept nogil:
    data += batch.at
    return crc32c_of(data + BATCH_CRC_START, batch.size - BATCH_CRC_START) == read_uint32(data + 17)


cdef Py_ssize_t scan_rows(
    const byte* data, Py_ssize_t at, Py_ssize_t end, long long after, long long limit, long long max_size, Batch** rows
) noexcept nogil:
    """Collect batches from ``at`` on into ``rows``, which the caller frees; return their number; -1: no memory."""
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t room = 0
    cdef Batch batch, following
    cdef Batch* grown
    cdef bint is_checked = False
    cdef bint is_leap
    cdef bint found = read_batch(data, at, end, &batch)
    while found and batch.size <= max_size and batch.size <= end - at:
        at += batch.size
        found = read_batch(data, at, end, &following)
        if batch.base_offset <= after or batch.last_offset >= limit:
            break
        is_leap = batch.base_offset > after + 1
        if is_leap:  # what follows decides whether it is believed, so that has to be intact
            if not found or following.base_offset <= batch.last_offset:
                break
            if following.size > max_size or following.size > end - at or not is_intact(data, &following):
                break
        if not is_checked and not is_intact(data, &batch):
            break
        is_checked = is_leap
        if count == room:
            room = room * 2 if room else 16
            grown = <Batch*>realloc(rows[0], room * sizeof(Batch))
            if grown == NULL:
                return -1
            rows[0] = grown
        rows[0][count] = batch
        count += 1
        after = batch.last_offset
        batch = following
    return count


cdef inline bint has_room(const Batch* batch, Py_ssize_t size) noexcept nogil:
    """Whether ``size`` bytes can hold the batch's record count at all; checked before memory is allocated for them."""
    return 0 <= <long long>batch.count * LEAST_RECORD_BYTES <= size <= MAX_INT32


cdef inline bint is_latest(const Batch* batch, const Times* times) noexcept nogil:
    """Whether the latest timestamp of the records matches the header; an empty batch always matches."""
    return batch.count == 0 or times.latest == batch.max_timestamp


cdef inline int messages_of(const Batch* batch) noexcept nogil:
    return 0 if batch.attributes & CONTROL_MASK else batch.count


cdef long long count_uncompressed(
    const byte* data, Py_ssize_t* at, Py_ssize_t end, Py_ssize_t* left, bint exact_timestamps
) noexcept nogil:
    """Return the number of messages in up to ``left`` uncompressed batches from ``at`` on; advance ``at``.

    It stops at a batch whose records don't match its header.
    """
    cdef long long messages = 0
    cdef Times times
    cdef Batch batch
    while left[0] and read_batch(data, at[0], end, &batch) and batch.size <= end - at[0]:
        if batch.attributes & CODEC_MASK or not has_room(&batch, batch.size - BATCH_OVERHEAD):
            break
        if not parse_records(data, at[0] + BATCH_OVERHEAD, at[0] + batch.size, &batch, False, NULL, 0, &times):
            break
        if exact_timestamps and not is_latest(&batch, &times):
            break
        messages += messages_of(&batch)
        at[0] += batch.size
        left[0] -= 1
    return messages


cdef Py_ssize_t claimed_records(const byte* data, const Batch* first, Py_ssize_t end, Py_ssize_t* rows) noexcept nogil:
    """Return how many records the headers of batches like ``first`` claim; set ``rows`` to the number of batches."""
    cdef Py_ssize_t records = 0
    cdef Py_ssize_t count = 0
    cdef Batch batch = first[0]
    while True:
        if batch.size > end - batch.at or (batch.attributes ^ first.attributes) & KIND_MASK:
            break
        if not has_room(&batch, batch.size - BATCH_OVERHEAD):
            break
        records += batch.count
        count += 1
        if count == rows[0] or not read_batch(data, batch.at + batch.size, end, &batch):
            break
    rows[0] = count
    return records


cdef inline bint parse_records(
    const byte* data,
    Py_ssize_t position,
    Py_ssize_t end,
    const Batch* batch,
    bint is_kept,
    const Fields* fields,
    Py_ssize_t row,
    Times* times,
) noexcept nogil:
    """Parse the bytes from ``position`` to ``end`` as the records of a batch; return False if they aren't.

    With ``is_kept``, set the records in ``fields``, from ``row`` on. Otherwise set ``times``.
    """
    cdef Fields column  # local copies: the compiler must assume that stores may change the originals
    cdef Py_ssize_t stop = row + batch.count
    cdef Py_ssize_t record_end
    cdef long long base_offset = batch.base_offset
    cdef unsigned long long base_timestamp = <unsigned long long>batch.base_timestamp
    cdef long long append_time = batch.max_timestamp
    cdef long long last_delta = batch.last_offset - batch.base_offset
    cdef long long timestamp_delta
    cdef long long timestamp
    cdef long long highest = MIN_INT64
    cdef long long lowest = MAX_INT64
    cdef int length, delta
    cdef int previous_delta = -1
    cdef bint has_append_time = batch.attributes & TIMESTAMP_TYPE_MASK
    if is_kept:
        column = fields[0]
    while row < stop:
        if not read_varint(data, &position, end, &length) or length < 0 or length > end - position:
            return False
        record_end = position + length
        position += 1  # the unused attributes
        if not read_varlong(data, &position, record_end, &timestamp_delta):
            return False
        # Java's long arithmetic wraps around.
        timestamp = append_time if has_append_time else <long long>(
            base_timestamp + <unsigned long long>timestamp_delta
        )
        if is_kept:
            column.timestamps[row] = timestamp
        else:
            highest = max(highest, timestamp)
            lowest = min(lowest, timestamp)
        if not read_varint(data, &position, record_end, &delta) or delta <= previous_delta or delta > last_delta:
            return False
        previous_delta = delta
        if is_kept:
            column.offsets[row] = base_offset + delta

        if not read_varint(data, &position, record_end, &length):
            return False
        if is_kept:
            column.key_starts[row] = <int>position
        if length >= 0:
            position += length
            if is_kept:
                column.key_lengths[row] = length
        elif is_kept:
            column.key_lengths[row] = -1
        if not read_varint(data, &position, record_end, &length):
            return False
        if is_kept:
            column.value_starts[row] = <int>position
        if length >= 0:
            position += length
            if is_kept:
                column.value_lengths[row] = length
        elif is_kept:
            column.value_lengths[row] = -1

        if position + 1 == record_end and data[position] == 0:
            if is_kept:
                column.header_starts[row] = -1
        else:
            if is_kept:
                column.header_starts[row] = <int>position
            if not walk_headers(data, position, record_end):
                return False
        position = record_end
        row += 1
    if not is_kept:
        times.latest = highest
        times.earliest = lowest
    return position == end


cdef unsigned long long read_bits(
    const byte* data, Py_ssize_t at, Py_ssize_t end, int most, Py_ssize_t* after
) noexcept nogil:
    """Read a variable-length number of at most ``most`` bytes; set ``after`` to -1 if it is truncated or too long."""
    cdef unsigned long long bits = 0
    cdef int shift = 0
    after[0] = -1
    while at < end and shift < 7 * most:
        bits |= <unsigned long long>(data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            after[0] = at
            break
    return bits


cdef bint walk_headers(const byte* data, Py_ssize_t position, Py_ssize_t end) noexcept nogil:
    """Check that the bytes from ``position`` to ``end`` are the headers of a record."""
    cdef int count, length
    if not read_varint(data, &position, end, &count) or count < 0 or <long long>count * 2 > end - position:
        return False
    while count > 0:
        count -= 1
        if not read_varint(data, &position, end, &length) or length < 0:
            return False
        position += length
        if not read_varint(data, &position, end, &length):
            return False
        if length > 0:
            position += length
    return position == end
