# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled implementation of :mod:`kfs.render.arrow_builder`, with the same result.

It lays out a whole block with the GIL released. Positions in the columns are checked against their buffer before use.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from kfs.format.compiled_decode cimport byte
from kfs.render.compiled_output cimport (
    clear,
    Header,
    next_header,
    open_source,
    Output,
    put,
    read_character,
    read_header_count,
    reserve,
    Source,
)

from kfs.format.java_text import java_text
from kfs.render.arrow_columns import Column
from kfs.render.arrow_builder import FIRST_MILLISECOND, LAST_MILLISECOND, NO_BATCH, ArrowBuffers

cdef enum Status:
    DONE
    NO_MEMORY
    OUTSIDE  # the columns point outside the buffer
    TOO_LARGE  # a column has more bytes than fit an int32

cdef enum:
    MOST_COLUMNS = 32
    SMALL = 16  # a short field is copied as this many bytes at once, because an Output has as many to spare
    ALIGNMENT = 64  # of buffers in an arena, as Arrow recommends

cdef enum Number:
    NO_NUMBER
    OFFSET
    TIMESTAMP
    TIMESTAMP_MILLIS
    SEQUENCE
    CONSTANT_64
    CONSTANT_32
    CONSTANT_8
    CONSTANT_BIT

cdef long long FIRST_TIME = FIRST_MILLISECOND
cdef long long LAST_TIME = LAST_MILLISECOND
cdef long long MOST_BYTES = 0x7FFFFFFF

cdef dict NUMBERS = {
    Column.OFFSET: OFFSET,
    Column.TIMESTAMP: TIMESTAMP,
    Column.TIMESTAMP_TYPE: CONSTANT_32,
    Column.TIMESTAMP_MILLIS: TIMESTAMP_MILLIS,
    Column.POSITION: CONSTANT_64,
    Column.BASE_OFFSET: CONSTANT_64,
    Column.LEADER_EPOCH: CONSTANT_32,
    Column.PRODUCER_ID: CONSTANT_64,
    Column.PRODUCER_EPOCH: CONSTANT_32,
    Column.SEQUENCE: SEQUENCE,
    Column.IS_TRANSACTIONAL: CONSTANT_BIT,
    Column.CODEC: CONSTANT_8,
    Column.MAGIC: CONSTANT_32,
}
#: The index in a batch's fields of each column that comes from a batch.
cdef dict FIELDS = {
    Column.POSITION: 0,
    Column.BASE_OFFSET: 1,
    Column.LEADER_EPOCH: 2,
    Column.PRODUCER_ID: 3,
    Column.PRODUCER_EPOCH: 4,
    Column.SEQUENCE: 5,
    Column.IS_TRANSACTIONAL: 6,
    Column.CODEC: 7,
    Column.MAGIC: 8,
}
cdef int BASE_OFFSET_FIELD = 1


cdef class Lent:
    """Memory of another owner, kept alive as long as it is in use."""

    cdef Py_buffer view

    def __cinit__(self, memory):
        PyObject_GetBuffer(memory, &self.view, PyBUF_WRITABLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef class CompiledArena:
    """See :class:`kfs.read.workers.job.Arena`."""

    cdef Lent lent
    cdef readonly Py_ssize_t used

    def use(self, memory):
        """See :meth:`kfs.read.workers.job.Arena.use`."""
        self.lent = None if memory is None else Lent(memory)
        self.used = 0

    cdef void lend(self, Output* output, Py_ssize_t size):
        """Let an empty output write its first ``size`` bytes into the arena, if there is room."""
        size += SMALL + (-(size + SMALL) & (ALIGNMENT - 1))
        if self.lent is not None and size <= self.lent.view.len - self.used:
            output.data = <byte*>self.lent.view.buf + self.used
            output.room = size
            output.is_lent = True
            self.used += size

    cdef Py_ssize_t keep(self, const Output* output):
        """Return the position of a finished output in the arena; if it is the last one, its unused rest is reused."""
        cdef Py_ssize_t place = output.data - <byte*>self.lent.view.buf
        if place + output.room == self.used:
            self.used = place + output.size + (-output.size & (ALIGNMENT - 1))
        return place


cdef class Buffer:
    """Memory that is freed after use, or that is at ``place`` in an arena; ``place`` is None outside the arena."""

    cdef byte* data
    cdef Py_ssize_t size
    cdef Lent lent
    cdef readonly object place

    def __dealloc__(self):
        if self.lent is None:
            free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)


