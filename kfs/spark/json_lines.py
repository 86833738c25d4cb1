"""Lines of JSON, from a mount or ``kfs cat``, converted to the rows of the data source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfs.render.arrow_builder import FIRST_MILLISECOND, LAST_MILLISECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The schema of the lines, for ``spark.read.schema(...).json(...)``.
JSON_SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp bigint, timestampType string, "
    "key string, keyEncoding string, value string, valueEncoding string, "
    "headers array<struct<key:string,keyEncoding:string,value:string,encoding:string>>"
)


def from_json_lines(lines: DataFrame, *, include_headers: bool = False) -> DataFrame:
    """Convert lines read with :data:`JSON_SCHEMA` to the columns and types of the data source."""
    from pyspark.sql import functions as f

    milliseconds = f.col("timestamp")
    timestamp = f.when(milliseconds.between(FIRST_MILLISECOND, LAST_MILLISECOND), f.timestamp_millis(milliseconds))
    kind = f.col("timestampType")
    columns = [
        _bytes(f.col("key"), f.col("keyEncoding")).alias("key"),
        _bytes(f.col("value"), f.col("valueEncoding")).alias("value"),
        f.col("topic"),
        f.col("partition"),
        f.col("offset"),
        timestamp.alias("timestamp"),
        f.when(kind == "CreateTime", 0).when(kind == "LogAppendTime", 1).otherwise(-1).alias("timestampType"),
    ]
    if include_headers:
        headers = f.transform(f.col("headers"), _header)
        columns.append(f.when(f.size(f.col("headers")) > 0, headers).alias("headers"))
    return lines.select(*columns)


def _bytes(text: Column, encoding: Column) -> Column:
    from pyspark.sql import functions as f

    return f.when(encoding == "base64", f.unbase64(text)).otherwise(text.cast("binary"))


def _header(header: Column) -> Column:
    """Return a header; a name that isn't UTF-8 gets replacement characters, as in Java."""
    from pyspark.sql import functions as f

    name = _bytes(header["key"], header["keyEncoding"]).cast("string")
    value = _bytes(header["value"], header["encoding"])
    return f.struct(f.make_valid_utf8(name).alias("key"), value.alias("value"))
