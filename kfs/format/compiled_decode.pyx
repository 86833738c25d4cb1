# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled decoding of batches to columns, equivalent to :mod:`kfs.format.decode` and :mod:`kfs.format.scan`.

It processes whole buffers with the GIL released. It checks every length and count against the available bytes before
use. On a mismatch it doesn't produce an error itself, but falls back to the Python decoder, whose errors are then
raised.
"""

from cpython.array cimport array, clone, resize
from libc.stdlib cimport free, realloc

from kfs.errors import CorruptData
from kfs.format.batch_table import BatchTable
from kfs.format.codecs import decompress
from kfs.format.columns import RecordColumns
from kfs.format.record import TimestampType

cdef array INT64 = array("q")
cdef array INT32 = array("i")

cdef object CREATE_TIME = TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


include "compiled_layout.pxi"
include "compiled_batches.pxi"
include "compiled_messages.pxi"


cdef class Columns:
    """The columns of records of one timestamp type in a buffer, under construction; ``filled`` rows are set."""

    def __cinit__(self, bytes buffer, timestamp_type, Py_ssize_t count):
        self.buffer = buffer
        self.timestamp_type = timestamp_type
        self.offsets = clone(INT64, count, False)
        self.timestamps = clone(INT64, count, False)
        self.key_starts = clone(INT32, count, False)
        self.key_lengths = clone(INT32, count, False)
        self.value_starts = clone(INT32, count, False)
        self.value_lengths = clone(INT32, count, False)
        self.header_starts = clone(INT32, count, False)
        self.fields.offsets = self.offsets.data.as_longlongs
        self.fields.timestamps = self.timestamps.data.as_longlongs
        self.fields.key_starts = self.key_starts.data.as_ints
        self.fields.key_lengths = self.key_lengths.data.as_ints
        self.fields.value_starts = self.value_starts.data.as_ints
        self.fields.value_lengths = self.value_lengths.data.as_ints
        self.fields.header_starts = self.header_starts.data.as_ints
        self.filled = 0

    cdef bint fill(self, const byte* data, Py_ssize_t position, Py_ssize_t end, const Batch* batch) noexcept nogil:
        """Append the records of a batch from ``position`` to ``end``; return False if they don't match the batch."""
        if not parse_records(data, position, end, batch, True, &self.fields, self.filled, NULL):
            return False
        self.filled += batch.count
        return True

    cdef bint fill_messages(self, const byte* data, Py_ssize_t end, int magic, bint is_inner) noexcept nogil:
        """Set all rows to the messages in ``data``; return False if it isn't valid, or an inner message is broken."""
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
            self.fields.offsets[row] = message.offset
            self.fields.timestamps[row] = message.timestamp
            self.fields.key_starts[row] = <int>message.key_start
            self.fields.key_lengths[row] = max(message.key_length, -1)
            self.fields.value_starts[row] = <int>message.value_start
            self.fields.value_lengths[row] = max(message.value_length, -1)
            self.fields.header_starts[row] = -1
            at = message.end
            row += 1
        self.filled = row
        return True

    cdef bint make_absolute(self, int magic, long long wrapper_offset) noexcept nogil:
        """Make the offsets inside a wrapper absolute (``_MessageSet``); return False if they are impossible."""
        cdef long long* offsets = self.fields.offsets
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

    cdef object finish(self):
        """Return the filled rows."""
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
            self.buffer,
            self.offsets,
            self.timestamps,
            self.timestamp_type,
            self.key_starts,
            self.key_lengths,
            self.value_starts,
            self.value_lengths,
            self.header_starts,
        )


