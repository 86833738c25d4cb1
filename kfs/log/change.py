"""The kinds of change that a log goes through while its broker works: none of them is damage."""

from __future__ import annotations

from enum import StrEnum


class Change(StrEnum):
    """What became of a segment, or of a whole partition."""

    ROLLED = "rolled"  # a new segment is written to
    DELETED = "deleted"  # by retention or DeleteRecords
    COMPACTED = "compacted"  # another file has its records, or those of them that are left
    TRUNCATED = "truncated"  # cut off at its end, as a follower does
    RECREATED = "recreated"  # the partition: another directory, or another topic, is at its path
    REMOVED = "removed"  # the partition: deleted with its topic, or moved to another place
