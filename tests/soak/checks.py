"""Whether what was read is what the producers sent: the right records, all of them, in order, and of one topic."""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.soak.findings import Findings
from tests.soak.journal import FRESHNESS, Journal, Part
from tests.soak.values import Fate, NotOurs, Stamp

#: What a line is shown as in a finding.
_SHOWN: Final = 400


class LogStart(NamedTuple):
    """Who is asked for log start offsets: ``(topic, partition) -> offset``."""

    ask: Callable[[str, int], int | None]


@dataclass(slots=True)
class Sight:
    """One read of a place: what was opened, when, and what has been seen there since."""

    where: str
    kind: str
    path: str
    topic: str
    partition: int
    committed: bool = False
    #: Whether generations that were deleted long ago may be here (``.kfs/deleted``).
    any_generation: bool = False
    opened_at: float = field(default_factory=time.time)
    generation: int | None = None
    offsets: list[int] = field(default_factory=list)

    @property
    def place(self) -> dict[str, Any]:
        """What a finding says of it."""
        open_for = round(time.time() - self.opened_at, 2)
        return {"read": self.kind, "path": self.path, "open for": open_for, "records before": len(self.offsets)}


@dataclass(frozen=True, slots=True)
class Line:
    """A record that was read."""

    offset: int
    timestamp: int
    stamp: Stamp | None


class _Unproven(NamedTuple):
    """A record that was seen before its producer knew its offset."""

    sight: Sight
    offset: int
    generation: int
    sequence: int