cdef class CompiledDecoder:
    """The compiled decoder, available if kfs was installed from a wheel or with a compiler."""

    name = "compiled"

    def scan(
        self,
        bytes buffer not None,
        Py_ssize_t at,
        long long position,
        long long after,
        long long limit,
        long long max_size,
    ):
        """See :meth:`kfs.format.decoders.BlockDecoder.scan`."""
        cdef const byte* data = buffer
        cdef Py_ssize_t end = len(buffer)
        cdef Batch* rows = NULL
        cdef Py_ssize_t count
        if at < 0 or at > end:
            raise IndexError("at")
        try:
            with nogil:
                count = scan_rows(data, at, end, after, limit, max_size, &rows)
            if count < 0:
                raise MemoryError
            return table_of(buffer, position - at, rows, count)
        finally:
            free(rows)

    def decode(self, header, bytes data not None, limit):
        """See :meth:`kfs.format.decoders.BlockDecoder.decode`."""
        cdef Batch batch
        cdef Columns columns
        if header.magic == MAGIC_V2:
            batch.at = 0
            batch.size = len(data)
            batch.attributes = header.attributes
            batch.base_offset = header.base_offset
            batch.last_offset = header.last_offset
            batch.count = header.record_count
            batch.base_timestamp = header.base_timestamp
            batch.max_timestamp = header.max_timestamp
            batch.producer_id = header.producer_id
            batch.leader_epoch = header.leader_epoch
            columns = columns_of_batch(data, &batch, limit)
        elif header.codec_id:
            columns = columns_of_wrapper(header, data, limit)
        else:
            columns = columns_of_messages(data, header.magic, None, header.timestamp_type)
        return decoded_in_python(header, data, limit) if columns is None else columns.finish()

    def decode_rows(self, table, Py_ssize_t first, Py_ssize_t stop, limit):
        """See :meth:`kfs.format.decoders.BlockDecoder.decode_rows`."""
        cdef Py_ssize_t rows = stop - first
        cdef Columns columns = columns_of_rows(
            table.buffer, table.positions[first] - table.buffer_position, limit, &rows
        )
        if columns is None:
            return decoded_in_python(table.header(first), table.data(first), limit), first + 1
        return columns.finish(), first + rows

    def count_records(self, table, Py_ssize_t first, Py_ssize_t stop, limit, bint exact_timestamps=False):
        """Decode the batch at ``at``, and the following ones that can share its columns.

        It decodes at most ``rows`` batches, and sets ``rows`` to their number. It returns None if the records of the
        first don't match its header, and raises the errors of :meth:`CompiledDecoder.decode`.
        """
        cdef bytes buffer = table.buffer
        cdef const byte* data = buffer
        cdef Py_ssize_t end = len(buffer)
        cdef Py_ssize_t at = table.positions[first] - table.buffer_position
        cdef Py_ssize_t left = stop - first
        cdef long long messages = 0
        cdef Times times
        cdef Batch batch
        if at < 0 or left < 0:
            raise IndexError("first")
        while True:
            with nogil:
                messages += count_uncompressed(data, &at, end, &left, exact_timestamps)
            if not left or not read_batch(data, at, end, &batch) or batch.size > end - at:
                break
            if not batch.attributes & CODEC_MASK or not are_records(buffer, &batch, limit, &times):
                break
            if exact_timestamps and not is_latest(&batch, &times):
                break
            messages += messages_of(&batch)
            at += batch.size
            left -= 1
        return messages, stop - left

    def first_before(self, table, Py_ssize_t first, Py_ssize_t stop, limit, before):
        """See :meth:`kfs.format.decode.BlockDecoder.first_before`."""
        cdef bytes buffer = table.buffer
        cdef Py_ssize_t row
        cdef Py_ssize_t at = table.positions[first] - table.buffer_position
        cdef long long earliest = max(MIN_INT64, min(before, MAX_INT64))
        cdef Times times
        cdef Batch batch
        if at < 0:
            raise IndexError("first")
        for row in range(first, stop):
            if not read_batch(buffer, at, len(buffer), &batch) or batch.size > len(buffer) - at:
                return row
            if not are_records(buffer, &batch, limit, &times) or times.earliest < earliest:
                return row
            at += batch.size
        return stop

    def scan_messages(self, bytes buffer not None, Py_ssize_t at, Py_ssize_t end, header, long long last, long long limit):
        """See :meth:`kfs.format.decoders.BlockDecoder.scan_messages`."""
        cdef const byte* data = buffer
        cdef int magic = header.magic
        cdef int attributes = header.attributes
        cdef long long latest = NO_TIMESTAMP
        if not 0 <= at <= end <= len(buffer):
            raise IndexError("at")
        with nogil:
            scan_messages(data, &at, end, magic, attributes, &last, limit, &latest)
        return at, last, latest


cdef decoded_in_python(header, data, limit):
    """Decode a batch that the code here gave up on."""
    from kfs.format.decode import PythonDecoder

    return PythonDecoder().decode(header, data, limit)


cdef Columns columns_of_rows(bytes buffer, Py_ssize_t at, limit, Py_ssize_t* rows):
    """Decode the batch at ``at`` and of those after it the ones that can share its columns.

    That are at most ``rows`` batches, which becomes how many they were. None where the records of the first aren't what
    its header says; raises what :meth:`CompiledDecoder.decode` does.
    """
    cdef Batch batch
    if at < 0 or rows[0] < 1 or not read_batch(buffer, at, len(buffer), &batch) or batch.size > len(buffer) - at:
        return None
    if batch.attributes & CODEC_MASK:
        rows[0] = 1
        return columns_of_batch(buffer, &batch, limit)
    return columns_of_uncompressed(buffer, &batch, rows)


cdef Columns columns_of_batch(bytes data, const Batch* batch, limit):
    """Decode the batch at ``batch.at`` in ``data``; return None if its records don't match its header."""
    cdef bytes buffer = data
    cdef Py_ssize_t start = batch.at + BATCH_OVERHEAD
    cdef Py_ssize_t end = batch.at + batch.size
    cdef const byte* records
    cdef bint is_sound
    cdef Columns columns
    if batch.attributes & CODEC_MASK > MOST_CODEC:
        return None
    if batch.attributes & CODEC_MASK:
        buffer = decompressed(data, batch, limit)
        start, end = 0, len(buffer)
    if end > MAX_INT32 or not has_room(batch, end - start):
        return None
    columns = Columns(buffer, timestamp_type_of(batch), batch.count)
    records = buffer
    with nogil:
        is_sound = columns.fill(records, start, end, batch)
    return columns if is_sound else None


