"""Converts Arrow buffers into record batches without copying. This module needs pyarrow."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

try:
    import pyarrow as pa
except ImportError as error:
    raise ModuleNotFoundError(f'Arrow needs pyarrow ({error}): pip install "kfs[arrow]"', name="pyarrow") from error

from kfs.format.codecs import Codec
from kfs.render.arrow_builder import ArrowBuffers, Buffers
from kfs.render.arrow_columns import BUFFERS, Column, ColumnLayout

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES: Final = {
    ColumnLayout.BINARY: pa.binary(),
    ColumnLayout.STRING: pa.string(),
    ColumnLayout.INT64: pa.int64(),
    ColumnLayout.INT32: pa.int32(),
    ColumnLayout.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnLayout.CODEC: pa.dictionary(pa.int8(), pa.string()),
    ColumnLayout.BOOLEAN: pa.bool_(),
    ColumnLayout.HEADERS: pa.list_(_HEADER),
}


def _codecs() -> pa.Array:
    """Return the codec names as an array, built from buffers because ``pa.array`` imports pandas if it is installed."""
    names = [codec.label.encode() for codec in Codec]
    ends = array("i", accumulate(map(len, names), initial=0))
    return pa.Array.from_buffers(pa.string(), len(names), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(names))])


_CODECS: Final = _codecs()


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of these columns; all are nullable, as in the schema of Spark's Kafka source."""
    return pa.schema([(column.label, _TYPES[column.kind]) for column in columns])


def reader_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a reader of batches with this schema."""
    return pa.RecordBatchReader.from_batches(schema, batches)


def table_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return a table of batches with this schema."""
    return pa.Table.from_batches(batches, schema)


def record_batch(schema: pa.Schema, columns: Sequence[Column], built: ArrowBuffers) -> pa.RecordBatch:
    """Return the buffers of these columns as a record batch with this schema."""
    arrays: list[pa.Array] = []
    at = 0
    for column in columns:
        count = BUFFERS[column.kind]
        buffers = built.buffers[at : at + count]
        at += count
        arrays.append(_array_of(column.kind, built.rows, buffers))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array_of(kind: ColumnLayout, rows: int, buffers: Buffers) -> pa.Array:
    if kind is ColumnLayout.HEADERS:
        ends = buffers[1]
        assert ends is not None
        count = ends.cast("B").cast("i")[rows]
        names = _plain_array(pa.string(), count, buffers[2:5])
        values = _plain_array(pa.binary(), count, buffers[5:8])
        headers = pa.Array.from_buffers(_HEADER, count, [None], children=[names, values])
        return pa.Array.from_buffers(_TYPES[kind], rows, _arrow_buffers(buffers[:2]), children=[headers])
    if kind is ColumnLayout.CODEC:
        indexes = _plain_array(pa.int8(), rows, buffers)
        return pa.DictionaryArray.from_arrays(indexes, _CODECS, safe=False)
    return _plain_array(_TYPES[kind], rows, buffers)


def _plain_array(of_type: pa.DataType, rows: int, buffers: Buffers) -> pa.Array:
    return pa.Array.from_buffers(of_type, rows, _arrow_buffers(buffers))


def _arrow_buffers(buffers: Buffers) -> list[pa.Buffer | None]:
    return [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
