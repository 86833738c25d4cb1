"""The Arrow columns of records, and the buffers of each. Nothing here needs pyarrow.

The first eight are those of Spark's Kafka source, in its order (``KafkaRecordToRowConverter.scala``); the last of them,
the headers, is optional. The other columns tell where the record was found, and have fields of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from kfs.format.layout import NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE


class ColumnLayout(Enum):
    """The layout of a column's values, which determines its buffers, in the order of Arrow's C data interface."""

    BINARY = auto()  # validity, offsets (int32), bytes
    STRING = auto()  # as BINARY
    INT64 = auto()  # validity, values; the buffers of all down to BOOLEAN
    INT32 = auto()
    TIMESTAMP = auto()  # microseconds, int64
    CODEC = auto()  # int8, an index into the codec names
    BOOLEAN = auto()  # bits
    HEADERS = (
        auto()
    )  # validity, offsets; of the names: validity, offsets, bytes; of the values: validity, offsets, bytes


#: The number of buffers of a column of each kind.
BUFFERS: Final = dict.fromkeys(ColumnLayout, 2) | {
    ColumnLayout.BINARY: 3,
    ColumnLayout.STRING: 3,
    ColumnLayout.HEADERS: 8,
}


class Column(Enum):
    """A column with its name and its kind."""

    KEY = ("key", ColumnLayout.BINARY)
    VALUE = ("value", ColumnLayout.BINARY)
    TOPIC = ("topic", ColumnLayout.STRING)
    PARTITION = ("partition", ColumnLayout.INT32)
    OFFSET = ("offset", ColumnLayout.INT64)
    TIMESTAMP = ("timestamp", ColumnLayout.TIMESTAMP)
    TIMESTAMP_TYPE = ("timestampType", ColumnLayout.INT32)
    HEADERS = ("headers", ColumnLayout.HEADERS)
    TIMESTAMP_MILLIS = ("timestampMillis", ColumnLayout.INT64)
    SEGMENT = ("segment", ColumnLayout.INT64)
    POSITION = ("position", ColumnLayout.INT64)
    BASE_OFFSET = ("baseOffset", ColumnLayout.INT64)
    LEADER_EPOCH = ("leaderEpoch", ColumnLayout.INT32)
    PRODUCER_ID = ("producerId", ColumnLayout.INT64)
    PRODUCER_EPOCH = ("producerEpoch", ColumnLayout.INT32)
    SEQUENCE = ("sequence", ColumnLayout.INT32)
    IS_TRANSACTIONAL = ("isTransactional", ColumnLayout.BOOLEAN)
    CODEC = ("codec", ColumnLayout.CODEC)
    MAGIC = ("magic", ColumnLayout.INT32)

    def __init__(self, label: str, kind: ColumnLayout) -> None:
        self.label = label
        self.kind = kind


_ALL: Final = tuple(Column)
#: The columns of Spark's Kafka source, without and with ``includeHeaders``.
SPARK_COLUMNS: Final = _ALL[:7]
SPARK_COLUMNS_WITH_HEADERS: Final = _ALL[:8]
_BY_LABEL: Final = {column.label: column for column in Column}
#: The columns that need the batch header of a record.
_OF_BATCH: Final = frozenset(_ALL[_ALL.index(Column.POSITION) :])
#: The columns that need no decoded record, only the batch header or position.
_BY_HEADER: Final = _OF_BATCH - {Column.SEQUENCE} | {
    *(Column.TOPIC, Column.PARTITION, Column.SEGMENT, Column.TIMESTAMP_TYPE),
}


class BatchFields(NamedTuple):
    """The fields that all records of a batch share; the requested ones become columns.

    ``position`` is the batch's byte position in its file. A message in format v0 or v1 is its own batch.
    """

    position: int = -1
    base_offset: int = -1
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: int = 0
    codec: int = 0
    magic: int = 0


def columns_named(names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns with these names, in the given order.

    Raises:
        ValueError: a name is unknown or occurs twice, or there are no names.
    """
    columns: list[Column] = []
    for name in names:
        column = _BY_LABEL.get(name)
        if column is None:
            raise ValueError(f"no column {name!r}, there are: {', '.join(_BY_LABEL)}")
        if column in columns:
            raise ValueError(f"column {name!r} twice")
        columns.append(column)
    if not columns:
        raise ValueError(f"no columns given, there are: {', '.join(_BY_LABEL)}")
    return tuple(columns)


def needs_batches(columns: Iterable[Column]) -> bool:
    """Whether any of the columns needs the batch header, or its position."""
    return not _OF_BATCH.isdisjoint(columns)


def come_from_headers(columns: Iterable[Column]) -> bool:
    """Whether the columns can be made without decoding the records."""
    return _BY_HEADER.issuperset(columns)
