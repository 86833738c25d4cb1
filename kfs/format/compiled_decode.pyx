# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Batches to columns, compiled: the twin of :mod:`kfs.format.decode` and :mod:`kfs.format.scan`.

Whole buffers are worked through with the GIL released. Every length and count is checked against the bytes that are
there before it is used; what doesn't fit is never explained here, but left to the plain decoder, whose errors are
the errors of both.
"""

from cpython.array cimport array, clone, resize
from libc.stdlib cimport free, realloc

from kfs.format.codecs import decompress
from kfs.format.columns import RecordColumns
from kfs.format.decode import PlainDecoder
from kfs.format.batch_table import BatchTable
from kfs.format.record import TimestampType

cdef extern from "crc.h" nogil:
    void crc_init()
    unsigned int crc32c_of(const byte* data, size_t size)
    unsigned int crc32_of(const byte* data, size_t size)

cdef extern from *:
    """
    static inline uint32_t read_uint32(const uint8_t *data) {
        return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    }
    static inline int32_t read_int32(const uint8_t *data) { return (int32_t)read_uint32(data); }
    static inline int64_t read_int64(const uint8_t *data) {
        return (int64_t)((uint64_t)read_uint32(data) << 32 | read_uint32(data + 4));
    }
    static inline uint16_t read_uint16(const uint8_t *data) { return (uint16_t)(data[0] << 8 | data[1]); }
    """
    long long read_int64(const byte* data) nogil
    int read_int32(const byte* data) nogil
    unsigned int read_uint32(const byte* data) nogil
    unsigned short read_uint16(const byte* data) nogil

# kfs.format.layout
cdef enum:
    BATCH_OVERHEAD = 61
    BATCH_MIN_LENGTH = 49
    BATCH_CRC_START = 21
    LOG_OVERHEAD = 12
    MAGIC_V1 = 1
    MAGIC_V2 = 2
    MOST_CODEC = 4
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    CONTROL_MASK = 0x20
    KIND_MASK = 0x2F  # codec, timestamp type, control: what the records of one block have in common
    LEAST_RECORD_BYTES = 7
    LEGACY_HEADER_SIZE = 18
    LEGACY_CRC_START = 16
    MIN_SIZE_V0 = 14
    MIN_SIZE_V1 = 22
    NO_TIMESTAMP = -1

cdef long long MAX_INT64 = 0x7FFFFFFFFFFFFFFF
cdef Py_ssize_t MAX_INT32 = 0x7FFFFFFF

cdef array INT64 = array("q")
cdef array INT32 = array("i")

cdef object PLAIN = PlainDecoder()
cdef object CREATE_TIME = TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


cdef struct Batch:
    Py_ssize_t at  # in the buffer
    long long size
    int attributes
    long long base_offset
    long long last_offset
    int count
    long long base_timestamp
    long long max_timestamp


cdef class Columns:
    """The columns of records while they are filled."""

    cdef array offsets, timestamps, key_starts, key_lengths, value_starts, value_lengths, header_starts
    cdef Py_ssize_t filled

    def __cinit__(self, Py_ssize_t count):
        self.offsets = clone(INT64, count, False)
        self.timestamps = clone(INT64, count, False)
        self.key_starts = clone(INT32, count, False)
        self.key_lengths = clone(INT32, count, False)
        self.value_starts = clone(INT32, count, False)
        self.value_lengths = clone(INT32, count, False)
        self.header_starts = clone(INT32, count, False)
        self.filled = 0

    cdef bint fill(self, const byte* data, Py_ssize_t position, Py_ssize_t end, const Batch* batch) noexcept nogil:
        """Append the records of a batch, which are the bytes from ``position`` to ``end``; False if they aren't."""
        cdef Py_ssize_t row = self.filled
        cdef Py_ssize_t stop = row + batch.count
        cdef Py_ssize_t record_end
        cdef long long* offsets = self.offsets.data.as_longlongs
        cdef long long* timestamps = self.timestamps.data.as_longlongs
        cdef int* key_starts = self.key_starts.data.as_ints
        cdef int* key_lengths = self.key_lengths.data.as_ints
        cdef int* value_starts = self.value_starts.data.as_ints
        cdef int* value_lengths = self.value_lengths.data.as_ints
        cdef int* header_starts = self.header_starts.data.as_ints
        cdef long long base_offset = batch.base_offset
        cdef long long base_timestamp = batch.base_timestamp
        cdef long long append_time = batch.max_timestamp
        cdef bint has_append_time = batch.attributes & TIMESTAMP_TYPE_MASK
        cdef long long last_delta = batch.last_offset - base_offset
        cdef long long timestamp_delta
        cdef int length, delta
        cdef int previous_delta = -1
        while row < stop:
            if not read_varint(data, &position, end, &length) or length < 0 or length > end - position:
                return False
            record_end = position + length
            position += 1  # the unused attributes
            if not read_varlong(data, &position, record_end, &timestamp_delta):
                return False
            # Java's long arithmetic wraps around.
            timestamps[row] = append_time if has_append_time else <long long>(
                <unsigned long long>base_timestamp + <unsigned long long>timestamp_delta
            )
            if not read_varint(data, &position, record_end, &delta) or delta <= previous_delta or delta > last_delta:
                return False
            previous_delta = delta
            offsets[row] = base_offset + delta

            if not read_varint(data, &position, record_end, &length):
                return False
            key_starts[row] = <int>position
            if length >= 0:
                position += length
                key_lengths[row] = length
            else:
                key_lengths[row] = -1
            if not read_varint(data, &position, record_end, &length):
                return False
            value_starts[row] = <int>position
            if length >= 0:
                position += length
                value_lengths[row] = length
            else:
                value_lengths[row] = -1

            if position + 1 == record_end and data[position] == 0:
                header_starts[row] = -1
                position = record_end
            else:
                header_starts[row] = <int>position
                if not walk_headers(data, &position, record_end) or position != record_end:
                    return False
            row += 1
        if position != end:
            return False
        self.filled = row
        return True

    cdef bint fill_messages(self, const byte* data, Py_ssize_t end, int magic, bint is_inner) noexcept nogil:
        """Set all rows to the messages that ``data`` is; False if they aren't, or if one inside a wrapper is broken."""
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t row = 0
        cdef Message message
        while at < end:
            if not read_message(data, at, end, magic, &message):
                return False
            if is_inner and (
                message.attributes & CODEC_MASK or not is_message_intact(data, at, message.end, message.crc)
            ):
                return False
            self.offsets.data.as_longlongs[row] = message.offset
            self.timestamps.data.as_longlongs[row] = message.timestamp
            self.key_starts.data.as_ints[row] = <int>message.key_start
            self.key_lengths.data.as_ints[row] = max(message.key_length, -1)
            self.value_starts.data.as_ints[row] = <int>message.value_start
            self.value_lengths.data.as_ints[row] = max(message.value_length, -1)
            self.header_starts.data.as_ints[row] = -1
            at = message.end
            row += 1
        self.filled = row
        return True

    cdef bint make_absolute(self, int magic, long long wrapper_offset) noexcept nogil:
        """Make the offsets inside a wrapper absolute (``_MessageSet``); False where they can't be what they are."""
        cdef long long* offsets = self.offsets.data.as_longlongs
        cdef Py_ssize_t count = self.filled
        cdef Py_ssize_t row
        cdef long long previous = -1
        cdef long long base = 0
        for row in range(count):
            if offsets[row] <= previous:
                return False
            previous = offsets[row]
        if magic == MAGIC_V1 and wrapper_offset and wrapper_offset > previous:
            base = wrapper_offset - previous
            for row in range(count):
                offsets[row] += base
        return base + previous == wrapper_offset or (magic == MAGIC_V1 and wrapper_offset == 0)

    cdef object finish(self, bytes buffer, object timestamp_type):
        """Return the rows that are filled."""
        cdef array column
        if self.filled < len(self.offsets):
            for column in (
                self.offsets,
                self.timestamps,
                self.key_starts,
                self.key_lengths,
                self.value_starts,
                self.value_lengths,
                self.header_starts,
            ):
                resize(column, self.filled)
        return RecordColumns(
            buffer,
            self.offsets,
            self.timestamps,
            timestamp_type,
            self.key_starts,
            self.key_lengths,
            self.value_starts,
            self.value_lengths,
            self.header_starts,
        )


