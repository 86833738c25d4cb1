"""Indexes of records as an array in C. Part of compiled_selection.pyx and of kfs/cat/compiled_fields.pyx."""

from cpython.array cimport array, clone

cdef array INT32 = array("i")


cdef array index_array(indexes):
    """Return a new int32 array of the indexes: of all records of a block, which are a range, without number objects."""
    cdef array rows
    cdef Py_ssize_t number
    cdef int first
    if not isinstance(indexes, range) or indexes.step != 1:
        return array("i", indexes)
    rows = clone(INT32, len(indexes), False)
    first = indexes.start
    for number in range(len(rows)):
        rows.data.as_ints[number] = first + <int>number
    return rows
