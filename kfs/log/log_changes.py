"""Telling what a broker did to a log.

It is counted, and logged as information: nobody has to do anything about it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from kfs.log.change import Change
from kfs.log.directory_name import DirectoryKind
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.segment import Segment
from kfs.metrics import Counts

_LOG: Final = logging.getLogger("kfs")


class LogChanges:
    """The changes of one log, from one listing of its segments to the next.

    Deleted segments and directories that aren't current have been told of when they were set aside.
    """

    __slots__ = ("_counts", "_fields", "_is_silent", "_path", "_was_removed")

    def __init__(self, directory: PartitionDirectory, counts: Counts[Change], fields: Mapping[str, object]) -> None:
        self._path = directory.path
        self._counts = counts
        self._fields = fields
        self._is_silent = directory.is_of_deleted or directory.name.kind is not DirectoryKind.CURRENT
        self._was_removed = False

    def tell(self, before: Sequence[Segment], after: Sequence[Segment], *, is_another: bool) -> None:
        """Tell what happened between two listings; the directory ``is_another`` than before, or the same."""
        if after:
            self._was_removed = False
        if is_another:
            self.tell_recreated()
        elif before and not after:
            self.tell_removed()
        elif before:
            there = set(map(id, after))
            for segment in before:
                if id(segment) not in there and not segment.was_patched:
                    change = _what_happened(segment, after)
                    self._tell(change, segment.files.log.path, segment.what_became_of_it())
            for segment in after:
                if segment.base_offset > before[-1].base_offset:
                    self._tell(Change.ROLLED, segment.files.log.path, "new records go here")

    def tell_recreated(self) -> None:
        """Tell that another directory, or another topic, is at the path."""
        self._tell(Change.RECREATED, self._path, "another directory or topic is at this path")

    def tell_removed(self) -> None:
        """Tell, once, that the directory is gone."""
        if not self._was_removed:
            self._was_removed = True
            self._tell(Change.REMOVED, self._path, "gone: deleted with its topic, or moved")

    def be_silent(self) -> None:
        """Tell no more: another object follows what is at the path from now on."""
        self._is_silent = True

    def _tell(self, change: Change, file: str, reason: str) -> None:
        if self._is_silent:
            return
        self._counts.add(change)
        fields = {**self._fields, "file": file, "change": change.value, "reason": reason}
        _LOG.info("%s: %s: %s", file, change.value, reason, extra={"fields": fields})


def _what_happened(segment: Segment, after: Sequence[Segment]) -> Change:
    """Return why a segment isn't listed any more, while others are."""
    if segment.base_offset < after[0].base_offset:
        return Change.DELETED
    # The cleaner leaves the last segment alone.
    return Change.TRUNCATED if segment.was_cut or segment.base_offset >= after[-1].base_offset else Change.COMPACTED