cdef struct Bits:
    Output bytes
    Py_ssize_t count
    Py_ssize_t unset


cdef struct Variable:
    # Fields of variable length, one after the other: the end of each, and which are null.
    Output ends
    Output data
    Bits validity


cdef struct Rows:
    # The selected records: ``count`` of them from ``first`` on or, if it isn't NULL, those in ``picked``.
    Py_ssize_t count
    Py_ssize_t first
    const long long* picked


cdef struct NumberColumn:
    Number number
    int field  # the index in the batch's fields, -1: none
    long long constant
    Output values
    Bits validity


cdef inline Py_ssize_t row_at(const Rows* rows, Py_ssize_t at) noexcept nogil:
    return rows.first + at if rows.picked == NULL else <Py_ssize_t>rows.picked[at]


cdef bint put_bits(Bits* bits, Py_ssize_t count, bint value) noexcept nogil:
    """Append ``count`` equal bits; return False if memory runs out."""
    cdef Py_ssize_t at = bits.count
    cdef Py_ssize_t stop = at + count
    cdef Py_ssize_t needed = (stop + 7) // 8
    cdef byte* data
    if not value:
        bits.unset += count
    if needed > bits.bytes.size:
        if not reserve(&bits.bytes, needed - bits.bytes.size):
            return False
        memset(bits.bytes.data + bits.bytes.size, 0, needed - bits.bytes.size)
        bits.bytes.size = needed
    data = bits.bytes.data
    bits.count = stop
    if value:
        while at < stop and at & 7:
            data[at >> 3] |= 1 << (at & 7)
            at += 1
        if stop - at >= 8:
            memset(data + (at >> 3), 0xFF, (stop - at) >> 3)
            at += (stop - at) & ~7
        while at < stop:
            data[at >> 3] |= 1 << (at & 7)
            at += 1
    return True


cdef inline void put_bit(Bits* bits, bint value) noexcept nogil:
    """Append a bit; there must be room for it."""
    if not bits.count & 7:
        bits.bytes.data[bits.count >> 3] = 0
        bits.bytes.size += 1
    bits.bytes.data[bits.count >> 3] |= <int>value << (bits.count & 7)
    bits.count += 1
    bits.unset += not value


