"""Leftover files in a partition directory: from a crash, awaiting deletion, or not Kafka's."""

from __future__ import annotations

from typing import Final

from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, QUORUM_STATE
from kfs.log.segment_files import PartitionFiles
from kfs.storage.listing import FoundFile
from kfs.storage.status import size_at
from kfs.verify.finding import FindingKind, Findings
from kfs.verify.kraft_snapshot import KRAFT_SNAPSHOT

_KNOWN_FILES: Final = frozenset({LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, QUORUM_STATE})
_TEMPORARY: Final = (".tmp", ".part")


def check_leftovers(directory: str, files: PartitionFiles, findings: Findings) -> None:
    """Report each leftover file."""
    for found in files.orphans:
        findings.add(FindingKind.INDEX_ORPHAN, found.path, "its .log is missing; a broker removes it")
    for segment in files.segments:
        for own in (segment.log, segment.index, segment.timeindex, segment.txnindex):
            if own is not None and own.path.endswith(".swap"):
                findings.add(FindingKind.SWAP_FILE, own.path, "left by a crash during the swap; its records count")
    for found in files.superseded:
        _superseded(found, findings)
    for name, found in files.others.items():
        if name.endswith(_TEMPORARY):
            findings.add(FindingKind.TEMPORARY_FILE, found.path, "left by a crash while it was written")
        elif name.endswith(".deleted"):
            findings.add(FindingKind.DELETED_FILE, found.path, "waiting for deletion")
        elif name not in _KNOWN_FILES and not KRAFT_SNAPSHOT.match(name):
            findings.add(FindingKind.STRAY_FILE, found.path, "not one of Kafka's files")


def _superseded(found: FoundFile, findings: Findings) -> None:
    size = size_at(found.path)
    if found.path.endswith(".deleted"):
        findings.add(FindingKind.DELETED_FILE, found.path, "waiting for deletion", bytes=(0, size))
    elif found.path.endswith(".cleaned"):
        reason = "left by a crash during compaction; its records don't count"
        findings.add(FindingKind.CLEANED_FILE, found.path, reason, bytes=(0, size))
    elif found.path.endswith(".swap"):
        reason = "left by an unfinished compaction; its records don't count"
        findings.add(FindingKind.SWAP_FILE, found.path, reason, bytes=(0, size))
    else:
        findings.add(FindingKind.SWAP_FILE, found.path, "a .swap file replaces it", bytes=(0, size))
