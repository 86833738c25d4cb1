"""Readers of a mount, one for each kind of file: each opens something by path, reads it and has it checked."""

from __future__ import annotations

import json
import os
import struct
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

import crc32c

from tests.soak.checks import Line, Sight
from tests.soak.journal import FRESHNESS, Part
from tests.soak.reading import Ended, Reading

#: Kafka's header of a batch up to the checksum: base offset, length, leader epoch, magic, CRC.
_HEADER: Final = struct.Struct(">qiibI")
_CHECKED_FROM: Final = 21
_LENGTH_FROM: Final = 12
_RECORDS: Final = 5
#: Files of ``.kfs`` that aren't JSON.
_TEXTS: Final = ("README", "metrics")


class Readers(Reading):
    """Each method reads one thing, at once."""

    # -- single records

    def offset(self) -> None:
        """List ``offset/``, and read some of what it lists."""
        part = self.pick()
        listed = self.listing(part)
        for offset in self.rng.sample(listed, min(_RECORDS, len(listed))):
            self.one_record("offset", part, offset)

    def one_record(self, kind: str, part: Part, offset: int) -> None:
        """Read ``offset/<offset>.json``."""
        sight = self.sight(kind, part, f"offset/{offset}.json")
        raw = self.whole(sight, self.has(sight, offset), part.is_compacted)
        if raw.count(b"\n") != 1 or not raw.endswith(b"\n"):
            self.findings.add("not one line", self.mount.name, **sight.place, bytes=repr(raw[:300]), length=len(raw))
        self.checker.line(sight, raw, offset)

    def listing(self, part: Part) -> list[int]:
        """List ``offset/``; return the offsets, which have to be all there are."""
        sight = self.sight("ls offset", part, "offset")
        names = self.names(sight, self.is_there(sight))
        listed = [int(name.removesuffix(".json")) for name in names]
        if any(after <= before for before, after in pairwise(listed)):
            self.findings.add("listing out of order", self.mount.name, **sight.place, listed=listed[:50])
        self.checker.complete(sight, None, None, listed)
        return listed

    def value(self) -> None:
        """Read ``value/<offset>`` of a record that its producer knows."""
        part = self.pick()
        offset = self.known_offset(part)
        sight = self.sight("value", part, f"value/{offset}")
        tombstone = part.tombstones[part.sequence_at(offset) or 0]
        raw = self.whole(sight, lambda: not tombstone and self.has(sight, offset)(), part.is_compacted)
        if self.checker.value(sight, offset, raw) is None:
            return
        with self.opened(sight, lambda: False) as descriptor:  # once more, in pieces
            pieces = [os.read(descriptor, 100) for _ in range(len(raw) // 100 + 2)]
            if b"".join(pieces) != raw:
                self.findings.add("wrong record", self.mount.name, **sight.place, error="another value in pieces")

    def key(self) -> None:
        """Read ``key/<offset>``."""
        part = self.pick("compacted", "both")
        offset = self.known_offset(part)
        sight = self.sight("key", part, f"key/{offset}")
        self.checker.key(sight, offset, self.whole(sight, self.has(sight, offset), part.is_compacted))

    def last(self) -> None:
        """Open ``last.json`` by path."""
        part = self.pick()
        sight = self.sight("last.json", part, "last.json")
        self.checker.line(sight, self.whole(sight, lambda: not part.is_compacted and self.has_records(sight)()))

    def first(self) -> None:
        """Open ``first.json`` by path."""
        part = self.pick()
        sight = self.sight("first.json", part, "first.json")
        # That the record is deleted before the link is followed, nobody can help.
        self.checker.line(sight, self.whole(sight, lambda: self.is_unmoved(sight) and self.has_records(sight)()))

    def at(self) -> None:
        """Open ``at/<time>.json`` of a moment not long ago."""
        part = self.pick()
        moment = int(time.time() * 1000) - self.rng.randint(0, 20_000)
        text = datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment % 1000:03}Z"
        sight = self.sight("at", part, f"at/{text}.json")

        def lasting() -> list[int]:
            offsets = self.checker.lasting(sight) or []
            return [each for each in offsets if part.timestamps[part.sequence_at(each) or 0] >= moment]

        found = self.checker.line(sight, self.whole(sight, lambda: self.is_unmoved(sight) and bool(lasting())))
        if found is None:
            return
        first = next(iter(lasting()), found.offset)
        if found.timestamp < moment or found.offset > first:
            self._wrong_time(sight, found, first=first)

    def hours(self) -> None:
        """Go down ``time/<day>/<hour>/``, and follow some of its links."""
        part = self.pick()
        sight = self.sight("time", part, "time")
        for day in self.names(sight, self.is_there(sight)):
            for hour in self.names(self.sight("time", part, f"time/{day}"), lambda: False):
                self._hour(part, f"{day}/{hour}")

    def _hour(self, part: Part, hour: str) -> None:
        names = self.names(self.sight("time", part, f"time/{hour}"), lambda: False)
        for name in self.rng.sample(names, min(_RECORDS, len(names))):
            sight = self.sight("time", part, f"time/{hour}/{name}")
            offset = int(name.removesuffix(".json"))
            raw = self.whole(sight, self.has(sight, offset), part.is_compacted)
            found = self.checker.line(sight, raw, offset)
            if found and datetime.fromtimestamp(found.timestamp / 1000, UTC).strftime("%Y-%m-%d/%H") != hour:
                self._wrong_time(sight, found)

    def _wrong_time(self, sight: Sight, found: Line, **details: object) -> None:
        self.findings.add("wrong time", self.mount.name, **sight.place, found=str(found), **details)

    # -- many records

    def segment(self) -> None:
        """Read a file of ``segment/`` at once."""
        part = self.pick()
        listed = self.sight("ls segment", part, "segment")
        names = self.names(listed, self.is_there(listed))
        if not names:
            return
        base = int(self.rng.choice(names).removesuffix(".jsonl"))
        before = self.segments_on_disk(part)
        sight = self.sight("segment", part, f"segment/{base:020}.jsonl")

        def unchanged() -> bool:
            after = self.segments_on_disk(part)
            is_same = base in before and base in after and before[base].inode == after[base].inode
            return is_same and self.is_unmoved(sight)

        self.lines(sight, self.whole(sight, unchanged))
        self.judge_segment(sight, part, base, before)

    def records(self) -> None:
        """Read ``records.jsonl`` at once."""
        part = self.pick()
        sight = self.sight("records.jsonl", part, "records.jsonl")
        raw = self.whole(sight, lambda: self.is_unmoved(sight))
        self.lines(sight, raw)
        self.checker.complete(sight, None, None)

    # -- the rest

    def meta(self) -> None:
        """Read all that is in ``meta/``."""
        part = self.pick()
        sight = self.sight("ls meta", part, "meta")
        for name in self.names(sight, self.is_there(sight)):
            file = self.sight("meta", part, f"meta/{name}")
            raw = self.whole(file, self.is_there(file), may_change=True)
            self.documents(file, raw)
            if name == "problems.jsonl" and raw:
                self.findings.add("problem of a healthy log", self.mount.name, **file.place, bytes=raw[:400].decode())

    def documents(self, sight: Sight, raw: bytes) -> None:
        """Check that JSON is JSON."""
        try:
            for text in raw.splitlines() if sight.path.endswith(".jsonl") else [raw]:
                json.loads(text)
        except ValueError as error:
            self.findings.add(
                "not JSON",
                self.mount.name,
                **sight.place,
                error=str(error),
                bytes=repr(raw[:200]),
                end=repr(raw[-200:]),
            )

    def raw(self) -> None:
        """Read Kafka's own files."""
        part = self.pick()
        sight = self.sight("ls raw", part, "raw")
        names = self.names(sight, self.is_there(sight))
        for name in self.rng.sample(names, min(3, len(names))):
            file = self.sight("raw", part, f"raw/{name}")
            content = self.whole(file, lambda: False, may_change=True)
            if name.endswith(".log"):
                self.batches(file, content)

    def batches(self, sight: Sight, content: bytes) -> None:
        """Check the CRC of every whole batch."""
        position = 0
        while position + _HEADER.size <= len(content):
            _, length, _, magic, checksum = _HEADER.unpack_from(content, position)
            end = position + _LENGTH_FROM + length
            if length <= 0 or end > len(content):
                break
            if magic != 2 or crc32c.crc32c(content[position + _CHECKED_FROM : end]) != checksum:
                self.findings.add("wrong batch", self.mount.name, **sight.place, position=position)
                return
            position = end

    def about(self) -> None:
        """Read everything in ``.kfs/`` but records, which have a reader of their own."""
        self._about(f"{self.mount.root}/.kfs")

    def _about(self, path: str) -> None:
        is_top = path.endswith(".kfs")
        for name in self.names(Sight(self.mount.name, ".kfs", path, "", -1), lambda: is_top):
            below = f"{path}/{name}"
            try:
                if name.endswith((".json", ".jsonl", *_TEXTS)):
                    self._about_file(Sight(self.mount.name, ".kfs", below, "", -1))
                elif not is_top or name not in ("deleted", "replicas"):
                    self._about(below)
            except Ended:
                continue

    def _about_file(self, sight: Sight) -> None:
        self.findings.read(".kfs", self.mount.name)
        raw = self.whole(sight, lambda: False)
        if not sight.path.endswith(_TEXTS):
            self.documents(sight, raw)

    def deleted(self) -> None:
        """Read records of ``.kfs/deleted/``."""
        top = f"{self.mount.root}/.kfs/deleted"
        for topic in self.names(Sight(self.mount.name, "deleted", top, "", -1), lambda: True):
            for name in self.names(Sight(self.mount.name, "deleted", f"{top}/{topic}", "", -1), lambda: False):
                partition = int(name.partition(".")[0])
                path = f"{top}/{topic}/{name}/records.jsonl"
                self.findings.read("deleted", self.mount.name)
                sight = Sight(self.mount.name, "deleted", path, topic, partition, self.mount.committed, True)
                try:
                    raw = self.whole(sight, lambda: False)
                except Ended:
                    continue
                self.lines(sight, raw)

    def walk(self) -> None:
        """``ls`` of all topics and of their partitions."""
        since = time.time() - FRESHNESS
        sight = Sight(self.mount.name, "ls", self.mount.root, "", -1)
        self.findings.read("ls", self.mount.name)
        topics = self.names(sight, lambda: True)
        parts = [part for part in self.checker.journal.parts() if part.acked and part.acked_at[0] < since]
        listed = {(topic, name) for topic in topics if topic[0] not in "._" for name in self._partitions(topic, since)}
        missing = [
            part.name
            for part in parts
            if (part.topic, str(part.partition)) not in listed
            and self.checker.journal.alive(part.topic, since, time.time())
        ]
        if missing and not self.mount.outages.since(sight.opened_at):
            self.findings.add("not listed", self.mount.name, **sight.place, missing=missing[:50])

    def _partitions(self, topic: str, since: float) -> list[str]:
        sight = Sight(self.mount.name, "ls", f"{self.mount.root}/{topic}", topic, -1)
        try:
            return self.names(sight, lambda: self.checker.journal.alive(topic, since, time.time()) is not None)
        except Ended:
            return []

    def many(self) -> None:
        """``ls -l`` in the topic of many partitions: all have to be complete, one after another."""
        many = self.checker.journal.generation("many", 0)
        for part in many.parts if many else ():
            if self.is_over():
                return
            self.listing(part)
