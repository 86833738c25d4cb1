# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled implementation of :mod:`kfs.render.record_json`, with the same output.

It writes or measures a whole block with the GIL released. Positions in the columns are checked against their buffer
before use.
"""

from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy, memset, strlen

from kfs.format.compiled_decode cimport byte, Columns, columns_of_rows
from kfs.render.compiled_output cimport (
    clear,
    Header,
    int32s,
    int64s,
    next_header,
    Output,
    Source,
    open_source,
    put,
    put_literal,
    put_number,
    put_pair,
    read_character,
    read_header_count,
    reserve,
)

from kfs.errors import CorruptData
from kfs.format.columns import RecordColumns
from kfs.format.layout import CONTROL_MASK
from kfs.format.record import TimestampType
from kfs.render.record_json import RecordJson, RenderedLines, line_start
from kfs.render.timestamps import FIRST_MILLISECOND, LAST_MILLISECOND

cdef extern from "json_text.h" nogil:
    const char* SEQUENCE
    const char* TIMESTAMP
    const char* KEY
    const char* KEY_ENCODING
    const char* VALUE
    const char* VALUE_ENCODING
    const char* HEADERS
    const char* HEADER_KEY
    const char* HEADER_ENCODING
    const char* LINE_END
    int JSON_BYTES
    int JSON_BY_SHUFFLE
    int JSON_BY_COMPRESS
    int json_text_use(int most)
    bint json_is_plain(byte character)
    size_t json_write_plain(byte* out, const byte* text, size_t size, size_t* written)
    size_t json_measure_plain(const byte* text, size_t size, size_t* written)

cdef enum Status:
    DONE
    NO_MEMORY
    OUTSIDE  # the columns point outside the buffer

cdef enum:
    MOST_ESCAPED = 6  # the size of an escaped byte of text
    MEASURED_BYTES = 64 * 1024  # text of at least this size is measured before room is made for it
    # Room for a line without the topic, key, value and headers: 4 numbers and the names of fields. It is reserved
    # with each field, so it also covers what json_text.h may write past the end.
    LINE_OVERHEAD = 256
    MOST_SPARE = 4 * 1024 * 1024

cdef int CONTROL = CONTROL_MASK
cdef long long FIRST_TIME = FIRST_MILLISECOND
cdef long long LAST_TIME = LAST_MILLISECOND
cdef long long NO_TIME = -1
cdef long long DAY = 86_400_000

cdef const byte* HEX = b"0123456789abcdef"
cdef const byte* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef array INT64 = array("q")
cdef dict KINDS = {kind: f',"timestampType":"{kind.label}","time":'.encode() for kind in TimestampType}


cdef struct Sequences:
    long long base_offset
    int base_sequence


# A buffer to reuse from one block to the next, empty while a thread uses it. There is one for all partitions: a mount
# of thousands would keep as many.
cdef Output spare
memset(&spare, 0, sizeof(Output))


cdef void take(Output* output) noexcept:
    """Take the spare buffer; no other thread can interfere, as no Python code runs in between."""
    output[0] = spare
    memset(&spare, 0, sizeof(Output))


cdef void give_back(Output* output) noexcept:
    global spare
    output.size = 0
    if output.room <= MOST_SPARE and spare.data == NULL:
        spare = output[0]
    else:
        clear(output)


cdef class CompiledRecordJson:
    """Renders the records of one partition."""

    cdef bytes start
    cdef object python

    def __cinit__(self, topic, partition):
        self.start = line_start(topic, partition).encode()
        self.python = RecordJson(topic, partition)

    def lines(self, columns, covers):
        """See :meth:`kfs.render.record_json.RecordJson.lines`."""
        cdef Source source
        cdef array starts
        if columns.faults:
            return self.python.lines(columns, covers)
        open_source(columns, &source)
        starts = clone(INT64, source.count + 1, False)
        text = self.written(columns.timestamp_type, &source, 0, source.count, starts.data.as_longlongs)
        return RenderedLines(text, starts, columns, covers)

    def text(self, columns):
        """See :meth:`kfs.render.record_json.RecordJson.text`."""
        cdef Source source
        if columns.faults:
            return self.python.text(columns)
        open_source(columns, &source)
        return self.written(columns.timestamp_type, &source, 0, source.count, NULL)

    def batches(self, table, Py_ssize_t first, Py_ssize_t stop, limit):
        """See :meth:`kfs.render.record_json.RecordJson.batches`."""
        cdef bytes buffer = table.buffer
        cdef long long start = table.buffer_position
        cdef Py_ssize_t count = len(table)
        cdef const long long* positions = int64s(table.positions, count)
        cdef const int* attributes = int32s(table.attributes, count)
        cdef Py_ssize_t rows
        cdef Columns columns
        cdef Source source
        cdef Output output
        if not 0 <= first <= stop <= count:
            raise IndexError("no such rows")
        take(&output)
        try:
            while first < stop and not attributes[first] & CONTROL:
                rows = stop - first
                try:
                    columns = columns_of_rows(buffer, positions[first] - start, limit, &rows)
                except CorruptData:
                    break
                if columns is None:
                    break
                source_of(columns, &source)
                self.append(columns.timestamp_type, &source, 0, source.count, NULL, &output)
                first += rows
            return PyBytes_FromStringAndSize(<char*>output.data, output.size), first
        finally:
            give_back(&output)

    def line(self, columns, Py_ssize_t index):
        """See :meth:`kfs.render.record_json.RecordJson.line`."""
        cdef Source source
        if columns.faults:
            return self.python.line(columns, index)
        open_source(columns, &source)
        if not 0 <= index < source.count:
            raise IndexError("no such record")
        return self.written(columns.timestamp_type, &source, index, index + 1, NULL)

    def starts(self, columns):
        """See :meth:`kfs.render.record_json.RecordJson.starts`."""
        cdef Source source
        cdef array starts
        cdef Status status
        cdef bytes kind
        cdef Py_ssize_t fixed
        if columns.faults:
            return self.python.starts(columns)
        open_source(columns, &source)
        starts = clone(INT64, source.count + 1, False)
        kind = KINDS[columns.timestamp_type]
        fixed = len(self.start) + len(kind)
        with nogil:
            status = measure_lines(&source, fixed, starts.data.as_longlongs)
        check(status)
        return starts

    cdef bytes written(self, timestamp_type, Source* source, Py_ssize_t first, Py_ssize_t stop, long long* starts):
        cdef Output output
        take(&output)
        try:
            self.append(timestamp_type, source, first, stop, starts, &output)
            return PyBytes_FromStringAndSize(<char*>output.data, output.size)
        finally:
            give_back(&output)

    cdef int append(
        self, timestamp_type, Source* source, Py_ssize_t first, Py_ssize_t stop, long long* starts, Output* output
    ) except -1:
        cdef bytes kind = KINDS[timestamp_type]
        cdef const byte* start = self.start
        cdef const byte* middle = kind
        cdef Py_ssize_t start_size = len(self.start)
        cdef Py_ssize_t middle_size = len(kind)
        cdef Status status
        with nogil:
            status = write_lines(source, first, stop, start, start_size, middle, middle_size, output, starts, NULL)
        return check(status)


cdef class CompiledSequencedJson:
    """Renders the records of batches with their sequence numbers."""

    def lines(self, columns, Py_ssize_t first, Py_ssize_t stop, bytes start, long long base_offset, int base_sequence):
        """See :meth:`kfs.render.record_json.SequencedJson.lines`."""
        cdef Source source
        cdef Output output
        cdef Sequences sequences
        cdef Status status
        cdef bytes kind = KINDS[columns.timestamp_type]
        cdef const byte* text = start
        cdef const byte* middle = kind
        cdef Py_ssize_t text_length = len(start)
        cdef Py_ssize_t middle_length = len(kind)
        open_source(columns, &source)
        if not 0 <= first <= stop <= source.count:
            raise IndexError("no such records")
        sequences.base_offset = base_offset
        sequences.base_sequence = base_sequence
        memset(&output, 0, sizeof(Output))
        try:
            with nogil:
                status = write_lines(
                    &source, first, stop, text, text_length, middle, middle_length, &output, NULL, &sequences
                )
            check(status)
            return PyBytes_FromStringAndSize(<char*>output.data, output.size)
        finally:
            clear(&output)


cdef int source_of(Columns columns, Source* source) except -1:
    """Fill ``source``; its pointers stay valid as long as the columns exist."""
    source.data = columns.buffer
    source.size = len(columns.buffer)
    source.count = columns.filled
    source.offsets = columns.fields.offsets
    source.timestamps = columns.fields.timestamps
    source.key_starts = columns.fields.key_starts
    source.key_lengths = columns.fields.key_lengths
    source.value_starts = columns.fields.value_starts
    source.value_lengths = columns.fields.value_lengths
    source.header_starts = columns.fields.header_starts
    return 0


cdef int check(Status status) except -1:
    if status == NO_MEMORY:
        raise MemoryError
    if status == OUTSIDE:
        raise ValueError("columns that point outside of their buffer")
    return 0


cdef Status write_lines(
    const Source* source,
    Py_ssize_t first,
    Py_ssize_t stop,
    const byte* start,
    Py_ssize_t start_size,
    const byte* kind,
    Py_ssize_t kind_size,
    Output* output,
    long long* starts,
    const Sequences* sequences,
) noexcept nogil:
    """Append the lines of the records from ``first`` to ``stop``.

    The start of each line and the end of the last one go to ``starts``, unless it is NULL. Without ``sequences``, lines
    have no sequence numbers.
    """
    cdef Py_ssize_t index
    cdef Status status
    if not reserve(output, guess_of(source, first, stop, start_size + kind_size)):
        return NO_MEMORY
    for index in range(first, stop):
        if starts != NULL:
            starts[index - first] = output.size
        if not reserve(output, start_size + kind_size + LINE_OVERHEAD):
            return NO_MEMORY
        put(output, start, start_size)
        put_number(output, source.offsets[index])
        if sequences != NULL:
            put_literal(output, SEQUENCE)
            put_number(output, later_sequence(sequences, source.offsets[index]))
        put_literal(output, TIMESTAMP)
        put_number(output, source.timestamps[index])
        put(output, kind, kind_size)
        put_time(output, source.timestamps[index])
        put_literal(output, KEY)
        status = put_field(source, source.key_starts[index], source.key_lengths[index], output, KEY_ENCODING)
        if status != DONE:
            return status
        put_literal(output, VALUE)
        status = put_field(source, source.value_starts[index], source.value_lengths[index], output, VALUE_ENCODING)
        if status != DONE:
            return status
        put_literal(output, HEADERS)
        if source.header_starts[index] >= 0:
            status = put_headers(source, source.header_starts[index], output)
            if status != DONE:
                return status
        put_literal(output, LINE_END)
    if starts != NULL:
        starts[stop - first] = output.size
    return DONE


cdef inline long long later_sequence(const Sequences* sequences, long long offset) noexcept nogil:
    """See :func:`kfs.format.batch_header.later_sequence`."""
    cdef long long sequence
    if sequences.base_sequence == -1:
        return -1
    sequence = sequences.base_sequence + (offset - sequences.base_offset)
    return sequence if sequence <= 0x7FFFFFFF else sequence - 0x80000000LL


cdef Py_ssize_t guess_of(const Source* source, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t fixed) noexcept nogil:
    """Return the estimated size of the lines."""
    cdef Py_ssize_t room = (fixed + LINE_OVERHEAD) * (stop - first)
    if first == 0 and stop == source.count:
        room += source.size + source.size // 4
    return room


cdef struct Date:
    int year
    int month
    int day


cdef Date civil_from_days(long long days) noexcept nogil:
    """Convert days since 1970 to a date of the Gregorian calendar; counts in eras of 400 years that begin in March."""
    cdef Date date
    cdef long long shifted = days + 719468
    cdef int era = <int>((shifted if shifted >= 0 else shifted - 146096) // 146097)
    cdef int day_of_era = <int>(shifted - <long long>era * 146097)
    cdef int year = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    cdef int day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    cdef int month = (5 * day_of_year + 2) // 153  # from March
    date.day = day_of_year - (153 * month + 2) // 5 + 1
    date.month = month + 3 if month < 10 else month - 9
    date.year = year + era * 400 + (date.month <= 2)
    return date


cdef inline bint has_time(long long timestamp) noexcept nogil:
    return timestamp != NO_TIME and FIRST_TIME <= timestamp <= LAST_TIME


cdef inline void put_time(Output* output, long long timestamp) noexcept nogil:
    cdef byte* out = output.data + output.size
    cdef long long days
    cdef int rest
    cdef Date date
    if not has_time(timestamp):
        put_literal(output, "null")
        return
    days = timestamp // DAY
    rest = <int>(timestamp - days * DAY)
    if rest < 0:  # C rounds towards zero
        days -= 1
        rest += <int>DAY
    date = civil_from_days(days)
    memcpy(out, b'"0000-00-00T00:00:00.000Z"', 26)
    put_pair(out + 1, date.year // 100)
    put_pair(out + 3, date.year % 100)
    put_pair(out + 6, date.month)
    put_pair(out + 9, date.day)
    put_pair(out + 12, rest // 3_600_000)
    put_pair(out + 15, rest // 60_000 % 60)
    put_pair(out + 18, rest // 1000 % 60)
    out[21] = <byte>(c"0" + rest % 1000 // 100)
    put_pair(out + 22, rest % 100)
    output.size += 26


cdef Status put_field(
    const Source* source, Py_ssize_t start, Py_ssize_t length, Output* output, const char* encoding
) noexcept nogil:
    """Write bytes as a JSON string (followed by ``encoding`` for base64) or null; reserve room for the line's rest."""
    cdef const byte* text = source.data + start
    cdef Py_ssize_t size = -1
    cdef Py_ssize_t room
    if length < 0:
        put_literal(output, "null")
        return DONE
    if start < 0 or start > source.size or length > source.size - start:
        return OUTSIDE
    room = length * MOST_ESCAPED if length < MEASURED_BYTES else text_size(text, length)
    if not reserve(output, (room if room >= 0 else base64_size(length)) + LINE_OVERHEAD):
        return NO_MEMORY
    put_literal(output, '"')
    if room >= 0:
        size = write_text(output.data + output.size, text, length)
    if size >= 0:
        output.size += size
        put_literal(output, '"')
    else:
        write_base64(output.data + output.size, text, length)
        output.size += base64_size(length)
        put_literal(output, '"')
        put_literal(output, encoding)
    return DONE