cdef inline bint reserve_bits(Bits* bits, Py_ssize_t count) noexcept nogil:
    return reserve(&bits.bytes, (bits.count + count + 7) // 8 - bits.bytes.size)


cdef inline bint lies_inside(const Source* source, Py_ssize_t start, Py_ssize_t length) noexcept nogil:
    return 0 <= start <= source.size and length <= source.size - start


cdef inline void copy_field(Output* output, const Source* source, Py_ssize_t start, Py_ssize_t length) noexcept nogil:
    if length <= SMALL and source.size - start >= SMALL:
        memcpy(output.data + output.size, source.data + start, SMALL)
        output.size += length
    else:
        put(output, source.data + start, length)


cdef inline void put_int32(Output* output, int value) noexcept nogil:
    (<int*>(output.data + output.size))[0] = value
    output.size += 4


cdef Status put_fields(
    Variable* column, const Source* source, const int* starts, const int* lengths, const Rows* rows
) noexcept nogil:
    """Append the records' keys or values."""
    cdef Py_ssize_t at, index, length
    cdef Py_ssize_t nulls = 0
    cdef long long total = column.data.size
    for at in range(rows.count):
        index = row_at(rows, at)
        length = lengths[index]
        if length < 0:
            nulls += 1
            continue
        if not lies_inside(source, starts[index], length):
            return OUTSIDE
        total += length
    if total > MOST_BYTES:
        return TOO_LARGE
    if not reserve(&column.data, total - column.data.size) or not reserve(&column.ends, 4 * rows.count):
        return NO_MEMORY
    if not reserve_bits(&column.validity, rows.count):
        return NO_MEMORY
    for at in range(rows.count):
        index = row_at(rows, at)
        if lengths[index] > 0:
            copy_field(&column.data, source, starts[index], lengths[index])
        put_int32(&column.ends, <int>column.data.size)
    if not nulls:
        return DONE if put_bits(&column.validity, rows.count, True) else NO_MEMORY
    for at in range(rows.count):
        put_bit(&column.validity, lengths[row_at(rows, at)] >= 0)
    return DONE


cdef struct Headers:
    Output ends
    Bits validity
    Variable names
    Variable values


cdef Status put_headers(Headers* headers, const Source* source, const Rows* rows) noexcept nogil:
    """Append the records' headers; a record without headers has null, as in Spark's source."""
    cdef Py_ssize_t at, index
    cdef int count
    cdef int total = <int>(headers.names.ends.size // 4) - 1
    cdef Py_ssize_t position
    cdef Status status
    if not reserve(&headers.ends, 4 * rows.count) or not reserve_bits(&headers.validity, rows.count):
        return NO_MEMORY
    for at in range(rows.count):
        position = source.header_starts[row_at(rows, at)]
        count = 0
        if position >= 0:
            if not read_header_count(source, &position, &count):
                return OUTSIDE
            status = put_headers_of_record(headers, source, position, count)
            if status != DONE:
                return status
            total += count
        put_int32(&headers.ends, total)
        put_bit(&headers.validity, count > 0)
    return DONE


cdef Status put_headers_of_record(
    Headers* headers, const Source* source, Py_ssize_t position, int count
) noexcept nogil:
    cdef Header header
    if 2 * <long long>count > source.size - position:
        return OUTSIDE
    if not reserve(&headers.names.ends, 4 * <Py_ssize_t>count) or not reserve(&headers.values.ends, 4 * <Py_ssize_t>count):
        return NO_MEMORY
    if not reserve_bits(&headers.values.validity, count):
        return NO_MEMORY
    while count > 0:
        count -= 1
        if not next_header(source, &position, &header):
            return OUTSIDE
        if is_text(source.data + header.key_start, header.key_length):
            if not reserve(&headers.names.data, header.key_length):
                return NO_MEMORY
            copy_field(&headers.names.data, source, header.key_start, header.key_length)
        elif not put_replaced(&headers.names.data, source.data + header.key_start, header.key_length):
            return NO_MEMORY
        if headers.names.data.size > MOST_BYTES:
            return TOO_LARGE
        put_int32(&headers.names.ends, <int>headers.names.data.size)
        if header.value_length > 0:
            if not reserve(&headers.values.data, header.value_length):
                return NO_MEMORY
            copy_field(&headers.values.data, source, header.value_start, header.value_length)
        if headers.values.data.size > MOST_BYTES:
            return TOO_LARGE
        put_int32(&headers.values.ends, <int>headers.values.data.size)
        put_bit(&headers.values.validity, header.value_length >= 0)
    return DONE


cdef inline bint is_text(const byte* text, Py_ssize_t size) noexcept nogil:
    """Whether the text is valid UTF-8."""
    cdef Py_ssize_t at = 0
    cdef int length
    cdef unsigned int character
    while at < size:
        if text[at] < 0x80:
            at += 1
            continue
        length = read_character(text + at, size - at, &character)
        if length == 0:
            return False
        at += length
    return True


cdef bint put_replaced(Output* output, const byte* text, Py_ssize_t size) noexcept with gil:
    """Append text that isn't UTF-8 as Java decodes it; return False if memory runs out."""
    cdef bytes replaced
    try:
        replaced = java_text(text[:size]).encode()
    except MemoryError:
        return False
    if not reserve(output, len(replaced)):
        return False
    put(output, <const byte*>replaced, len(replaced))
    return True


cdef Status put_numbers(
    NumberColumn* column, const Source* source, const Rows* rows, long long constant, long long base_offset
) noexcept nogil:
    cdef Py_ssize_t at
    cdef long long* longs
    cdef int* ints
    if column.number == CONSTANT_BIT:
        return DONE if put_bits(&column.validity, rows.count, constant != 0) else NO_MEMORY
    if not reserve(&column.values, 8 * rows.count):
        return NO_MEMORY
    longs = <long long*>(column.values.data + column.values.size)
    ints = <int*>longs
    if column.number == CONSTANT_8:
        memset(longs, <int>constant, rows.count)
        column.values.size += rows.count
        return DONE
    if column.number == CONSTANT_32 or column.number == SEQUENCE:
        column.values.size += 4 * rows.count
    else:
        column.values.size += 8 * rows.count
    if column.number == CONSTANT_32:
        for at in range(rows.count):
            ints[at] = <int>constant
    elif column.number == SEQUENCE:
        for at in range(rows.count):
            ints[at] = later_sequence(<int>constant, source.offsets[row_at(rows, at)] - base_offset)
    elif column.number == CONSTANT_64:
        for at in range(rows.count):
            longs[at] = constant
    elif column.number == OFFSET:
        copy_int64s(longs, source.offsets, rows)
    elif column.number == TIMESTAMP_MILLIS:
        copy_int64s(longs, source.timestamps, rows)
    elif column.number == TIMESTAMP:
        return put_timestamps(column, longs, source.timestamps, rows)
    return DONE


cdef inline void copy_int64s(long long* out, const long long* values, const Rows* rows) noexcept nogil:
    cdef Py_ssize_t at
    if rows.picked == NULL:
        memcpy(out, values + rows.first, 8 * rows.count)
    else:
        for at in range(rows.count):
            out[at] = values[rows.picked[at]]


cdef Status put_timestamps(
    NumberColumn* column, long long* out, const long long* milliseconds, const Rows* rows
) noexcept nogil:
    """Convert milliseconds to microseconds; those that don't fit an int64 become null."""
    cdef Py_ssize_t at
    cdef bint is_each_small = True
    copy_int64s(out, milliseconds, rows)
    for at in range(rows.count):
        is_each_small &= FIRST_TIME <= out[at] <= LAST_TIME
    if is_each_small:
        for at in range(rows.count):
            out[at] *= 1000
        return DONE if put_bits(&column.validity, rows.count, True) else NO_MEMORY
    if not reserve_bits(&column.validity, rows.count):
        return NO_MEMORY
    for at in range(rows.count):
        is_each_small = FIRST_TIME <= out[at] <= LAST_TIME
        out[at] = out[at] * 1000 if is_each_small else 0
        put_bit(&column.validity, is_each_small)
    return DONE


cdef inline int later_sequence(int base_sequence, long long delta) noexcept nogil:
    """See :func:`kfs.format.batch_header.later_sequence`."""
    cdef long long sequence = base_sequence + delta
    if base_sequence == -1:
        return -1
    return <int>(sequence if sequence <= MOST_BYTES else sequence - MOST_BYTES - 1)


cdef bint begin_ends(Output* ends, Py_ssize_t rows) noexcept nogil:
    """Write the offset 0 of the first field if it is missing, and make room for the ends of ``rows`` fields."""
    if not reserve(ends, 4 * (rows + 1)):
        return False
    if not ends.size:
        put_int32(ends, 0)
    return True


cdef bint begin(Variable* column, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
    return begin_ends(&column.ends, rows) and reserve(&column.data, size)


cdef int check_index(Py_ssize_t index, Py_ssize_t count) except -1:
    if not 0 <= index < count:
        raise IndexError("no such record")
    return 0


cdef long long* picked_from(indexes, Py_ssize_t count) except NULL:
    """Return the checked indexes as a C array, which the caller must free."""
    cdef long long* picked = <long long*>malloc(len(indexes) * sizeof(long long))
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t index
    if picked == NULL:
        raise MemoryError
    try:
        for index in indexes:
            check_index(index, count)
            picked[at] = index
            at += 1
    except:
        free(picked)
        raise
    return picked


cdef int refuse(Status status) except -1:
    if status == NO_MEMORY:
        raise MemoryError
    if status == TOO_LARGE:
        raise OverflowError("more than 2^31 - 1 bytes in a column")
    raise ValueError("columns that point outside of their buffer")


cdef void clear_bits(Bits* bits) noexcept:
    clear(&bits.bytes)
    memset(bits, 0, sizeof(Bits))


cdef void clear_variable(Variable* column) noexcept:
    clear(&column.ends)
    clear(&column.data)
    clear_bits(&column.validity)


cdef inline Py_ssize_t with_slack(Py_ssize_t size) noexcept:
    return size + size // 8


cdef class CompiledArrowBuilder:
    """The implementation of :class:`kfs.render.arrow_builder.ArrowBuilder` in Cython."""

    cdef readonly Py_ssize_t rows
    cdef tuple columns
    cdef bytes topic
    cdef int partition
    cdef long long segment
    cdef bint has_key, has_value, has_headers
    cdef int count
    cdef Variable key, value
    cdef Headers headers
    cdef NumberColumn numbers[MOST_COLUMNS]
    cdef Py_ssize_t expected_rows, expected_keys, expected_values
    cdef Py_ssize_t expected_headers, expected_names, expected_header_values
    cdef CompiledArena arena
    cdef Lent lent  # the arena's memory in use for this batch; the arena itself may use other memory by now

    def __cinit__(self, columns, bytes topic not None, int partition, long long segment, CompiledArena arena=None):
        cdef int at
        memset(&self.key, 0, sizeof(Variable))
        memset(&self.value, 0, sizeof(Variable))
        memset(&self.headers, 0, sizeof(Headers))
        memset(self.numbers, 0, sizeof(self.numbers))
        self.columns = tuple(columns)
        if len(self.columns) > MOST_COLUMNS:
            raise ValueError("more columns than there are")
        self.topic = topic
        self.partition = partition
        self.segment = segment
        self.has_key = Column.KEY in self.columns
        self.has_value = Column.VALUE in self.columns
        self.has_headers = Column.HEADERS in self.columns
        for at, column in enumerate(self.columns):
            self.numbers[at].number = NUMBERS.get(column, NO_NUMBER)
            self.numbers[at].field = FIELDS.get(column, -1)
        self.rows = 0
        self.arena = arena

    def __dealloc__(self):
        self.clear()

    cdef void clear(self) noexcept:
        cdef int at
        clear_variable(&self.key)
        clear_variable(&self.value)
        clear(&self.headers.ends)
        clear_bits(&self.headers.validity)
        clear_variable(&self.headers.names)
        clear_variable(&self.headers.values)
        for at in range(MOST_COLUMNS):
            clear(&self.numbers[at].values)
            clear_bits(&self.numbers[at].validity)
        self.rows = 0

    @property
    def nbytes(self):
        """See :attr:`kfs.render.arrow_builder.ArrowBuilder.nbytes`."""
        headers = self.headers.names.data.size + self.headers.values.data.size
        return self.key.data.size + self.value.data.size + headers

    def add(self, columns, indexes, fields=NO_BATCH):
        """See :meth:`kfs.render.arrow_builder.ArrowBuilder.add`."""
        cdef Source source
        cdef Rows rows
        cdef Status status
        cdef long long* picked = NULL
        cdef long long constants[MOST_COLUMNS]
        cdef long long base_offset = fields[BASE_OFFSET_FIELD]
        cdef int at
        open_source(columns, &source)
        rows.count = len(indexes)
        rows.first = 0
        rows.picked = NULL
        if not rows.count:
            return
        for at, column in enumerate(self.columns):
            constants[at] = columns.timestamp_type if column is Column.TIMESTAMP_TYPE else 0
            if self.numbers[at].field >= 0:
                constants[at] = fields[self.numbers[at].field]
        try:
            if type(indexes) is range and (<object>indexes).step == 1:
                rows.first = indexes[0]
                check_index(rows.first, source.count)
                check_index(rows.first + rows.count - 1, source.count)
            else:
                picked = picked_from(indexes, source.count)
                rows.picked = picked
            if not self.rows and self.arena is not None and self.expected_rows:
                self.lay_out(max(rows.count, with_slack(self.expected_rows)))
            with nogil:
                status = self.add_rows(&source, &rows, constants, base_offset)
        finally:
            free(picked)
        if status != DONE:
            self.clear()
            refuse(status)
        self.rows += rows.count

    cdef Status add_rows(
        self, const Source* source, const Rows* rows, const long long* constants, long long base_offset
    ) noexcept nogil:
        cdef Status status = DONE
        cdef int at
        if not self.rows and not self.expect(rows.count):
            return NO_MEMORY
        if self.has_key:
            status = put_fields(&self.key, source, source.key_starts, source.key_lengths, rows)
        if status == DONE and self.has_value:
            status = put_fields(&self.value, source, source.value_starts, source.value_lengths, rows)
        if status == DONE and self.has_headers:
            status = put_headers(&self.headers, source, rows)
        for at in range(MOST_COLUMNS):
            if status == DONE and self.numbers[at].number != NO_NUMBER:
                status = put_numbers(&self.numbers[at], source, rows, constants[at], base_offset)
        return status

    cdef void lay_out(self, Py_ssize_t rows):
        """Let the next records be written into the arena; the largest columns come last."""
        cdef int at
        cdef CompiledArena arena = self.arena
        self.lent = arena.lent
        for at in range(MOST_COLUMNS):
            if self.numbers[at].number != NO_NUMBER:
                arena.lend(&self.numbers[at].values, 8 * rows)
                self.lend_bits(&self.numbers[at].validity, rows)
        if self.has_headers:
            arena.lend(&self.headers.ends, 4 * (rows + 1))
            self.lend_bits(&self.headers.validity, rows)
            self.lend_variable(&self.headers.names, with_slack(self.expected_headers), self.expected_names)
            self.lend_variable(&self.headers.values, with_slack(self.expected_headers), self.expected_header_values)
        if self.has_key:
            self.lend_variable(&self.key, rows, self.expected_keys)
        if self.has_value:
            self.lend_variable(&self.value, rows, self.expected_values)

    cdef Py_ssize_t lately(self, Py_ssize_t before, Py_ssize_t now):
        """Return the size to expect next time, if ``before`` was expected last time and ``now`` was the actual size.

        The last batch of a task is often smaller. In an arena, that is no reason to expect less. Without an arena, a
        buffer that isn't filled is expensive, because its memory goes back to the system.
        """
        return now if self.arena is None else max(now, before - before // 64)

    cdef void lend_bits(self, Bits* bits, Py_ssize_t count):
        self.arena.lend(&bits.bytes, (count + 7) // 8)

    cdef void lend_variable(self, Variable* column, Py_ssize_t count, Py_ssize_t size):
        self.arena.lend(&column.ends, 4 * (count + 1))
        self.lend_bits(&column.validity, count)
        self.arena.lend(&column.data, with_slack(size))

    cdef bint expect(self, Py_ssize_t rows) noexcept nogil:
        """Begin all columns of ends with 0, and make room for as much as last time."""
        cdef int at
        rows = max(rows, self.expected_rows)
        if self.has_key and not begin(&self.key, rows, self.expected_keys):
            return False
        if self.has_value and not begin(&self.value, rows, self.expected_values):
            return False
        if self.has_headers:
            if not begin(&self.headers.names, rows, self.expected_names):
                return False
            if not begin(&self.headers.values, rows, self.expected_header_values):
                return False
            if not begin_ends(&self.headers.ends, rows):
                return False
        for at in range(MOST_COLUMNS):
            if self.numbers[at].number != NO_NUMBER and not reserve(&self.numbers[at].values, 8 * rows):
                return False
        return True

    def finish(self):
        """See :meth:`kfs.render.arrow_builder.ArrowBuilder.finish`."""
        cdef list buffers = []
        cdef Py_ssize_t headers = max(self.headers.names.ends.size // 4 - 1, 0)
        self.expected_rows = self.lately(self.expected_rows, self.rows)
        self.expected_keys = self.lately(self.expected_keys, self.key.data.size)
        self.expected_values = self.lately(self.expected_values, self.value.data.size)
        self.expected_headers = self.lately(self.expected_headers, headers)
        self.expected_names = self.lately(self.expected_names, self.headers.names.data.size)
        self.expected_header_values = self.lately(self.expected_header_values, self.headers.values.data.size)
        rows = self.rows
        for at, column in enumerate(self.columns):
            if column is Column.KEY:
                buffers += self.taken(&self.key)
            elif column is Column.VALUE:
                buffers += self.taken(&self.value)
            elif column is Column.TOPIC:
                buffers += self.repeated_text(self.topic, rows)
            elif column is Column.PARTITION:
                buffers += [None, self.repeated(CONSTANT_32, self.partition, rows)]
            elif column is Column.SEGMENT:
                buffers += [None, self.repeated(CONSTANT_64, self.segment, rows)]
            elif column is Column.HEADERS:
                buffers.append(self.taken_bits(&self.headers.validity))
                buffers.append(self.taken_ends(&self.headers.ends))
                buffers += self.taken(&self.headers.names)
                buffers += self.taken(&self.headers.values)
            elif column is Column.IS_TRANSACTIONAL:
                buffers += [None, self.handed_over(&self.numbers[at].validity.bytes)]
            else:
                buffers.append(self.taken_bits(&self.numbers[at].validity))
                buffers.append(self.handed_over(&self.numbers[at].values))
        self.clear()
        self.lent = None
        return ArrowBuffers(rows, buffers)

    cdef bint is_in_arena(self):
        """Whether this batch is written to the arena, and the arena still uses the same memory."""
        return self.lent is not None and self.lent is self.arena.lent

    cdef object handed_over(self, Output* output):
        """Return what was written as a buffer, and reset the output."""
        cdef Buffer buffer = Buffer.__new__(Buffer)
        cdef byte* data = output.data
        cdef byte* less
        if output.is_lent:
            buffer.lent = self.lent
            if self.is_in_arena():
                buffer.place = self.arena.keep(output)
        elif data == NULL:
            data = <byte*>malloc(1)
            if data == NULL:
                raise MemoryError
        elif output.room - output.size > output.room // 4:
            less = <byte*>realloc(data, output.size + 1)
            if less != NULL:
                data = less
        buffer.data = data
        buffer.size = output.size
        memset(output, 0, sizeof(Output))
        return memoryview(buffer)

    cdef object taken_ends(self, Output* ends):
        if not begin_ends(ends, 0):
            raise MemoryError
        return self.handed_over(ends)

    cdef object taken_bits(self, Bits* bits):
        return self.handed_over(&bits.bytes) if bits.unset else None

    cdef list taken(self, Variable* column):
        return [self.taken_bits(&column.validity), self.taken_ends(&column.ends), self.handed_over(&column.data)]

    cdef object repeated(self, Number number, long long value, Py_ssize_t rows):
        """Return a column that repeats one number."""
        cdef NumberColumn column
        cdef Rows all_rows
        memset(&column, 0, sizeof(NumberColumn))
        column.number = number
        all_rows.count = rows
        all_rows.first = 0
        all_rows.picked = NULL
        if self.is_in_arena():
            self.arena.lend(&column.values, 8 * rows)
        if put_numbers(&column, NULL, &all_rows, value, 0) != DONE:
            raise MemoryError
        return self.handed_over(&column.values)

    cdef list repeated_text(self, bytes text, Py_ssize_t rows):
        """Return a column that repeats one string."""
        cdef Variable column
        cdef const byte* data = text
        cdef Py_ssize_t size = len(text)
        cdef Py_ssize_t at
        if <long long>size * rows > MOST_BYTES:
            raise OverflowError(f"{rows} rows of a topic of {size} bytes")
        memset(&column, 0, sizeof(Variable))
        if self.is_in_arena():
            self.arena.lend(&column.ends, 4 * (rows + 1))
            self.arena.lend(&column.data, size * rows)
        try:
            if not begin(&column, rows, size * rows):
                raise MemoryError
            with nogil:
                for at in range(rows):
                    put(&column.data, data, size)
                    put_int32(&column.ends, <int>column.data.size)
            return self.taken(&column)
        finally:
            clear_variable(&column)
