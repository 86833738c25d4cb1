"""Readers that hold a file open while the broker deletes, replaces and appends to what is below it."""

from __future__ import annotations

import errno
import os
import time
from typing import Final

from tests.soak.checks import Sight
from tests.soak.journal import FRESHNESS, Part
from tests.soak.readers import Readers

#: Where ``tail`` begins to look for the last lines.
_LAST_BYTES: Final = 8000
_STEP_BYTES: Final = (500, 6000)
#: Longer than a deleted segment is kept.
_HELD_SECONDS: Final = (2.0, 20.0)
#: Who follows a file has to see a record that is so old.
_FOLLOWED_WITHIN: Final = 10.0


class SlowReaders(Readers):
    """Each method opens one file and reads it over several seconds."""

    def slow_segment(self) -> None:
        """Read a file of ``segment/`` in small steps."""
        part = self.pick("expiring", "wide", "lasting", "trimmed", "again", "ledger", "both", "compacted")
        before = self.segments_on_disk(part)
        if not before:
            return
        base = self.rng.choice(sorted(before))
        sight = self.sight("segment slowly", part, f"segment/{base:020}.jsonl")
        if self.in_steps(sight):
            self.judge_segment(sight, part, base, before)
        else:
            self.checker.gapless(sight)

    def slow_records(self) -> None:
        """Read ``records.jsonl``: some, then, after a pause that lets retention go on, the rest."""
        part = self.pick("expiring", "wide", "trimmed", "again", "ledger", "both", "compacted")
        sight = self.sight("records.jsonl slowly", part, "records.jsonl")
        if self.in_steps(sight):
            self.checker.complete(sight, None, None)
        else:
            self.checker.gapless(sight)

    def in_steps(self, sight: Sight) -> bool:
        """Read a file to its end with pauses; return whether it got there."""
        pause = self.rng.choice((0.0, 0.05, 0.3))
        stop_at, stop_for = self.rng.randrange(30_000), self.rng.uniform(*_HELD_SECONDS)
        until = time.monotonic() + 30
        kept = bytearray()
        done = 0
        with self.opened(sight, lambda: False) as descriptor:
            while time.monotonic() < until and not self.is_over():
                try:
                    data = os.read(descriptor, self.rng.randint(*_STEP_BYTES))
                except OSError as error:
                    if error.errno != errno.ESTALE:
                        raise
                    self.findings.note(f"ESTALE while open: {sight.kind}", self.mount.name)
                    return False
                if not data:
                    if len(kept) != done:
                        self.findings.add("cut line", self.mount.name, **sight.place, bytes=repr(kept[done:][:300]))
                    self.again(sight, descriptor, bytes(kept))
                    return True
                kept += data
                done = self.new_lines(sight, kept, done)
                if len(kept) > stop_at:
                    stop_at = 1 << 60
                    self.wait(stop_for)
                self.wait(pause)
        return False

    def new_lines(self, sight: Sight, kept: bytearray, done: int) -> int:
        """Check the lines that are complete; return where the next one begins."""
        end = kept.rfind(b"\n") + 1
        if end > done:
            for line in bytes(kept[done : end - 1]).split(b"\n"):
                self.checker.line(sight, line)
        return max(done, end)

    def again(self, sight: Sight, descriptor: int, before: bytes) -> None:
        """Read what is open once more: it must not have changed."""
        position = 0
        while position < len(before):
            try:
                data = os.pread(descriptor, min(self.rng.randint(1, 1 << 16), len(before) - position), position)
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                self.findings.note(f"ESTALE when read again: {sight.kind}", self.mount.name)
                return
            if not data or before[position : position + len(data)] != data:
                self.findings.add(
                    "open file changed",
                    self.mount.name,
                    **sight.place,
                    position=position,
                    now=repr(data[:200]),
                    bytes=repr(before[position : position + 200]),
                )
                return
            position += len(data)

    def follow(self) -> None:
        """``tail -f`` of ``records.jsonl`` or of the last segment's lines."""
        part = self.pick("expiring", "lasting", "wide", "trimmed", "ledger", "compacted")
        segments = self.segments_on_disk(part)
        if not segments:
            return
        base = max(segments)
        is_segment = self.rng.randrange(2) == 0
        name = f"segment/{base:020}.jsonl" if is_segment else "records.jsonl"
        sight = self.sight("tail -f", part, name)
        try:
            with self.opened(sight, lambda: False, may_change=True) as descriptor:
                is_at_end = self._follow(sight, descriptor, time.monotonic() + self.rng.uniform(5, 20))
                rolled = is_segment and max(self.segments_on_disk(part), default=base) != base
                if is_at_end and not rolled and not self.is_over():
                    self.caught_up(sight, part)
        finally:
            self.checker.gapless(sight)

    def _follow(self, sight: Sight, descriptor: int, until: float) -> bool:
        """Read what is there and what comes, from the beginning or near the end; return whether that was all."""
        kept = bytearray()
        done = 0
        data = b""
        if self.rng.randrange(2):
            os.lseek(descriptor, max(0, os.fstat(descriptor).st_size - _LAST_BYTES), os.SEEK_SET)
            kept += os.read(descriptor, _LAST_BYTES)
            done = kept.find(b"\n") + 1  # what is before that may be the end of a line
        while time.monotonic() < until and not self.is_over():
            data = os.read(descriptor, 1 << 16)
            kept += data
            done = self.new_lines(sight, kept, done)
            if not data:
                self.wait(0.2)
        return not data

    def caught_up(self, sight: Sight, part: Part) -> None:
        """Check that the last records that were read aren't long out of date."""
        if self.checker.lasting_part(sight) is not part or not sight.offsets:
            return
        since = part.stable_at if sight.committed else part.acked_at
        limit = time.time() - _FOLLOWED_WITHIN
        late = range(max(0, part.acked - 500), part.acked)
        newest = max((part.offsets[each] for each in late if since[each] < limit), default=-1)
        if newest > sight.offsets[-1]:
            self.findings.add(
                "tail -f stands still", self.mount.name, **sight.place, last=sight.offsets[-1], newest=newest
            )

    def held_record(self) -> None:
        """Open a record, and read it when it may be gone."""
        part = self.pick("expiring", "trimmed", "again", "compacted", "lasting", "many")
        offset = self.known_offset(part)
        sight = self.sight("offset held", part, f"offset/{offset}.json")
        with self.opened(sight, self.has(sight, offset), part.is_compacted) as descriptor:
            self.wait(self.rng.uniform(1, FRESHNESS + 8))
            self.checker.line(sight, os.read(descriptor, 1 << 20), offset)

    def wait(self, seconds: float) -> None:
        """Pause, unless the run is over."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.is_over():
            time.sleep(min(left, 0.2))