cdef Status put_headers(const Source* source, Py_ssize_t position, Output* output) noexcept nogil:
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
        put_literal(output, HEADER_KEY)
        if not next_header(source, &position, &header):
            return OUTSIDE
        status = put_field(source, header.key_start, header.key_length, output, KEY_ENCODING)
        if status != DONE:
            return status
        put_literal(output, VALUE)
        status = put_field(source, header.value_start, header.value_length, output, HEADER_ENCODING)
        if status != DONE:
            return status
        put_literal(output, "}")
    return DONE


cdef Py_ssize_t write_text(byte* out, const byte* text, Py_ssize_t size) noexcept nogil:
    """Write the inside of a JSON string; return its size, or -1 if the text isn't UTF-8."""
    cdef byte* begin = out
    cdef Py_ssize_t at = 0
    cdef size_t written
    cdef int length
    cdef unsigned int character
    while at < size:
        at += json_write_plain(out, text + at, size - at, &written)
        out += written
        while at < size and not json_is_plain(text[at]):  # characters outside ASCII usually come in groups
            length = read_character(text + at, size - at, &character)
            if length == 0:
                return -1
            if is_control(character):
                out[0] = c"\\"
                out[1] = c"u"
                out[2] = HEX[character >> 12]
                out[3] = HEX[character >> 8 & 15]
                out[4] = HEX[character >> 4 & 15]
                out[5] = HEX[character & 15]
                out += 6
                at += length
            else:
                while length > 0:
                    length -= 1
                    out[0] = text[at]
                    out += 1
                    at += 1
    return out - begin


