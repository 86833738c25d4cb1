"""Shared by the compiled renderers: the output buffer, access to the columns, and decoding of UTF-8."""

from cpython.array cimport array

from kfs.format.compiled_decode cimport byte, read_varint

cdef extern from "output.h" nogil:
    ctypedef struct Output:
        byte* data
        Py_ssize_t size
        Py_ssize_t room
        bint is_lent

    void clear "output_clear"(Output* output)
    bint reserve "output_reserve"(Output* output, Py_ssize_t more)
    void put "output_put"(Output* output, const byte* text, Py_ssize_t size)
    void put_literal "output_literal"(Output* output, const char* text)
    void put_pair "output_pair"(byte* out, int number)
    void put_number "output_number"(Output* output, long long number)


cdef struct Source:
    const byte* data
    Py_ssize_t size
    Py_ssize_t count
    const long long* offsets
    const long long* timestamps
    const int* key_starts
    const int* key_lengths
    const int* value_starts
    const int* value_lengths
    const int* header_starts


cdef inline int open_source(columns, Source* source) except -1:
    """Fill ``source``; its pointers stay valid until the columns change."""
    cdef bytes data = columns.buffer
    cdef Py_ssize_t count = len(columns.offsets)
    source.data = data
    source.size = len(data)
    source.count = count
    source.offsets = int64s(columns.offsets, count)
    source.timestamps = int64s(columns.timestamps, count)
    source.key_starts = int32s(columns.key_starts, count)
    source.key_lengths = int32s(columns.key_lengths, count)
    source.value_starts = int32s(columns.value_starts, count)
    source.value_lengths = int32s(columns.value_lengths, count)
    source.header_starts = int32s(columns.header_starts, count)
    return 0


cdef inline const long long* int64s(array column, Py_ssize_t count) except? NULL:
    if column.ob_descr.typecode != c"q" or len(column) != count:
        raise ValueError("columns of different lengths")
    return column.data.as_longlongs


cdef inline const int* int32s(array column, Py_ssize_t count) except? NULL:
    if column.ob_descr.typecode != c"i" or len(column) != count:
        raise ValueError("columns of different lengths")
    return column.data.as_ints


cdef inline int read_character(const byte* text, Py_ssize_t size, unsigned int* character) noexcept nogil:
    """Decode a UTF-8 character strictly; return its number of bytes, 0 if it is invalid."""
    cdef unsigned int first = text[0]
    if first < 0x80:
        character[0] = first
        return 1
    if first < 0xE0:
        if first < 0xC2 or size < 2 or text[1] >> 6 != 2:
            return 0
        character[0] = (first & 0x1F) << 6 | (text[1] & 0x3F)
        return 2
    if first < 0xF0:
        if size < 3 or text[1] >> 6 != 2 or text[2] >> 6 != 2:
            return 0
        character[0] = (first & 0x0F) << 12 | (text[1] & 0x3F) << 6 | (text[2] & 0x3F)
        # Invalid: characters that fit two bytes, and the surrogates of UTF-16.
        return 0 if character[0] < 0x800 or character[0] >> 11 == 0x1B else 3
    if size < 4 or text[1] >> 6 != 2 or text[2] >> 6 != 2 or text[3] >> 6 != 2:
        return 0
    character[0] = (first & 0x0F) << 18 | (text[1] & 0x3F) << 12 | (text[2] & 0x3F) << 6 | (text[3] & 0x3F)
    return 4 if first <= 0xF4 and 0x10000 <= character[0] <= 0x10FFFF else 0


cdef struct Header:
    Py_ssize_t key_start
    int key_length
    Py_ssize_t value_start
    int value_length  # -1: null


cdef inline bint read_header_count(const Source* source, Py_ssize_t* position, int* count) noexcept nogil:
    """Read the number of headers; return False if it is outside the buffer or negative."""
    return read_varint(source.data, position, source.size, count) and count[0] >= 0


cdef inline bint next_header(const Source* source, Py_ssize_t* position, Header* header) noexcept nogil:
    """Read the positions of a header's key and value; return False if one is outside the buffer."""
    if not read_varint(source.data, position, source.size, &header.key_length) or header.key_length < 0:
        return False
    if header.key_length > source.size - position[0]:
        return False
    header.key_start = position[0]
    position[0] += header.key_length
    if not read_varint(source.data, position, source.size, &header.value_length):
        return False
    if header.value_length > source.size - position[0]:
        return False
    header.value_start = position[0]
    if header.value_length > 0:
        position[0] += header.value_length
    return True
