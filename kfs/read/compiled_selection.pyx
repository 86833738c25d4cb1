# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Selects records, and extracts their columns: the compiled equivalent of :class:`~kfs.read.selection.PythonRows`.

It checks the records of a block with the GIL released, except against several keys. The columns come from the decoder,
so their positions lie within the buffer.
"""

from cpython.array cimport array, clone, resize
from libc.string cimport memcmp

from kfs.format.columns import NO_FAULTS, RecordColumns
from kfs.format.layout import MAX_INT64

MIN_INT64 = -MAX_INT64 - 1

cdef array INT64 = array("q")

include "compiled_rows.pxi"

cdef extern from "find_text.h" nogil:
    bint has_text(const unsigned char* data, size_t size, const unsigned char* text, size_t text_size)


class CompiledRows:
    """See :class:`~kfs.read.selection.PythonRows`."""

    @staticmethod
    def wanted(columns, among, since, before, keys, text):
        """See :meth:`~kfs.read.selection.Rows.wanted`."""
        cdef array rows = index_array(among)
        cdef int* at = rows.data.as_ints
        cdef Py_ssize_t count = len(rows)
        if since is not None or before is not None:
            count = _of_times(columns.timestamps, at, count, since, before)
        if keys is not None:
            count = _with_keys(columns, at, count, keys)
        if text is not None:
            count = _with_text(columns, at, count, text)
        resize(rows, count)
        return rows

    @staticmethod
    def taken(columns, indexes):
        """See :meth:`~kfs.read.selection.Rows.taken`."""
        cdef array rows = indexes if isinstance(indexes, array) and indexes.typecode == "i" else array("i", indexes)
        faults = columns.faults and {
            number: columns.faults[index] for number, index in enumerate(rows) if index in columns.faults
        }
        return RecordColumns(
            columns.buffer,
            _taken_longs(columns.offsets, rows),
            _taken_longs(columns.timestamps, rows),
            columns.timestamp_type,
            _taken_ints(columns.key_starts, rows),
            _taken_ints(columns.key_lengths, rows),
            _taken_ints(columns.value_starts, rows),
            _taken_ints(columns.value_lengths, rows),
            _taken_ints(columns.header_starts, rows),
            faults or NO_FAULTS,
        )


cdef Py_ssize_t _of_times(array timestamps, int* rows, Py_ssize_t count, since, before):
    """Keep those of the first ``count`` rows whose timestamps are in the range; return their number."""
    cdef const long long* times = timestamps.data.as_longlongs
    cdef bint has_end = before is not None
    cdef long long first = MIN_INT64 if since is None else max(MIN_INT64, min(since, MAX_INT64))
    cdef long long last = -1 if before is None else max(-1, min(before - 1, MAX_INT64))
    cdef Py_ssize_t number
    cdef Py_ssize_t kept = 0
    cdef long long time
    if since is not None and since > MAX_INT64:
        return 0
    with nogil:
        for number in range(count):
            time = times[rows[number]]
            if time >= first and (not has_end or 0 <= time <= last):
                rows[kept] = rows[number]
                kept += 1
    return kept


cdef Py_ssize_t _with_keys(columns, int* rows, Py_ssize_t count, keys):
    """Keep the rows that have one of the keys; return their number."""
    cdef bytes buffer = columns.buffer
    cdef const unsigned char* data = buffer
    cdef array starts = columns.key_starts
    cdef array lengths = columns.key_lengths
    cdef const int* start = starts.data.as_ints
    cdef const int* length = lengths.data.as_ints
    cdef bytes key
    cdef const unsigned char* wanted
    cdef Py_ssize_t size, number
    cdef Py_ssize_t kept = 0
    cdef int row
    if len(keys) == 1:
        (key,) = keys
        wanted, size = key, len(key)
        with nogil:
            for number in range(count):
                row = rows[number]
                if length[row] == size and memcmp(data + start[row], wanted, size) == 0:
                    rows[kept] = row
                    kept += 1
        return kept
    sizes = frozenset(map(len, keys))
    for number in range(count):
        row = rows[number]
        if length[row] in sizes and buffer[start[row] : start[row] + length[row]] in keys:
            rows[kept] = row
            kept += 1
    return kept


cdef Py_ssize_t _with_text(columns, int* rows, Py_ssize_t count, bytes text):
    """Keep the rows whose value contains the text; return their number."""
    cdef bytes buffer = columns.buffer
    cdef const unsigned char* data = buffer
    cdef array starts = columns.value_starts
    cdef array lengths = columns.value_lengths
    cdef const int* start = starts.data.as_ints
    cdef const int* length = lengths.data.as_ints
    cdef const unsigned char* wanted = text
    cdef Py_ssize_t size = len(text)
    cdef Py_ssize_t number
    cdef Py_ssize_t kept = 0
    cdef int row
    with nogil:
        for number in range(count):
            row = rows[number]
            if length[row] >= size and has_text(data + start[row], length[row], wanted, size):
                rows[kept] = row
                kept += 1
    return kept


cdef array _taken_longs(array column, array rows):
    cdef array taken = clone(INT64, len(rows), False)
    cdef const int* at = rows.data.as_ints
    cdef const long long* values = column.data.as_longlongs
    cdef Py_ssize_t number
    for number in range(len(rows)):
        taken.data.as_longlongs[number] = values[at[number]]
    return taken


cdef array _taken_ints(array column, array rows):
    cdef array taken = clone(INT32, len(rows), False)
    cdef const int* at = rows.data.as_ints
    cdef const int* values = column.data.as_ints
    cdef Py_ssize_t number
    for number in range(len(rows)):
        taken.data.as_ints[number] = values[at[number]]
    return taken