cdef bint walk_headers(const byte* data, Py_ssize_t* position, Py_ssize_t end) noexcept nogil:
    """Move ``position`` behind the headers of a record; False where they don't fit."""
    cdef int count, length
    if not read_varint(data, position, end, &count) or count < 0 or <long long>count * 2 > end - position[0]:
        return False
    while count > 0:
        count -= 1
        if not read_varint(data, position, end, &length) or length < 0:
            return False
        position[0] += length
        if not read_varint(data, position, end, &length):
            return False
        if length > 0:
            position[0] += length
    return position[0] <= end


cdef bint read_batch(const byte* data, Py_ssize_t at, Py_ssize_t end, Batch* batch) noexcept nogil:
    """Read the header of a record batch at ``at``; False where there is none (``read_header``)."""
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
    return True


cdef bint is_intact(const byte* data, const Batch* batch) noexcept nogil:
    data += batch.at
    return crc32c_of(data + BATCH_CRC_START, batch.size - BATCH_CRC_START) == read_uint32(data + 17)


cdef Py_ssize_t scan_rows(
    const byte* data, Py_ssize_t at, Py_ssize_t end, long long seen, long long limit, long long max_size, Batch** rows
) noexcept nogil:
    """Collect the batches from ``at`` on into ``rows``, which the caller frees; return how many, -1: no memory."""
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t room = 0
    cdef Batch batch, following
    cdef Batch* grown
    cdef bint has_following
    cdef bint found = read_batch(data, at, end, &batch)
    while found and batch.size <= max_size and batch.size <= end - at:
        at += batch.size
        found = read_batch(data, at, end, &following)
        if batch.base_offset <= seen or batch.last_offset >= limit:
            break
        if batch.base_offset > seen + 1 and not (found and following.last_offset > batch.last_offset):
            break
        if not is_intact(data, &batch):
            break
        if count == room:
            room = room * 2 if room else 16
            grown = <Batch*>realloc(rows[0], room * sizeof(Batch))
            if grown == NULL:
                return -1
            rows[0] = grown
        rows[0][count] = batch
        count += 1
        seen = batch.last_offset
        batch = following
    return count