cdef Py_ssize_t text_size(const byte* text, Py_ssize_t size) noexcept nogil:
    """Return what :func:`write_text` would return."""
    cdef size_t written = 0
    cdef Py_ssize_t at = 0
    cdef int length
    cdef unsigned int character
    while at < size:
        at += json_measure_plain(text + at, size - at, &written)
        while at < size and not json_is_plain(text[at]):
            length = read_character(text + at, size - at, &character)
            if length == 0:
                return -1
            written += 6 if is_control(character) else length
            at += length
    return written


cdef inline bint is_control(unsigned int character) noexcept nogil:
    """Whether a character must be escaped; see :mod:`kfs.render.quoting`."""
    if character < 0x20 or 0x7F <= character < 0xA0 or character == 0x061C:
        return True
    if character < 0x200E or character > 0x2069:
        return False
    return character <= 0x200F or 0x2028 <= character <= 0x202E or character >= 0x2066


cdef inline Py_ssize_t base64_size(Py_ssize_t size) noexcept nogil:
    return (size + 2) // 3 * 4


cdef void write_base64(byte* out, const byte* data, Py_ssize_t size) noexcept nogil:
    cdef unsigned int bits
    while size >= 3:
        bits = data[0] << 16 | data[1] << 8 | data[2]
        out[0] = BASE64[bits >> 18]
        out[1] = BASE64[bits >> 12 & 63]
        out[2] = BASE64[bits >> 6 & 63]
        out[3] = BASE64[bits & 63]
        out += 4
        data += 3
        size -= 3
    if size:
        bits = data[0] << 16 | (data[1] << 8 if size == 2 else 0)
        out[0] = BASE64[bits >> 18]
        out[1] = BASE64[bits >> 12 & 63]
        out[2] = BASE64[bits >> 6 & 63] if size == 2 else c"="
        out[3] = c"="


