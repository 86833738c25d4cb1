"""The options of an export."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from kfs.errors import InvalidOption
from kfs.render.timestamps import parse_time
from kfs.spark.offset_limits import (
    EARLIEST,
    Earliest,
    GlobalTimestamp,
    GroupOffsets,
    OffsetLimit,
    named_end,
    named_group,
)
from kfs.spark.options import ReadOptions
from kfs.spark.paths import check_is_file, is_url
from kfs.spark.strategies import Matching, Strategy

#: The group in a dataset's own store.
DEFAULT_GROUP: Final = "export"
#: The directory for a dataset's own files: all readers ignore such a name.
_OWN_DIRECTORY: Final = "_kfs"
#: The format that needs only tasks of the session.
PARQUET: Final = "parquet"
#: Spark's formats that are directories of self-contained files.
FILE_FORMATS: Final = frozenset({"orc", "json", "csv", "avro", "xml"})
DEFAULT_COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most offsets and bytes of log in a batch; None: what the cores do in some seconds."""

    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """An export from ``paths`` into ``dataset``; ``store`` and ``group`` say where its positions are kept.

    ``starting`` is for partitions without a stored position. ``compression`` has the format's name for it. With a
    ``table`` of the session the dataset has only the positions.
    """

    paths: tuple[str, ...]
    dataset: str
    strategy: Strategy = field(default_factory=Matching)
    starting: OffsetLimit = field(default_factory=Earliest)
    read: ReadOptions = field(default_factory=ReadOptions)
    limits: BatchLimits = field(default_factory=BatchLimits)
    format: str = PARQUET
    compression: str | None = None
    table: str | None = None
    store: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        for path in self.paths:
            check_is_file(path)
        if is_url(self.dataset):
            raise InvalidOption(
                f"{self.dataset}: the dataset has to be a directory that the driver and all executors share: "
                "files become part of it by being renamed, and an object store can't rename"
            )
        check_is_file(self.dataset)
        if self.store is not None and self.group is None:
            raise InvalidOption(
                "a store that isn't the dataset's own needs the name of a group: nothing else tells "
                "its positions from those of other datasets"
            )
        if self.table is not None and self.format in (PARQUET, *FILE_FORMATS):
            raise InvalidOption(
                f"table {self.table}: it has to be of a format whose commits are atomic, such as delta or iceberg"
            )

    @property
    def staging(self) -> str:
        """The directory of files that are not yet part of the dataset."""
        return os.path.join(os.path.abspath(self.dataset), _OWN_DIRECTORY, "staging")

    @property
    def store_url(self) -> str:
        """The URL of the store."""
        if self.store is not None:
            return self.store
        return f"sqlite://{os.path.join(os.path.abspath(self.dataset), _OWN_DIRECTORY, 'progress.db')}"

    @property
    def group_name(self) -> str:
        """The group in the store."""
        return self.group or DEFAULT_GROUP


def parse_starting(text: str) -> OffsetLimit:
    """Return the start that ``earliest``, ``latest``, a time or ``group:NAME`` means.

    If no record is of that time or later, it is the log's end.

    Raises:
        ValueError: it is none of them.
    """
    named = named_end(text)
    if named is not None:
        return named
    group = named_group(text)
    if group is not None:
        return GroupOffsets(group, EARLIEST)
    return GlobalTimestamp(parse_time(text), latest_where_none=True)