cdef class CompiledDecoder:
    """The decoder where there was a compiler, or a wheel, when kfs was installed."""

    name = "compiled"

    def scan(
        self,
        bytes buffer not None,
        Py_ssize_t at,
        long long position,
        long long seen,
        long long limit,
        long long max_size,
    ):
        """See :meth:`kfs.format.decode.BlockDecoder.scan`."""
        cdef const byte* data = buffer
        cdef Py_ssize_t end = len(buffer)
        cdef Batch* rows = NULL
        cdef Py_ssize_t count
        if at < 0 or at > end:
            raise IndexError("at")
        try:
            with nogil:
                count = scan_rows(data, at, end, seen, limit, max_size, &rows)
            if count < 0:
                raise MemoryError
            return table_of(buffer, position - at, rows, count)
        finally:
            free(rows)

    def decode(self, header, bytes data not None, limit):
        """See :meth:`kfs.format.decode.BlockDecoder.decode`."""
        cdef Batch batch
        columns = None
        if header.magic == MAGIC_V2:
            batch.at = 0
            batch.size = len(data)
            batch.attributes = header.attributes
            batch.base_offset = header.base_offset
            batch.last_offset = header.last_offset
            batch.count = header.record_count
            batch.base_timestamp = header.base_timestamp
            batch.max_timestamp = header.max_timestamp
            columns = columns_of_batch(data, &batch, limit)
        elif header.codec_id:
            columns = columns_of_wrapper(header, data, limit)
        else:
            columns = columns_of_messages(data, header.magic, None, header.timestamp_type)
        return PLAIN.decode(header, data, limit) if columns is None else columns

    def decode_rows(self, table, Py_ssize_t first, limit):
        """See :meth:`kfs.format.decode.BlockDecoder.decode_rows`."""
        cdef bytes buffer = table.buffer
        cdef Py_ssize_t at = table.positions[first] - table.buffer_position
        cdef Py_ssize_t rows = 1
        cdef Batch batch
        columns = None
        if at >= 0 and read_batch(buffer, at, len(buffer), &batch) and batch.size <= len(buffer) - at:
            if batch.attributes & CODEC_MASK:
                columns = columns_of_batch(buffer, &batch, limit)
            else:
                rows = len(table) - first
                columns = columns_of_rows(buffer, &batch, &rows)
        if columns is None:
            return PLAIN.decode(table.header(first), table.data(first), limit), first + 1
        return columns, first + rows

    def scan_messages(self, bytes buffer not None, Py_ssize_t at, Py_ssize_t end, header, long long last, long long limit):
        """See :meth:`kfs.format.decode.BlockDecoder.scan_messages`."""
        cdef const byte* data = buffer
        cdef int magic = header.magic
        cdef int attributes = header.attributes
        cdef long long latest = NO_TIMESTAMP
        if not 0 <= at <= end <= len(buffer):
            raise IndexError("at")
        with nogil:
            scan_messages(data, &at, end, magic, attributes, &last, limit, &latest)
        return at, last, latest


