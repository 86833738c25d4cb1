"""Completion of damaged segments from other copies of the partition."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kfs.log.partition_directory import PartitionDirectory
    from kfs.log.problem import Problem
    from kfs.log.segment_files import SegmentFiles, SegmentKey
    from kfs.log.storage import Storage
    from kfs.storage.patched_file import Patch

_LOG: Final = logging.getLogger("kfs")
#: The same text for every log, so that a command prints it once.
COMPLETED: Final = "lost offsets are read from another copy: see meta/problems.jsonl"


_NOTHING_ASKED: Final[tuple[frozenset[SegmentKey], tuple[str, ...]]] = (frozenset(), ())


class Healed(NamedTuple):
    """How to read a segment with its patch, and what to report about that."""

    patch: Patch
    problems: tuple[Problem, ...]


class OtherCopies(Protocol):
    """The other copies of a log, and what they can restore."""

    def others(self) -> Sequence[PartitionDirectory]:
        """Return their directories."""
        ...

    def healed(self, storage: Storage) -> dict[SegmentKey, Healed]:
        """Return how to read each segment whose lost records another copy has.

        Raises:
            FileChanged: a copy changed while it was read.
        """
        ...


class Completion:
    """Consults the other copies when a loss is found, once per state of the log and of the copies.

    Threads share it. It logs at ``level`` if it finds something, with ``fields`` that say for which log.
    """

    __slots__ = ("_asked", "_asking", "_copies", "_fields", "_healed", "_level", "_storage")

    def __init__(self, copies: OtherCopies | None, storage: Storage, level: int, fields: Mapping[str, object]) -> None:
        self._copies = copies
        self._storage = storage
        self._level = level
        self._fields = fields
        self._asking = threading.Lock()
        self._healed: dict[SegmentKey, Healed] = {}
        #: The segments of the last search, and the paths of the other copies at that time.
        self._asked: tuple[frozenset[SegmentKey], tuple[str, ...]] = _NOTHING_ASKED

    def others(self) -> Sequence[PartitionDirectory]:
        """Return the directories of the other copies."""
        return () if self._copies is None else self._copies.others()

    def of(self, files: SegmentFiles) -> Healed | None:
        """Return how to read a segment, as far as the copies were searched; None means unchanged."""
        return self._healed.get(files.key)

    def look(self, lossy: SegmentKey, there: Iterable[SegmentKey]) -> Mapping[SegmentKey, Healed]:
        """Search the other copies for all segments in ``there``, because one of them has a loss.

        Skip the search if it was already made for that segment and the same copies. Returns how to read the segments
        that are completed from now on.

        Raises:
            FileChanged: a copy changed while it was read.
        """
        if self._copies is None:
            return {}
        with self._asking:
            copies = tuple(other.path for other in self._copies.others())
            if lossy not in self._asked[0] or copies != self._asked[1]:
                self._healed = self._copies.healed(self._storage)
                if self._healed:
                    _LOG.log(self._level, "%s", COMPLETED, extra={"fields": self._fields})
                self._asked = frozenset((*there, lossy)), copies
            return dict(self._healed)

    def forget(self, files: SegmentFiles) -> None:
        """Search again at the next loss, because a completed segment or a copy has changed."""
        with self._asking:
            self._healed.pop(files.key, None)
            self._asked = _NOTHING_ASKED