class Checker:
    """Holds what readers see to the journal; threads share it."""

    def __init__(self, journal: Journal, findings: Findings, log_start: LogStart) -> None:
        self.journal: Final = journal
        self.findings: Final = findings
        self._log_start = log_start
        self._unproven: list[_Unproven] = []
        self._lock = threading.Lock()

    # -- single records

    def line(self, sight: Sight, raw: bytes, expected: int | None = None) -> Line | None:
        """Check one line of JSON, which is ``expected`` or any later record of the place; return what it is."""
        try:
            record = json.loads(raw)
            offset, timestamp = int(record["offset"]), int(record["timestamp"])
            place = record["topic"], record["partition"]
            key, value = _bytes_of(record, "key"), _bytes_of(record, "value")
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            self._wrong(sight, "line doesn't parse", raw, error=repr(error))
            return None
        if place != (sight.topic, sight.partition):
            self._wrong(sight, "foreign record", raw)
        if expected is not None and offset != expected:
            self._wrong(sight, "wrong record", raw, expected=expected)
        if sight.offsets and offset <= sight.offsets[-1]:
            self._wrong(sight, "offsets go back", raw, before=sight.offsets[-1])
        sight.offsets.append(offset)
        stamp = self.record(sight, offset, key, value, timestamp)
        return Line(offset, timestamp, stamp)

    def record(self, sight: Sight, offset: int, key: bytes | None, value: bytes | None, timestamp: int) -> Stamp | None:
        """Check a record's contents; a null value says nothing of itself."""
        if value is None:
            self._tombstone(sight, offset, key)
            return None
        stamp = self.value(sight, offset, value)
        if stamp is None:
            return None
        part = self.journal.part(stamp.topic, stamp.generation, stamp.partition)
        if timestamp != stamp.timestamp or part is None or part.key_at(stamp.sequence) != key:
            self._wrong(sight, "wrong record", value, offset=offset, key=repr(key), timestamp=timestamp)
        return stamp

    def value(self, sight: Sight, offset: int, value: bytes) -> Stamp | None:
        """Check that a value belongs to that offset of the place."""
        try:
            stamp = Stamp.parse(value)
        except (NotOurs, ValueError) as error:
            self._wrong(sight, "wrong record", value, offset=offset, error=str(error))
            return None
        if (stamp.topic, stamp.partition) != (sight.topic, sight.partition):
            self._wrong(sight, "foreign record", value, offset=offset)
            return stamp
        if sight.committed and stamp.fate is Fate.ABORT:
            self._wrong(sight, "aborted record", value, offset=offset)
        self.findings.read(f"records of {sight.kind}", sight.where)
        self._generation(sight, stamp, offset)
        self._prove(_Unproven(sight, offset, stamp.generation, stamp.sequence))
        return stamp

    def key(self, sight: Sight, offset: int, key: bytes) -> None:
        """Check a key that was read alone."""
        found = [(part, part.sequence_at(offset)) for part in self._candidates(sight)]
        keys = [part.key_at(sequence) for part, sequence in found if sequence is not None]
        if keys and key not in keys:
            self._wrong(sight, "wrong record", key, offset=offset)

    def _generation(self, sight: Sight, stamp: Stamp, offset: int) -> None:
        if sight.generation is None:
            sight.generation = stamp.generation
        if stamp.generation != sight.generation:
            self._wrong(sight, "mixed topics", b"", offset=offset, generations=[sight.generation, stamp.generation])
        known = self.journal.generation(stamp.topic, stamp.generation)
        since = 0.0 if sight.any_generation else sight.opened_at - FRESHNESS
        if known is None or not known.was_there(since, time.time()):
            gone = None if known is None else round(sight.opened_at - known.deleted_at, 2)
            self._wrong(sight, "record of an older topic", b"", offset=offset, deleted_before_open=gone)

    def _tombstone(self, sight: Sight, offset: int, key: bytes | None) -> None:
        for part in self._candidates(sight):
            at = part.sequence_at(offset)
            if at is None and (part.acked < len(part.offsets) or sight.opened_at > time.time() - FRESHNESS):
                return  # not acknowledged yet: the key can't be looked up
            if at is not None and part.tombstones[at] and part.key_at(at) == key:
                return
        self._wrong(sight, "wrong record", key or b"", offset=offset, error="not a null value")

    def _candidates(self, sight: Sight) -> list[Part]:
        """Return the partition's generations that may be seen."""
        since = 0.0 if sight.any_generation else sight.opened_at - FRESHNESS
        now, found, number = time.time(), [], 0
        while (generation := self.journal.generation(sight.topic, number)) is not None:
            if generation.was_there(since, now) and sight.partition < len(generation.parts):
                found.append(generation.parts[sight.partition])
            number += 1
        return found

    def _prove(self, seen: _Unproven) -> None:
        """Hold the place of a record to where its producer knows it to be, now or when it knows."""
        part = self.journal.part(seen.sight.topic, seen.generation, seen.sight.partition)
        if part is None or seen.sequence >= len(part.offsets):
            self._wrong(seen.sight, "wrong record", b"", offset=seen.offset, error="never sent")
        elif seen.sequence >= part.acked:
            with self._lock:
                self._unproven.append(seen)
        elif part.offsets[seen.sequence] != seen.offset:
            self._wrong(
                seen.sight, "wrong record", b"", offset=seen.offset, error=f"is at {part.offsets[seen.sequence]}"
            )

    def prove_late(self) -> None:
        """Look again at what producers didn't know when it was seen."""
        with self._lock:
            waiting, self._unproven = self._unproven, []
        for seen in waiting:
            self._prove(seen)

    def _wrong(self, sight: Sight, kind: str, raw: bytes, **details: Any) -> None:
        shown = raw[:_SHOWN].decode("latin-1")
        self.findings.add(kind, sight.where, **sight.place, length=len(raw), bytes=shown, **details)

    # -- what has to be there

    def lasting(self, sight: Sight, low: int = 0) -> list[int] | None:
        """Return the offsets that were there all the time since the place was opened; None if that isn't known."""
        part = self.lasting_part(sight)
        if part is None:
            return None
        start = self._log_start.ask(sight.topic, sight.partition)
        if start is None or self.lasting_part(sight) is not part:
            return None
        found = part.lasting(sight.opened_at - FRESHNESS, start, sight.committed, low)
        return [part.offsets[sequence] for sequence in found]

    def lasting_part(self, sight: Sight) -> Part | None:
        """Return the partition if its topic was there all the time since the place was opened."""
        alive = self.journal.alive(sight.topic, sight.opened_at - FRESHNESS, time.time())
        if alive is None or sight.partition >= len(alive.parts):
            return None
        return alive.parts[sight.partition]

    def log_start(self, sight: Sight) -> int | None:
        """Return the log start offset that the broker says now."""
        return self._log_start.ask(sight.topic, sight.partition)

    def complete(self, sight: Sight, low: int | None, high: int | None, seen: Iterable[int] | None = None) -> None:
        """Check that nothing between two offsets (``high`` not included; None: no limit) was left out."""
        lasting = self.lasting(sight, low or 0)
        if lasting is None:
            return
        had = set(sight.offsets if seen is None else seen)
        missing = [offset for offset in lasting if offset not in had and (high is None or offset < high)]
        if missing:
            self.findings.add(
                "records left out",
                sight.where,
                **sight.place,
                missing=len(missing),
                first=missing[:5],
                last=missing[-1],
                had=[min(had), max(had), len(had)] if had else None,
            )

    def gapless(self, sight: Sight) -> None:
        """Check that nothing was left out between the first and the last record that was read."""
        if sight.offsets:
            self.complete(sight, sight.offsets[0], sight.offsets[-1])


def _bytes_of(record: dict[str, Any], name: str) -> bytes | None:
    text = record[name]
    if text is None:
        return None
    return base64.b64decode(text, validate=True) if f"{name}Encoding" in record else text.encode()
