"""Checks of one of a broker's ``log.dirs``: the names in it, its checkpoints, its ``meta.properties``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kfs.format.checkpoint import TopicPartition, parse_offset_checkpoint
from kfs.format.clean_shutdown import parse_clean_shutdown
from kfs.format.properties import MetaProperties, parse_meta_properties
from kfs.log.directory_name import DirectoryKind, DirectoryName, parse_directory_name
from kfs.log.log_dir import (
    BOOTSTRAP_CHECKPOINT,
    CHECKPOINTS,
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from kfs.log.partition_directory import PARTITION_METADATA
from kfs.storage.listing import FoundFile, list_directory
from kfs.storage.status import PathKind
from kfs.verify.finding import FindingKind, Findings, Severity
from kfs.verify.partition import PartitionResult
from kfs.verify.side_files import parse_file

_KNOWN_FILES: Final = frozenset({*CHECKPOINTS, META_PROPERTIES, BOOTSTRAP_CHECKPOINT, CLEAN_SHUTDOWN, LOCK})
#: Tiered storage's cache (``RemoteIndexCache.DIR_NAME``), the only non-partition directory that a broker accepts.
_REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
_MEANINGS: Final = {
    LOG_START_OFFSET_CHECKPOINT: "log start offset",
    HIGH_WATERMARK_CHECKPOINT: "high watermark",
    RECOVERY_POINT_CHECKPOINT: "recovery point",
    CLEANER_OFFSET_CHECKPOINT: "cleaner offset",
}


class LogDirectoryCheck:
    """The checks of a log directory other than those of its partitions."""

    def __init__(self, path: str) -> None:
        """List the directory; raise :class:`OSError` if that fails."""
        self.path = path
        self._files: dict[str, FoundFile] = {}
        self._directories: dict[str, DirectoryName | None] = {}
        for found in sorted(list_directory(path)):
            parsed = parse_directory_name(found.name)
            if found.kind is PathKind.DIRECTORY or (parsed is not None and found.kind.may_be_directory):
                self._directories[found.name] = parsed
            else:
                self._files[found.name] = found

    @property
    def is_stopped(self) -> bool:
        """Whether the directory has a clean shutdown file."""
        return CLEAN_SHUTDOWN in self._files

    @property
    def bootstrap_checkpoint(self) -> FoundFile | None:
        """KRaft's bootstrap snapshot, None if the directory has none."""
        return self._files.get(BOOTSTRAP_CHECKPOINT)

    def finish(self, partitions: Iterable[PartitionResult], findings: Findings) -> MetaProperties | None:
        """Check names and files against the directory's ``partitions``; return the parsed ``meta.properties``."""
        ends = {
            result.log.topic_partition: result
            for result in partitions
            if result.log.directory.name.kind is DirectoryKind.CURRENT
        }
        self._check_names(findings)
        for name in CHECKPOINTS:
            self._check_checkpoint(name, ends, findings)
        parse_file(self._path_of(CLEAN_SHUTDOWN), parse_clean_shutdown, FindingKind.CLEAN_SHUTDOWN_FORMAT, findings)
        path = self._path_of(META_PROPERTIES)
        if META_PROPERTIES not in self._files:
            findings.add(
                FindingKind.META_PROPERTIES_MISSING,
                path,
                "missing: the cluster and the broker of this directory are unknown",
            )
        return parse_file(path, parse_meta_properties, FindingKind.META_PROPERTIES_FORMAT, findings)

    def _path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _check_names(self, findings: Findings) -> None:
        for name, parsed in self._directories.items():
            path = self._path_of(name)
            if parsed is None:
                if name != _REMOTE_INDEX_CACHE:
                    reason = "not a valid name for a partition directory: a broker refuses to start"
                    findings.add(FindingKind.DIRECTORY_NAME, path, reason)
            elif parsed.kind is DirectoryKind.STRAY:
                reason = f"{parsed.topic}-{parsed.partition}, set aside by a broker that it isn't assigned to"
                findings.add(FindingKind.STRAY_DIRECTORY, path, reason)
            elif parsed.kind is DirectoryKind.FUTURE:
                reason = f"{parsed.topic}-{parsed.partition}, being moved here from another log directory"
                findings.add(FindingKind.FUTURE_DIRECTORY, path, reason)
        for name in self._files:
            if name.endswith(".tmp"):
                findings.add(FindingKind.TEMPORARY_FILE, self._path_of(name), "left by a crash while it was written")
            elif name not in _KNOWN_FILES:
                findings.add(FindingKind.STRAY_FILE, self._path_of(name), "not one of Kafka's files")

    def _check_checkpoint(self, name: str, ends: dict[TopicPartition, PartitionResult], findings: Findings) -> None:
        path, meaning = self._path_of(name), _MEANINGS[name]
        offsets = parse_file(path, parse_offset_checkpoint, FindingKind.CHECKPOINT_FORMAT, findings) or {}
        known = {
            TopicPartition(parsed.topic, parsed.partition)
            for parsed in self._directories.values()
            if parsed is not None and parsed.kind is DirectoryKind.CURRENT
        }
        for partition, offset in offsets.items():
            result = ends.get(partition)
            if result is not None and offset > result.end_offset:
                reason = f"{meaning} {offset} of {partition}, whose log ends at {result.end_offset}"
                findings.add(FindingKind.CHECKPOINT_PAST_END, path, reason, offsets=(result.end_offset, offset - 1))
            elif partition not in known:
                reason = f"{meaning} {offset} of {partition}, which isn't here"
                findings.add(FindingKind.CHECKPOINT_UNKNOWN_PARTITION, path, reason)


