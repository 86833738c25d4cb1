"""``<topic>/<partition>/``: the directory of one partition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kfs.errors import NotFound
from kfs.tree.context import TreeContext
from kfs.tree.files import CostlyGeneratedFile, FixedDirectory, Link, Maker
from kfs.tree.node import Node
from kfs.tree.node_ids import View
from kfs.tree.partition_view import PartitionView
from kfs.tree.record_files import FieldDirectory, RecordDirectory

if TYPE_CHECKING:
    from kfs.tree.line_files import LogFile, SegmentDirectory
    from kfs.tree.raw_dir import RawDirectory
    from kfs.tree.time_dirs import AtDirectory, TimeDirectory


def partition_directory(
    context: TreeContext, path: str, source: str, view: Callable[[], PartitionView]
) -> FixedDirectory:
    """Return the directory of a partition, whose files are in ``source``; with ``--views`` everything in it is listed.

    ``view`` returns what the tree shows of it, or raises :class:`NotFound`; a listing of partitions needs none.
    """

    def of_view(make: Callable[[PartitionView], Node]) -> Maker:
        return lambda: make(view())

    listed: dict[str, Maker] = {
        "offset": of_view(lambda partition: RecordDirectory(partition, f"{path}/offset")),
        "segment": of_view(partial(_segments, path=f"{path}/segment")),
        "first.json": of_view(partial(_end_link, name="first.json")),
        "last.json": of_view(partial(_end_link, name="last.json")),
        "meta": of_view(partial(_meta, path=f"{path}/meta")),
    }
    unlisted: dict[str, Maker] = {
        "value": of_view(lambda partition: FieldDirectory(partition, f"{path}/value", View.VALUE)),
        "key": of_view(lambda partition: FieldDirectory(partition, f"{path}/key", View.KEY)),
        "records.jsonl": of_view(_records_file),
        "time": of_view(partial(_times, path=f"{path}/time")),
        "at": of_view(partial(_at, path=f"{path}/at")),
        "raw": of_view(partial(_raw, path=f"{path}/raw")),
    }
    if context.options.views:
        listed, unlisted = listed | unlisted, {}
    return FixedDirectory(context, path, source, listed, unlisted)


# All but records by offset is imported on demand: a path leads through one of these.


def _segments(partition: PartitionView, path: str) -> SegmentDirectory:
    from kfs.tree.line_files import SegmentDirectory

    return SegmentDirectory(partition, path)


def _times(partition: PartitionView, path: str) -> TimeDirectory:
    from kfs.tree.time_dirs import TimeDirectory

    return TimeDirectory(partition, path)


def _at(partition: PartitionView, path: str) -> AtDirectory:
    from kfs.tree.time_dirs import AtDirectory

    return AtDirectory(partition, path)


def _raw(partition: PartitionView, path: str) -> RawDirectory:
    from kfs.tree.raw_dir import RawDirectory

    return RawDirectory(partition, path)


def _meta(partition: PartitionView, path: str) -> FixedDirectory:
    from kfs.tree.meta_dir import meta_directory

    def transactions() -> CostlyGeneratedFile:
        from kfs.tree.transactions_dir import partition_transactions

        return partition_transactions(partition, f"{path}/transactions.json")

    return meta_directory(partition, path, {"transactions.json": transactions})


def _records_file(partition: PartitionView) -> LogFile:
    from kfs.tree.line_files import LogFile

    return LogFile.of(partition, f"{partition.path}/records.jsonl", partition.lines.log_text())


def _end_link(partition: PartitionView, name: str) -> Link:
    offset = partition.reader.first_offset() if name == "first.json" else partition.reader.last_offset()
    if offset is None:
        raise NotFound(f"{partition.path} has no records")
    owner, mtime_ns = partition.context.status_of(partition.log.directory.path)
    node_id = partition.context.ids.of_path(f"{partition.path}/{name}")
    return Link(node_id, f"offset/{offset}.json", owner, mtime_ns)
