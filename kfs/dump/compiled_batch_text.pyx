# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled implementation of :mod:`kfs.dump.batch_text`, with the same output.

It formats many batches at once with the GIL released, but only the most common case: data batches in v2, with keys and
values as text. Everything else is formatted in Python.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy, memset

from kfs.format.compiled_decode cimport byte
from kfs.render.compiled_output cimport (
    clear,
    Header,
    Output,
    Source,
    int32s,
    int64s,
    next_header,
    open_source,
    put,
    put_literal,
    put_number,
    read_character,
    read_header_count,
    reserve,
)

from kfs.dump.batch_text import BatchText
from kfs.dump.message_parsers import DecoderMessageParser
from kfs.format.codecs import Codec
from kfs.format.layout import BATCH_OVERHEAD, MAGIC_OFFSET, MAGIC_V2

cdef enum Status:
    DONE
    NO_MEMORY
    OUTSIDE  # columns or rows that point outside the buffer

cdef enum:
    # The offsets of the fields in a batch header (kfs.format.layout.BATCH_HEADER).
    HEADER_SIZE = 61
    LENGTH = 8
    LEADER_EPOCH = 12
    CRC = 17
    ATTRIBUTES = 21
    LAST_OFFSET_DELTA = 23
    BASE_TIMESTAMP = 27
    MAX_TIMESTAMP = 35
    PRODUCER_ID = 43
    PRODUCER_EPOCH = 51
    BASE_SEQUENCE = 53
    COUNT = 57
    LOG_OVERHEAD = 12
    CODEC_BITS = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40
    # Room for a line without its names, keys and values.
    LINE_ROOM = 768
    MOST_REPLACED = 3  # the size of the replacement for a byte that isn't UTF-8

assert BATCH_OVERHEAD == HEADER_SIZE
assert tuple(codec.label for codec in Codec) == ("none", "gzip", "snappy", "lz4", "zstd")


cdef struct Rows:
    const byte* data  # the batches
    Py_ssize_t size
    long long start  # the file position of the first byte
    Py_ssize_t first
    Py_ssize_t stop
    const long long* positions
    const int* counts


cdef class CompiledBatchText:
    """The implementation of :class:`kfs.dump.batch_text.BatchLines` in Cython."""

    cdef object python
    cdef bint is_fast
    cdef bint has_metadata
    cdef bint has_contents

    def __cinit__(self, printing):
        parser = printing.parser
        self.python = BatchText(printing)
        self.has_metadata = printing.has_metadata
        self.has_contents = parser is not None
        self.is_fast = printing.is_deep and (
            parser is None or (isinstance(parser, DecoderMessageParser) and parser.is_text)
        )

    def batch(self, batch):
        """See :meth:`kfs.dump.batch_text.BatchLines.batch`."""
        return self.python.batch(batch)

    def records(self, records):
        """See :meth:`kfs.dump.batch_text.BatchLines.records`."""
        cdef Source source
        cdef Rows rows
        cdef Output output
        cdef Status status
        table = records.table
        if not self.is_fast or records.is_control or records.columns.faults:
            return self.python.records(records)
        if table.buffer[table.positions[records.first] - table.buffer_position + MAGIC_OFFSET] != MAGIC_V2:
            return self.python.records(records)
        open_rows(records, &rows)
        open_source(records.columns, &source)
        memset(&output, 0, sizeof(Output))
        try:
            with nogil:
                status = write_batches(&rows, &source, self.has_metadata, self.has_contents, &output)
            if status == NO_MEMORY:
                raise MemoryError
            if status == OUTSIDE:
                raise ValueError("columns that point outside of their buffer")
            return PyBytes_FromStringAndSize(<char*>output.data, output.size)
        finally:
            clear(&output)


cdef int open_rows(records, Rows* rows) except -1:
    """Fill ``rows``; its pointers stay valid until the table changes."""
    table = records.table
    cdef bytes data = table.buffer
    cdef Py_ssize_t count = len(table.positions)
    cdef Py_ssize_t row
    rows.data = data
    rows.size = len(data)
    rows.start = table.buffer_position
    rows.first = records.first
    rows.stop = records.stop
    rows.positions = int64s(table.positions, count)
    rows.counts = int32s(table.counts, count)
    if not 0 <= rows.first < rows.stop <= count:
        raise ValueError("no such rows")
    for row in range(rows.first, rows.stop):
        if not 0 <= rows.positions[row] - rows.start <= rows.size - HEADER_SIZE:
            raise ValueError("rows that point outside of their buffer")
    return 0