cdef bint are_records(bytes data, const Batch* batch, limit, Times* times) except -1:
    """Whether a batch has the records that its header claims; set ``times`` if it has."""
    cdef bytes buffer = data
    cdef Py_ssize_t start = batch.at + BATCH_OVERHEAD
    cdef Py_ssize_t end = batch.at + batch.size
    cdef const byte* records
    cdef bint is_sound
    if batch.attributes & CODEC_MASK > MOST_CODEC:
        return False
    if batch.attributes & CODEC_MASK:
        try:
            buffer = decompressed(data, batch, limit)
        except CorruptData:
            return False
        start, end = 0, len(buffer)
    records = buffer
    if not has_room(batch, end - start):
        return False
    with nogil:
        is_sound = parse_records(records, start, end, batch, False, NULL, 0, times)
    return is_sound


cdef bytes decompressed(bytes data, const Batch* batch, limit):
    """Return the records of a compressed batch; an empty batch has no stream (``MemoryRecords.writeEmptyHeader``)."""
    if batch.count == 0:
        return b""
    body = memoryview(data)[batch.at + BATCH_OVERHEAD : batch.at + batch.size]
    return decompress(batch.attributes & CODEC_MASK, body, magic=MAGIC_V2, limit=limit)


cdef Columns columns_of_uncompressed(bytes buffer, const Batch* first, Py_ssize_t* rows):
    """Decode at most ``rows`` uncompressed batches like ``first``, starting there, and set ``rows`` to their number.

    It stops at a batch whose records don't match its header, and returns None if that is the first.
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
        records = claimed_records(data, first, end, &most)
    columns = Columns(buffer, timestamp_type_of(first), records)
    with nogil:
        batch = first[0]
        while done < most and columns.fill(data, batch.at + BATCH_OVERHEAD, batch.at + batch.size, &batch):
            done += 1
            read_batch(data, batch.at + batch.size, end, &batch)
    rows[0] = done
    return columns if done else None


cdef object timestamp_type_of(const Batch* batch):
    return LOG_APPEND_TIME if batch.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME


cdef Columns columns_of_wrapper(header, bytes data, limit):
    """Decode a compressed message; return None if it or an inner message is broken."""
    cdef Message wrapper
    if not read_message(data, 0, len(data), header.magic, &wrapper) or wrapper.value_length < 0:
        return None
    if wrapper.end != len(data) or header.codec_id > MOST_CODEC:
        return None
    inner = decompress(header.codec_id, memoryview(data)[wrapper.value_start :], magic=header.magic, limit=limit)
    return columns_of_messages(inner, header.magic, header, header.timestamp_type)


cdef Columns columns_of_messages(bytes buffer, int magic, wrapper, timestamp_type):
    """Decode consecutive uncompressed messages, which are inside ``wrapper`` unless that is None."""
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
    columns = Columns(buffer, timestamp_type, count)
    with nogil:
        is_sound = columns.fill_messages(data, end, magic, is_inner)
    if not is_sound:
        return None
    if is_inner:
        if not columns.make_absolute(magic, wrapper.last_offset):
            return None
        if timestamp_type is LOG_APPEND_TIME:
            columns.timestamps = array("q", [wrapper.max_timestamp]) * count
    return columns


cdef object table_of(bytes buffer, long long buffer_position, const Batch* rows, Py_ssize_t count):
    cdef array positions = clone(INT64, count, False)
    cdef array sizes = clone(INT64, count, False)
    cdef array attributes = clone(INT32, count, False)
    cdef array base_offsets = clone(INT64, count, False)
    cdef array last_offsets = clone(INT64, count, False)
    cdef array counts = clone(INT32, count, False)
    cdef array base_timestamps = clone(INT64, count, False)
    cdef array max_timestamps = clone(INT64, count, False)
    cdef array producer_ids = clone(INT64, count, False)
    cdef array leader_epochs = clone(INT32, count, False)
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
        producer_ids.data.as_longlongs[row] = rows[row].producer_id
        leader_epochs.data.as_ints[row] = rows[row].leader_epoch
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
        producer_ids,
        leader_epochs,
    )


def crc32c(const unsigned char[::1] data):
    """Return the CRC-32C (Castagnoli) of ``data``."""
    cdef const byte* start = NULL if data.shape[0] == 0 else <const byte*>&data[0]
    cdef Py_ssize_t size = data.shape[0]
    cdef unsigned int crc
    with nogil:
        crc = crc32c_of(start, size)
    return crc


crc_init()
