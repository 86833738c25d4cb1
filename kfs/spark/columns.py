"""The columns of a DataFrame: the defaults of Spark's Kafka source, or those in a schema; and their Arrow form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kfs.errors import InvalidOption
from kfs.render.arrow_columns import (
    SPARK_COLUMNS,
    SPARK_COLUMNS_WITH_HEADERS,
    Column,
    ColumnLayout,
    columns_named,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Spark's type of each kind of column (``simpleString``). Codecs are text, by name.
_TYPES: Final = {
    ColumnLayout.BINARY: "binary",
    ColumnLayout.STRING: "string",
    ColumnLayout.INT64: "bigint",
    ColumnLayout.INT32: "int",
    ColumnLayout.TIMESTAMP: "timestamp",
    ColumnLayout.BOOLEAN: "boolean",
    ColumnLayout.CODEC: "string",
    ColumnLayout.HEADERS: "array<struct<key:string,value:binary>>",
}
_BY_NAME: Final = {column.label.lower(): column for column in Column}


def default_columns(names: str | None, *, include_headers: bool) -> tuple[Column, ...]:
    """Return the columns in option ``columns``, separated by commas; None: those of Spark's Kafka source.

    Raises:
        InvalidOption: there is no such column, or one occurs twice.
    """
    if names is None:
        return SPARK_COLUMNS_WITH_HEADERS if include_headers else SPARK_COLUMNS
    wanted = [name.strip() for name in names.split(",")]
    labels = [_BY_NAME[name.lower()].label if name.lower() in _BY_NAME else name for name in wanted if name]
    try:
        return columns_named(labels)
    except ValueError as error:
        raise InvalidOption(f"option 'columns': {error}") from None


def ddl_of(columns: Sequence[Column]) -> str:
    """Return the schema of columns as Spark's DDL."""
    return ", ".join(f"{column.label} {_TYPES[column.kind]}" for column in columns)


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """Return the columns of a schema, in its order.

    Raises:
        InvalidOption: there is no such column, one occurs twice, or it has another type.
    """
    columns = default_columns(",".join(schema.fieldNames()), include_headers=False)
    for column, field in zip(columns, schema.fields, strict=True):
        wanted, has = field.dataType.simpleString(), _TYPES[column.kind]
        if wanted != has:
            raise InvalidOption(f"column {column.label!r} is of type {has}, not {wanted}: cast it in the query")
    return columns


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the column names of a schema, and codecs as text.

    Raises:
        InvalidOption: a column that the schema declares NOT NULL has nulls.
    """
    import pyarrow as pa

    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if array.null_count and not field.nullable:
            raise InvalidOption(f"column {field.name!r} has nulls, and the schema says NOT NULL")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