cdef object columns_of_batch(bytes data, const Batch* batch, limit):
    """Decode the batch at ``batch.at`` in ``data``; None where its records aren't what its header says."""
    cdef bytes buffer = data
    cdef Py_ssize_t start = batch.at + BATCH_OVERHEAD
    cdef Py_ssize_t end = batch.at + batch.size
    cdef int codec = batch.attributes & CODEC_MASK
    cdef const byte* bytes_of
    cdef bint is_sound
    cdef Columns columns
    if codec > MOST_CODEC:
        return None
    if codec:
        # An empty batch has no compressed stream either (MemoryRecords.writeEmptyHeader).
        body = memoryview(data)[start:end]
        buffer = decompress(codec, body, magic=MAGIC_V2, limit=limit) if batch.count else b""
        start, end = 0, len(buffer)
    if end > MAX_INT32 or <long long>batch.count * LEAST_RECORD_BYTES > end - start:
        return None
    columns = Columns(batch.count)
    bytes_of = buffer
    with nogil:
        is_sound = columns.fill(bytes_of, start, end, batch)
    return columns.finish(buffer, timestamp_type_of(batch)) if is_sound else None


cdef object columns_of_rows(bytes buffer, const Batch* first, Py_ssize_t* rows):
    """Decode uncompressed batches like ``first``, from there on at most ``rows``, which becomes how many they were.

    A batch whose records aren't what its header says ends them; None if that is the first.
    """
    cdef const byte* data = buffer
    cdef Py_ssize_t end = len(buffer)
    cdef Py_ssize_t most = rows[0]
    cdef Py_ssize_t done = 0
    cdef Py_ssize_t records
    cdef Columns columns
    cdef Batch batch
    if end > MAX_INT32:
        return None
    with nogil:
        records = count_records(data, first, end, &most)
    columns = Columns(records)
    with nogil:
        batch = first[0]
        while done < most and columns.fill(data, batch.at + BATCH_OVERHEAD, batch.at + batch.size, &batch):
            done += 1
            read_batch(data, batch.at + batch.size, end, &batch)
    rows[0] = done
    return columns.finish(buffer, timestamp_type_of(first)) if done else None


