"""What other copies of a partition have of what its segments have lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problem
from kfs.log.segment_files import SegmentFiles, SegmentKey
from kfs.log.storage import Storage
from kfs.storage.patched_file import Patch

_LOG: Final = logging.getLogger("kfs")
#: The same for every log, so that a command says it once.
COMPLETED: Final = "what one copy has lost is read from another: meta/problems.jsonl says what, and from which"


class Healed(NamedTuple):
    """How a segment is to be read, and what is to be said of that."""

    patch: Patch
    problems: tuple[Problem, ...]


class OtherCopies(Protocol):
    """The other copies of a log, and what they have of what is lost in it."""

    def others(self) -> Sequence[PartitionDirectory]:
        """Return their directories."""
        ...

    def healed(self, storage: Storage) -> dict[SegmentKey, Healed]:
        """Return how those segments are to be read of which others have what is lost.

        Raises:
            FileChanged: a copy changes while it is read.
        """
        ...


class Completion:
    """Asks the other copies when a loss is found, once for each state of the log and of them. Threads share it.

    That it found something is logged at ``level``.
    """

    def __init__(self, copies: OtherCopies | None, storage: Storage, level: int = logging.WARNING) -> None:
        self._copies = copies
        self._storage = storage
        self._level = level
        self._asking = threading.Lock()
        self._healed: dict[SegmentKey, Healed] = {}
        #: Which segments were asked about, and the other copies that there were then.
        self._asked: tuple[frozenset[SegmentKey], tuple[str, ...]] = (frozenset(), ())

    def others(self) -> Sequence[PartitionDirectory]:
        """Return the directories of the other copies."""
        return () if self._copies is None else self._copies.others()

    def of(self, files: SegmentFiles) -> Healed | None:
        """Return how a segment is to be read, as far as the copies were asked; None: as it is."""
        return self._healed.get(files.key)

    def look(self, lossy: SegmentKey, there: Iterable[SegmentKey]) -> Mapping[SegmentKey, Healed]:
        """Ask about all segments that are ``there`` because one of them has a loss, unless they were asked already.

        Returns how those are to be read that are completed from now on.

        Raises:
            FileChanged: a copy changes while it is read.
        """
        if self._copies is None:
            return {}
        with self._asking:
            copies = tuple(other.path for other in self._copies.others())
            if lossy not in self._asked[0] or copies != self._asked[1]:
                self._healed = self._copies.healed(self._storage)
                if self._healed:
                    _LOG.log(self._level, "%s", COMPLETED)
                self._asked = frozenset((*there, lossy)), copies
            return dict(self._healed)

    def forget(self, files: SegmentFiles) -> None:
        """Ask anew when something is lost next: a segment that was completed, or a copy, has become something else."""
        with self._asking:
            self._healed.pop(files.key, None)
            self._asked = frozenset(), ()