cdef Status measure_lines(const Source* source, Py_ssize_t fixed, long long* starts) noexcept nogil:
    """Compute the ``starts`` that :func:`write_lines` would give for all records."""
    cdef Py_ssize_t index, size, field
    cdef long long total = 0
    fixed += strlen(TIMESTAMP) + strlen(KEY) + strlen(VALUE) + strlen(HEADERS) + strlen(LINE_END)
    for index in range(source.count):
        starts[index] = total
        size = fixed + number_size(source.offsets[index]) + number_size(source.timestamps[index])
        size += 26 if has_time(source.timestamps[index]) else 4
        field = field_size(source, source.key_starts[index], source.key_lengths[index], strlen(KEY_ENCODING))
        if field < 0:
            return OUTSIDE
        size += field
        field = field_size(source, source.value_starts[index], source.value_lengths[index], strlen(VALUE_ENCODING))
        if field < 0:
            return OUTSIDE
        size += field
        if source.header_starts[index] >= 0:
            field = headers_size(source, source.header_starts[index])
            if field < 0:
                return OUTSIDE
            size += field
        total += size
    starts[source.count] = total
    return DONE


cdef inline int number_size(long long number) noexcept nogil:
    cdef unsigned long long rest = <unsigned long long>number
    cdef int size = 1
    if number < 0:
        size = 2
        rest = 0 - rest
    while rest >= 10:
        rest //= 10
        size += 1
    return size