cdef Status write_batches(
    const Rows* rows, const Source* source, bint has_metadata, bint has_contents, Output* output
) noexcept nogil:
    cdef Py_ssize_t row, index
    cdef Py_ssize_t done = 0
    cdef const byte* header
    cdef Status status
    if not reserve(output, (source.count + rows.stop - rows.first) * (LINE_ROOM // 4) + source.size):
        return NO_MEMORY
    for row in range(rows.first, rows.stop):
        header = rows.data + (rows.positions[row] - rows.start)
        if rows.counts[row] < 0 or rows.counts[row] > source.count - done:
            return OUTSIDE
        if not reserve(output, LINE_ROOM):
            return NO_MEMORY
        put_batch(header, rows.positions[row], output)
        for index in range(done, done + rows.counts[row]):
            status = put_record(header, source, index, has_metadata, has_contents, output)
            if status != DONE:
                return status
        done += rows.counts[row]
    return DONE


cdef inline long long integer(const byte* data, int size) noexcept nogil:
    """Return a signed big-endian integer."""
    cdef unsigned long long value = 0
    cdef int at
    for at in range(size):
        value = value << 8 | data[at]
    return <long long>(value << (64 - 8 * size)) >> (64 - 8 * size)


cdef inline void put_boolean(Output* output, bint value) noexcept nogil:
    if value:
        put_literal(output, "true")
    else:
        put_literal(output, "false")


cdef inline void put_time_type(Output* output, int attributes) noexcept nogil:
    if attributes & LOG_APPEND_TIME:
        put_literal(output, " LogAppendTime: ")
    else:
        put_literal(output, " CreateTime: ")


cdef inline long long later_sequence(long long base_sequence, long long offset_delta) noexcept nogil:
    """See :func:`kfs.format.batch_header.later_sequence`."""
    if base_sequence == -1:
        return -1
    base_sequence += offset_delta
    return base_sequence if base_sequence <= 0x7FFFFFFF else base_sequence - 0x80000000LL


cdef void put_batch(const byte* header, long long position, Output* output) noexcept nogil:
    cdef int attributes = <int>integer(header + ATTRIBUTES, 2)
    cdef long long base_offset = integer(header, 8)
    cdef long long delta = integer(header + LAST_OFFSET_DELTA, 4)
    cdef long long base_sequence = integer(header + BASE_SEQUENCE, 4)
    put_literal(output, "baseOffset: ")
    put_number(output, base_offset)
    put_literal(output, " lastOffset: ")
    put_number(output, base_offset + delta)
    put_literal(output, " count: ")
    put_number(output, integer(header + COUNT, 4))
    put_literal(output, " baseSequence: ")
    put_number(output, base_sequence)
    put_literal(output, " lastSequence: ")
    put_number(output, later_sequence(base_sequence, delta))
    put_literal(output, " producerId: ")
    put_number(output, integer(header + PRODUCER_ID, 8))
    put_literal(output, " producerEpoch: ")
    put_number(output, integer(header + PRODUCER_EPOCH, 2))
    put_literal(output, " partitionLeaderEpoch: ")
    put_number(output, integer(header + LEADER_EPOCH, 4))
    put_literal(output, " isTransactional: ")
    put_boolean(output, attributes & TRANSACTIONAL)
    put_literal(output, " isControl: ")
    put_boolean(output, attributes & CONTROL)
    if attributes & DELETE_HORIZON:
        put_literal(output, " deleteHorizonMs: OptionalLong[")
        put_number(output, integer(header + BASE_TIMESTAMP, 8))
        put_literal(output, "] position: ")
    else:
        put_literal(output, " deleteHorizonMs: OptionalLong.empty position: ")
    put_number(output, position)
    put_time_type(output, attributes)
    put_number(output, integer(header + MAX_TIMESTAMP, 8))
    put_literal(output, " size: ")
    put_number(output, integer(header + LENGTH, 4) + LOG_OVERHEAD)
    put_literal(output, " magic: 2 compresscodec: ")
    put_codec(output, attributes & CODEC_BITS)
    put_literal(output, " crc: ")
    put_number(output, integer(header + CRC, 4) & 0xFFFFFFFFLL)
    put_literal(output, " isvalid: true\n")  # only valid batches are in a table


cdef void put_codec(Output* output, int codec) noexcept nogil:
    if codec == 0:
        put_literal(output, "none")
    elif codec == 1:
        put_literal(output, "gzip")
    elif codec == 2:
        put_literal(output, "snappy")
    elif codec == 3:
        put_literal(output, "lz4")
    elif codec == 4:
        put_literal(output, "zstd")
    else:
        put_literal(output, "unknown(")
        put_number(output, codec)
        put_literal(output, ")")


cdef Status put_record(
    const byte* header, const Source* source, Py_ssize_t index, bint has_metadata, bint has_contents, Output* output
) noexcept nogil:
    cdef Status status
    cdef bint is_first = not has_metadata
    if not reserve(output, LINE_ROOM):
        return NO_MEMORY
    if has_metadata:
        status = put_metadata(header, source, index, output)
        if status != DONE:
            return status
    if has_contents:
        if source.key_lengths[index] >= 0:
            if is_first:
                put_literal(output, "|")
            put_literal(output, " key: ")
            is_first = False
            status = put_text(source, source.key_starts[index], source.key_lengths[index], output)
            if status != DONE:
                return status
        if source.value_lengths[index] >= 0:
            if is_first:
                put_literal(output, "|")
            put_literal(output, " payload: ")
            status = put_text(source, source.value_starts[index], source.value_lengths[index], output)
            if status != DONE:
                return status
    put_literal(output, "\n")
    return DONE


cdef Status put_metadata(
    const byte* header, const Source* source, Py_ssize_t index, Output* output
) noexcept nogil:
    cdef long long offset = source.offsets[index]
    cdef Status status
    put_literal(output, "| offset: ")
    put_number(output, offset)
    put_time_type(output, <int>integer(header + ATTRIBUTES, 2))
    put_number(output, source.timestamps[index])
    put_literal(output, " keySize: ")
    put_number(output, source.key_lengths[index])
    put_literal(output, " valueSize: ")
    put_number(output, source.value_lengths[index])
    put_literal(output, " sequence: ")
    put_number(output, later_sequence(integer(header + BASE_SEQUENCE, 4), offset - integer(header, 8)))
    put_literal(output, " headerKeys: [")
    if source.header_starts[index] >= 0:
        status = put_header_keys(source, source.header_starts[index], output)
        if status != DONE:
            return status
    put_literal(output, "]")
    return DONE


cdef Status put_header_keys(const Source* source, Py_ssize_t position, Output* output) noexcept nogil:
    cdef int count
    cdef Header header
    cdef Status status
    cdef bint is_first = True
    if not read_header_count(source, &position, &count):
        return OUTSIDE
    while count > 0:
        count -= 1
        if not is_first:
            put_literal(output, ",")
        is_first = False
        if not next_header(source, &position, &header):
            return OUTSIDE
        status = put_text(source, header.key_start, header.key_length, output)
        if status != DONE:
            return status
    return DONE


cdef Status put_text(const Source* source, Py_ssize_t start, Py_ssize_t length, Output* output) noexcept nogil:
    """Write bytes as Java decodes them to text; reserve room for the rest of the line."""
    cdef const byte* text = source.data + start
    cdef Py_ssize_t valid
    if start < 0 or start > source.size or length > source.size - start:
        return OUTSIDE
    valid = valid_size(text, length)
    if not reserve(output, valid + (length - valid) * MOST_REPLACED + LINE_ROOM):
        return NO_MEMORY
    while True:
        put(output, text, valid)
        text += valid
        length -= valid
        if not length:
            return DONE
        put_literal(output, b"\xef\xbf\xbd")
        valid = malformed_size(text, length)
        text += valid
        length -= valid
        valid = valid_size(text, length)


cdef Py_ssize_t valid_size(const byte* text, Py_ssize_t size) noexcept nogil:
    """Return how many bytes from the first on are valid UTF-8."""
    cdef Py_ssize_t at = 0
    cdef unsigned long long eight
    cdef unsigned int character
    cdef int length
    while at < size:
        if size - at >= 8:
            memcpy(&eight, text + at, 8)
            if not eight & 0x8080808080808080ULL:
                at += 8
                continue
        length = read_character(text + at, size - at, &character)
        if not length:
            break
        at += length
    return at


cdef Py_ssize_t malformed_size(const byte* text, Py_ssize_t size) noexcept nogil:
    """Return how many malformed bytes Java replaces by one character (``String.decodeUTF8``)."""
    cdef byte first = text[0]
    if first < 0xE0 or first > 0xF4 or size < 2 or text[1] >> 6 != 2:
        return 1
    if first == 0xE0 and text[1] < 0xA0 or first == 0xF0 and text[1] < 0x90 or first == 0xF4 and text[1] > 0x8F:
        return 1
    if size < 3 or text[2] >> 6 != 2:
        return 2
    return 3  # a surrogate, or four bytes without the last one
