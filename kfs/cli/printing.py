"""Prints or counts records, and reports the result of a search."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import BinaryIO, Final

from kfs.cat.records import CatRequest, CatTotals, Place
from kfs.cli.messages import messages
from kfs.storage.descriptors import write_all

_FAILED: Final = 1
_NOT_FOUND: Final = 3


@dataclass(slots=True)
class Printing:
    """Writes the records that a request selects, and reports what can't be read.

    With ``counts`` their number is printed instead; with ``with_path``, one number for each place. A request that looks
    into records is a search: a message says what was searched, and whether that was everything.
    """

    request: CatRequest
    counts: bool = False
    with_path: bool = False

    @property
    def is_search(self) -> bool:
        """Whether this is a search, which has its own exit code for no record found."""
        return self.request.selection.looks_into_records

    def write(self, places: Sequence[Place], out: BinaryIO) -> int:
        """Write the selected records of places; return the exit code.

        It is 1 if something can't be read, 3 if a search has read everything and found nothing, and otherwise 0.

        Errors are those of :meth:`CatRequest.write`.
        """
        totals = CatTotals() if self.is_search or self.counts else None
        is_complete = self._write(places, out, totals)
        if totals is not None:
            found = totals.records.total()
            if self.counts:
                self._write_counts(places, totals, out)
            if self.is_search:
                messages.say(self._claim(totals, found, is_complete))
                if is_complete and not found:
                    return _NOT_FOUND
        return 0 if is_complete else _FAILED

    def _write(self, places: Sequence[Place], out: BinaryIO, totals: CatTotals | None) -> bool:
        if totals is not None and sys.stderr.isatty() and not out.isatty():
            from kfs.cli.progress import progress_bar  # only here: few commands show one

            with progress_bar(sum(_size_of(place) for place in places), "searching") as totals.advance:
                return self._say_problems(places, out, totals)
        return self._say_problems(places, out, totals)

    def _say_problems(self, places: Sequence[Place], out: BinaryIO, totals: CatTotals | None) -> bool:
        is_complete = True
        with self._with_forks():
            for problem in self.request.write(out.fileno(), places, totals):
                is_complete = False
                messages.say(str(problem.error()))
        return is_complete

    def _with_forks(self) -> AbstractContextManager[None]:
        if self.request.first is not None or self.request.last is not None:
            return nullcontext()
        from kfs.read.workers.forking import forks_allowed  # only here: a few records need no workers

        return forks_allowed()

    def _write_counts(self, places: Sequence[Place], totals: CatTotals, out: BinaryIO) -> None:
        if self.with_path:
            counts = (b"%s\t%d\n" % (os.fsencode(place.path), totals.records[place.path]) for place in places)
            write_all(out.fileno(), counts)
        else:
            write_all(out.fileno(), [b"%d\n" % totals.records.total()])

    def _claim(self, totals: CatTotals, found: int, is_complete: bool) -> str:
        records = f"{_counted(found, 'record')} found"
        if self.request.first is not None or self.request.last is not None:
            return records  # not everything was read
        topics = {partition.topic for partition in totals.partitions}
        searched = ", ".join(
            (
                _counted(len(topics), "topic"),
                _counted(len(totals.partitions), "partition"),
                _counted(len(totals.segments), "segment"),
                _counted(totals.offsets, "offset"),
                _counted(sum(totals.segments.values()), "byte"),
            )
        )
        rest = "" if is_complete else "; the parts named above could not be searched"
        return f"searched {searched}: {records}{rest}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _size_of(place: Place) -> int:
    return place.log.size() if place.log.can_be_listed else 0