cdef Py_ssize_t count_records(const byte* data, const Batch* first, Py_ssize_t end, Py_ssize_t* rows) noexcept nogil:
    """Return how many records the batches like ``first`` claim; ``rows`` becomes how many those batches are."""
    cdef Py_ssize_t records = 0
    cdef Py_ssize_t count = 0
    cdef Batch batch = first[0]
    while True:
        if batch.size > end - batch.at or (batch.attributes ^ first.attributes) & KIND_MASK:
            break
        if <long long>batch.count * LEAST_RECORD_BYTES > batch.size - BATCH_OVERHEAD:
            break
        records += batch.count
        count += 1
        if count == rows[0] or not read_batch(data, batch.at + batch.size, end, &batch):
            break
    rows[0] = count
    return records


cdef object timestamp_type_of(const Batch* batch):
    return LOG_APPEND_TIME if batch.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME


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
    """Read the message of that format at ``at``; False where there is none, or not all of it."""
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
        if last[0] + 1 >= limit or read_int64(data + at) != last[0] + 1:
            break
        if not is_message_intact(data, at, at + size, read_uint32(data + at + 12)):
            break
        last[0] += 1
        if magic == MAGIC_V1:
            latest[0] = max(latest[0], read_int64(data + at + 18))
        at += size
    position[0] = at


cdef object columns_of_wrapper(header, bytes data, limit):
    """Decode a compressed message; None where it isn't what it should be, or one of those inside is broken."""
    cdef Message wrapper
    if not read_message(data, 0, len(data), header.magic, &wrapper) or wrapper.value_length < 0:
        return None
    if wrapper.end != len(data) or header.codec_id > MOST_CODEC:
        return None
    inner = decompress(header.codec_id, memoryview(data)[wrapper.value_start :], magic=header.magic, limit=limit)
    return columns_of_messages(inner, header.magic, header, header.timestamp_type)


cdef object columns_of_messages(bytes buffer, int magic, wrapper, timestamp_type):
    """Decode uncompressed messages one after another, those inside of ``wrapper`` unless that is None."""
    cdef const byte* data = buffer
    cdef Py_ssize_t end = len(buffer)
    cdef Py_ssize_t count
    cdef bint is_inner = wrapper is not None
    cdef bint is_sound
    cdef Columns columns
    if end > MAX_INT32:
        return None
    with nogil:
        count = count_messages(data, end)
    if count < is_inner:
        return None
    columns = Columns(count)
    with nogil:
        is_sound = columns.fill_messages(data, end, magic, is_inner)
    if not is_sound:
        return None
    if is_inner:
        if not columns.make_absolute(magic, wrapper.last_offset):
            return None
        if timestamp_type is LOG_APPEND_TIME:
            columns.timestamps = array("q", [wrapper.max_timestamp]) * count
    return columns.finish(buffer, timestamp_type)


cdef Py_ssize_t count_messages(const byte* data, Py_ssize_t end) noexcept nogil:
    """Return how many messages follow one another in exactly these bytes, -1 if they don't."""
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


cdef object table_of(bytes buffer, long long buffer_position, const Batch* rows, Py_ssize_t count):
    cdef array positions = clone(INT64, count, False)
    cdef array sizes = clone(INT64, count, False)
    cdef array attributes = clone(INT32, count, False)
    cdef array base_offsets = clone(INT64, count, False)
    cdef array last_offsets = clone(INT64, count, False)
    cdef array counts = clone(INT32, count, False)
    cdef array base_timestamps = clone(INT64, count, False)
    cdef array max_timestamps = clone(INT64, count, False)
    cdef Py_ssize_t row
    for row in range(count):
        positions.data.as_longlongs[row] = buffer_position + rows[row].at
        sizes.data.as_longlongs[row] = rows[row].size
        attributes.data.as_ints[row] = rows[row].attributes
        base_offsets.data.as_longlongs[row] = rows[row].base_offset
        last_offsets.data.as_longlongs[row] = rows[row].last_offset
        counts.data.as_ints[row] = rows[row].count
        base_timestamps.data.as_longlongs[row] = rows[row].base_timestamp
        max_timestamps.data.as_longlongs[row] = rows[row].max_timestamp
    return BatchTable(
        buffer,
        buffer_position,
        positions,
        sizes,
        attributes,
        base_offsets,
        last_offsets,
        counts,
        base_timestamps,
        max_timestamps,
    )


crc_init()
