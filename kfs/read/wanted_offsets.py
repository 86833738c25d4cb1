"""Determines which of the visible offsets of a log to read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.block import Damage
from kfs.log.log import Log
from kfs.log.log_segments import MOST_LOOKS
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.storage.open_files import FileChanged


@dataclass(frozen=True, slots=True)
class WantedOffsets(OffsetRange):
    """The offsets of a log to read, and the requested end: no records can be read from ``end`` up to ``asked_end``.

    Damage at the end of the log may have held records there: the log may end at ``end`` only because of the damage.
    """

    asked_end: int


def wanted_offsets(
    log: Log, selection: Selection, isolation: IsolationLevel, choose: Callable[[Log], OffsetRange] = Log.visible
) -> WantedOffsets:
    """Return the offsets of a log that can have selected records; :func:`reaching` applies a lower time bound.

    ``choose`` returns the range to select from: the visible offsets, or those below the log start offset.

    Raises:
        FileChanged: segments disappear at each attempt.
    """
    for _ in range(MOST_LOOKS - 1):
        with suppress(FileChanged):
            return _wanted_now(log, selection, isolation, choose)
        log.look_again()
    return _wanted_now(log, selection, isolation, choose)


def _wanted_now(
    log: Log, selection: Selection, isolation: IsolationLevel, choose: Callable[[Log], OffsetRange]
) -> WantedOffsets:
    asked_end = selection.end
    if log.until_high_watermark and log.high_watermark is not None:
        asked_end = min(asked_end, log.high_watermark)
    chosen = log.visible()
    log_end = chosen.end
    if choose is not Log.visible:
        chosen = choose(log)
    chosen_end = chosen.end
    if isolation is IsolationLevel.READ_COMMITTED:
        from kfs.read.isolation import last_stable_offset  # only here: read_uncommitted doesn't need it

        chosen_end = min(chosen_end, last_stable_offset(log))
    if chosen_end < log_end:  # a transaction is open, or the log continues after the chosen offsets
        asked_end = min(asked_end, chosen_end)
    start, end = max(chosen.start, selection.start), min(chosen_end, selection.end)
    # Before 1970 there are only records without a timestamp (-1), which a lookup doesn't find.
    if selection.since is not None and selection.since >= 0 and start < end:
        start = reaching(log, selection.since, OffsetRange(start, end)).start
    return WantedOffsets(start, max(start, end), asked_end)


def reaching(log: Log, timestamp: int, offsets: OffsetRange) -> OffsetRange:
    """Return ``offsets`` from the first record on that reaches ``timestamp`` (milliseconds), and one offset before it.

    If the offset before can't be read, its record may have reached the timestamp already.
    """
    reached = log.offset_for_time(timestamp, offsets)
    return OffsetRange(max(offsets.start, (offsets.end if reached is None else reached) - 1), offsets.end)


def lost_at_end(log: Log) -> Damage | None:
    """Return the damage at the end of a log that hides where the log ends, or None if there is none."""
    if not log.segments:
        return None
    try:
        items = log.segments[-1].walk_from(log.log_end_offset)
        damage = (item for item in items if isinstance(item, Damage))
        return next((item for item in damage if item.lost is not None and item.lost.end == MAX_INT64), None)
    except CorruptData:  # the segment vanished, or was cut just now
        return None


def remote_problem(log: Log, selection: Selection) -> Problem | None:
    """Return a problem if the selection includes offsets that tiered storage has moved away, else None."""
    remote = log.remote
    return None if remote is None or not remote.overlaps(selection.start, selection.end) else remote.problem()