cdef Py_ssize_t field_size(
    const Source* source, Py_ssize_t start, Py_ssize_t length, Py_ssize_t encoding_size
) noexcept nogil:
    """Return the number of bytes that :func:`put_field` writes, -1 if the field is outside the buffer."""
    cdef Py_ssize_t size
    if length < 0:
        return 4
    if start < 0 or start > source.size or length > source.size - start:
        return -1
    size = text_size(source.data + start, length)
    return size + 2 if size >= 0 else base64_size(length) + 2 + encoding_size


cdef Py_ssize_t headers_size(const Source* source, Py_ssize_t position) noexcept nogil:
    cdef int count
    cdef Header header
    cdef Py_ssize_t size, key, value
    if not read_header_count(source, &position, &count):
        return -1
    size = count - 1 if count else 0  # commas
    while count > 0:
        count -= 1
        if not next_header(source, &position, &header):
            return -1
        key = field_size(source, header.key_start, header.key_length, strlen(KEY_ENCODING))
        value = field_size(source, header.value_start, header.value_length, strlen(HEADER_ENCODING))
        if key < 0 or value < 0:
            return -1
        size += strlen(HEADER_KEY) + key + strlen(VALUE) + value + 1
    return size


#: The ways to write text: byte by byte, or with SIMD instructions, the fastest last.
WAYS = (JSON_BYTES, JSON_BY_SHUFFLE, JSON_BY_COMPRESS)


def write_by(int most):
    """Choose the fastest way of writing text that this processor has, up to ``most`` of :data:`WAYS`; return it."""
    return json_text_use(most)


write_by(JSON_BY_COMPRESS)
