"""``<topic>/<partition>/``: the directory of one partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kfs.errors import NotFound
from kfs.tree.context import status_of
from kfs.tree.files import CostlyGeneratedFile, FixedDirectory, Link, Maker
from kfs.tree.node_ids import View
from kfs.tree.partition_view import PartitionView
from kfs.tree.record_files import FieldDirectory, RecordDirectory

if TYPE_CHECKING:
    from kfs.tree.line_files import LogFile, SegmentDirectory
    from kfs.tree.raw_dir import RawDirectory
    from kfs.tree.time_dirs import AtDirectory, TimeDirectory


def partition_directory(partition: PartitionView) -> FixedDirectory:
    """Return the directory of a partition; with ``--views`` everything in it is listed."""
    path = partition.path
    listed: dict[str, Maker] = {
        "offset": partial(RecordDirectory, partition, f"{path}/offset"),
        "segment": partial(_segments, partition, f"{path}/segment"),
        "first.json": partial(_end_link, partition, "first.json"),
        "last.json": partial(_end_link, partition, "last.json"),
        "meta": partial(_meta, partition, f"{path}/meta"),
    }
    unlisted: dict[str, Maker] = {
        "value": partial(FieldDirectory, partition, f"{path}/value", View.VALUE),
        "key": partial(FieldDirectory, partition, f"{path}/key", View.KEY),
        "records.jsonl": partial(_records_file, partition),
        "time": partial(_times, partition, f"{path}/time"),
        "at": partial(_at, partition, f"{path}/at"),
        "raw": partial(_raw, partition, f"{path}/raw"),
    }
    if partition.context.options.views:
        listed, unlisted = listed | unlisted, {}
    return FixedDirectory(partition.context, path, partition.log.directory.path, listed, unlisted)


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
    owner, mtime_ns = status_of(partition.log.directory.path)
    node_id = partition.context.ids.of_path(f"{partition.path}/{name}")
    return Link(node_id, f"offset/{offset}.json", owner, mtime_ns)