def check_twice(
    results: Sequence[PartitionResult], nodes: Mapping[str, MetaProperties | None], findings: Findings
) -> None:
    """Report partitions that are in several log directories of a broker, and topics with several ids.

    ``nodes`` maps each log directory's path to its ``meta.properties``. The same partition on two brokers is a replica.
    Where a directory has no ``meta.properties``, the broker is unknown, and a second copy is reported as ``INFO``.
    """
    paths: dict[tuple[object, TopicPartition], str] = {}
    ids: dict[str, tuple[object, str]] = {}
    for result in results:
        directory = result.log.directory
        if directory.name.kind is not DirectoryKind.CURRENT:
            continue
        parent = os.path.dirname(directory.path)
        meta = nodes.get(parent)
        node = (meta.cluster_id, meta.node_id) if meta is not None and meta.node_id is not None else None
        other = paths.setdefault((node, result.log.topic_partition), directory.path)
        if other != directory.path and node is not None:
            reason = f"the same partition as {other}: a broker refuses to start"
            findings.add(FindingKind.PARTITION_TWICE, directory.path, reason)
        elif other != directory.path:
            reason = f"the same partition as {other}, of the same broker or of another"
            findings.add(FindingKind.PARTITION_TWICE, directory.path, reason, severity=Severity.INFO)
        if result.metadata is not None:
            topic_id = result.metadata.topic_id
            first_id, first_path = ids.setdefault(directory.name.topic, (topic_id, directory.path))
            if first_id != topic_id:
                reason = f"topic id {topic_id}, {first_path} has {first_id}"
                findings.add(FindingKind.TOPIC_ID_MISMATCH, os.path.join(directory.path, PARTITION_METADATA), reason)


def check_directory_ids(nodes: Mapping[str, MetaProperties | None], findings: Findings) -> None:
    """Report log directories with the same ``directory.id``, as a copied ``meta.properties`` causes."""
    paths: dict[object, str] = {}
    for path, meta in nodes.items():
        if meta is None or meta.directory_id is None:
            continue
        other = paths.setdefault(meta.directory_id, path)
        if other != path:
            reason = f"directory.id {meta.directory_id}, which {other} has, too"
            findings.add(FindingKind.DIRECTORY_ID_REPEATED, os.path.join(path, META_PROPERTIES), reason)
