"""Readers of a mount, one for each kind of file: each opens something by path, reads it and has it checked."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import crc32c

from tests.soak.checks import Checker, Sight
from tests.soak.journal import FRESHNESS, Part
from tests.soak.mounts import SoakMount

_GONE: Final = (errno.ENOENT, errno.ENOTDIR)
#: Kafka's header of a batch up to the checksum: base offset, length, leader epoch, magic, CRC.
_HEADER: Final = struct.Struct(">qiibI")
_CHECKED_FROM: Final = 21
_LENGTH_FROM: Final = 12
_RECORDS: Final = 5


class Ended(Exception):
    """A read came to no end, and what that means has been written down."""


class Readers:
    """What can be read of one mount, as methods that read one thing chosen by ``rng``."""

    def __init__(
        self, mount: SoakMount, checker: Checker, rng: random.Random, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.is_over = is_over
        self.mount = mount
        self.checker = checker
        self.findings = checker.findings
        self.rng = rng

    # -- one read

    def sight(self, kind: str, part: Part, rest: str) -> Sight:
        """Begin to look at something of a partition."""
        path = f"{self.mount.root}/{part.topic}/{part.partition}/{rest}"
        self.findings.read(kind, self.mount.name)
        return Sight(self.mount.name, kind, path, part.topic, part.partition, self.mount.committed)

    @contextmanager
    def opened(self, sight: Sight, must_exist: Callable[[], bool], may_change: bool = False) -> Iterator[int]:
        """Open by path for the length of a block; all that goes wrong is judged here.

        ``must_exist`` says afterwards whether what the path leads to was there all the time; ``may_change`` whether
        it may have been replaced meanwhile, so that who has it open gets ESTALE.
        """
        try:
            descriptor = os.open(sight.path, os.O_RDONLY)
        except OSError as error:
            self._judge(sight, error, "open", must_exist)
            raise Ended from None
        try:
            yield descriptor
        except OSError as error:
            if error.errno == errno.ESTALE and (may_change or not must_exist()):
                self.findings.note(f"ESTALE while open: {sight.kind}", self.mount.name)
            else:
                self._judge(sight, error, "read", must_exist)
            raise Ended from None
        finally:
            os.close(descriptor)

    def _judge(self, sight: Sight, error: OSError, call: str, must_exist: Callable[[], bool]) -> None:
        number = error.errno or 0
        name = errno.errorcode.get(number, str(number))
        if number in _GONE and call == "open":
            if not must_exist():
                self.findings.note(f"{name} for what is gone: {sight.kind}", self.mount.name)
                return
        self.findings.add(f"{name} on {call}", self.mount.name, **sight.place)

    def whole(self, sight: Sight, must_exist: Callable[[], bool], may_change: bool = False) -> bytes:
        """Return all of a file, read at once."""
        with self.opened(sight, must_exist, may_change) as descriptor:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))

    def names(self, sight: Sight, must_exist: Callable[[], bool]) -> list[str]:
        """Return the names in a directory, in its order."""
        with self.opened(sight, must_exist) as descriptor:
            return os.listdir(descriptor)

    def is_there(self, sight: Sight) -> Callable[[], bool]:
        """Return what says whether the partition was there all the time."""
        return lambda: self.checker.lasting_part(sight) is not None

    def has_records(self, sight: Sight) -> Callable[[], bool]:
        """Return what says whether there was a record in the partition all the time."""
        return lambda: bool(self.checker.lasting(sight))

    def has(self, sight: Sight, offset: int) -> Callable[[], bool]:
        """Return what says whether that record was there all the time."""
        return lambda: offset in (self.checker.lasting(sight, offset) or ())

    def pick(self, *topics: str) -> Part:
        """Choose a partition."""
        return self.checker.journal.pick(self.rng, topics)

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
        raw = self.whole(sight, self.has(sight, offset))
        if raw.count(b"\n") != 1 or not raw.endswith(b"\n"):
            self.findings.add("not one line", self.mount.name, **sight.place, bytes=repr(raw[:300]), length=len(raw))
        self.checker.line(sight, raw, offset)

    def listing(self, part: Part) -> list[int]:
        """List ``offset/``; return the offsets, which have to be all there are."""
        sight = self.sight("ls offset", part, "offset")
        names = self.names(sight, self.is_there(sight))
        listed = [int(name.removesuffix(".json")) for name in names]
        if any(after <= before for before, after in zip(listed, listed[1:], strict=False)):
            self.findings.add("listing out of order", self.mount.name, **sight.place, listed=listed[:50])
        self.checker.complete(sight, None, None, listed)
        return listed

    def known_offset(self, part: Part) -> int:
        """Choose an offset that the partition has, or had lately."""
        return part.offsets[self.rng.randrange(max(0, part.acked - 400), part.acked)]

    def value(self) -> None:
        """Read ``value/<offset>`` of a record that its producer knows."""
        part = self.pick()
        offset = self.known_offset(part)
        sight = self.sight("value", part, f"value/{offset}")
        tombstone = part.tombstones[part.sequence_at(offset) or 0]
        raw = self.whole(sight, lambda: not tombstone and self.has(sight, offset)())
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
        self.checker.key(sight, offset, self.whole(sight, self.has(sight, offset)))

    def ends(self) -> None:
        """Open ``first.json`` and ``last.json`` by path."""
        for name in ("last.json", "first.json"):
            part = self.pick()
            sight = self.sight(name, part, name)
            start = self.checker.log_start(sight)

            def must_exist(name: str = name, part: Part = part, sight: Sight = sight, start: int | None = start) -> bool:
                if not self.checker.lasting(sight) or part.is_compacted:
                    return False
                # What the link says may be deleted before it is followed, which nobody can help.
                return name == "last.json" or (start is not None and start == self.checker.log_start(sight))

            self.checker.line(sight, self.whole(sight, must_exist))

    def at(self) -> None:
        """Open ``at/<time>.json`` of a moment not long ago."""
        part = self.pick()
        moment = int(time.time() * 1000) - self.rng.randint(0, 20_000)
        text = datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment % 1000:03}Z"
        sight = self.sight("at", part, f"at/{text}.json")

        def lasting() -> list[int]:
            offsets = self.checker.lasting(sight) or []
            return [each for each in offsets if part.timestamps[part.sequence_at(each) or 0] >= moment]

        # The record of that time may be deleted before the link is followed.
        found = self.checker.line(sight, self.whole(sight, lambda: self._stable_start(sight) and bool(lasting())))
        if found is None:
            return
        first = next(iter(lasting()), found.offset)
        if found.timestamp < moment or found.offset > first:
            self.findings.add("wrong time", self.mount.name, **sight.place, found=str(found), first=first)

    def _stable_start(self, sight: Sight) -> bool:
        """Whether the partition still begins where it did before ``sight``: only of those that nobody shortens."""
        return sight.topic in ("many", "lasting") and self.checker.lasting_part(sight) is not None and (
            (start := self.checker.log_start(sight)) is not None and start == 0
        )

    def hours(self) -> None:
        """Go down ``time/<day>/<hour>/``, and follow some of its links."""
        part = self.pick()
        sight = self.sight("time", part, "time")
        days = self.names(sight, self.is_there(sight))
        for day in days:
            below = self.sight("time", part, f"time/{day}")
            for hour in self.names(below, lambda: False):
                links = self.sight("time", part, f"time/{day}/{hour}")
                names = self.names(links, lambda: False)
                for name in self.rng.sample(names, min(_RECORDS, len(names))):
                    one = self.sight("time", part, f"time/{day}/{hour}/{name}")
                    offset = int(name.removesuffix(".json"))
                    found = self.checker.line(one, self.whole(one, self.has(one, offset)), offset)
                    if found and not datetime.fromtimestamp(found.timestamp / 1000, UTC).strftime("%Y-%m-%d/%H") == f"{day}/{hour}":
                        self.findings.add("wrong time", self.mount.name, **one.place, found=str(found))

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
            return base in before and before[base] == after.get(base) and self._stable_start(sight)

        self.lines(sight, self.whole(sight, unchanged))
        self.judge_segment(sight, part, base, before)

    def judge_segment(self, sight: Sight, part: Part, base: int, before: dict[int, int]) -> None:
        """Check that the lines of a segment, which were read to the end, are all that it has."""
        after = self.segments_on_disk(part)
        if base not in before or before[base] != after.get(base):
            self.checker.gapless(sight)
            return
        behind = min((each for each in after if each > base), default=None)
        if behind is not None and sight.offsets and sight.offsets[-1] >= behind:
            self.findings.add("foreign record", self.mount.name, **sight.place, error=f"segment ends at {behind}")
        self.checker.complete(sight, base, behind)

    def segments_on_disk(self, part: Part) -> dict[int, int]:
        """Return the inodes of the ``.log`` files by base offset."""
        found = {}
        try:
            with os.scandir(self.mount.data / part.name) as entries:
                for entry in entries:
                    if entry.name.endswith(".log"):
                        found[int(entry.name.removesuffix(".log"))] = entry.inode()
        except FileNotFoundError:
            pass
        return found

    def records(self) -> None:
        """Read ``records.jsonl`` at once."""
        part = self.pick()
        sight = self.sight("records.jsonl", part, "records.jsonl")
        raw = self.whole(sight, lambda: self._stable_start(sight) and not part.is_compacted)
        self.lines(sight, raw)
        self.checker.complete(sight, None, None)

    def lines(self, sight: Sight, raw: bytes) -> None:
        """Check lines that were read to the end."""
        *lines, rest = raw.split(b"\n")
        for line in lines:
            self.checker.line(sight, line)
        if rest:
            self.findings.add("cut line", self.mount.name, **sight.place, bytes=repr(rest[:300]))

    # -- the rest

    def meta(self) -> None:
        """Read all that is in ``meta/``."""
        part = self.pick()
        sight = self.sight("ls meta", part, "meta")
        for name in self.names(sight, self.is_there(sight)):
            file = self.sight("meta", part, f"meta/{name}")
            raw = self.whole(file, self.is_there(file))
            self.documents(file, raw)
            if name == "problems.jsonl" and raw:
                self.findings.add("problem of a healthy log", self.mount.name, **file.place, bytes=raw[:400].decode())

    def documents(self, sight: Sight, raw: bytes) -> None:
        """Check that JSON is JSON."""
        try:
            for text in raw.splitlines() if sight.path.endswith(".jsonl") else [raw]:
                json.loads(text)
        except ValueError as error:
            self.findings.add("not JSON", self.mount.name, **sight.place, error=str(error), bytes=repr(raw[:300]))

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
        """Read everything in ``.kfs/``."""
        self._about(f"{self.mount.root}/.kfs")

    def _about(self, path: str) -> None:
        sight = Sight(self.mount.name, ".kfs", path, "", -1)
        for name in self.names(sight, lambda: path.endswith(".kfs")):
            below = f"{path}/{name}"
            if below.endswith(".kfs/deleted"):
                continue  # has records, and a reader of its own
            file = Sight(self.mount.name, ".kfs", below, "", -1)
            if not name.endswith((".json", ".jsonl", "README")):
                self._about(below)
                continue
            self.findings.read(".kfs", self.mount.name)
            try:
                raw = self.whole(file, lambda: False)
            except Ended:
                continue
            if name.endswith(("json", "jsonl")):
                self.documents(file, raw)

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
        """``ls`` of all topics and partitions, and of what is in some of them."""
        journal = self.checker.journal
        since = time.time() - FRESHNESS
        sight = Sight(self.mount.name, "ls", self.mount.root, "", -1)
        self.findings.read("ls", self.mount.name)
        topics = self.names(sight, lambda: True)
        expected = {part.topic for part in journal.parts() if part.acked and part.acked_at[0] < since}
        for topic in expected:
            if topic not in topics and journal.alive(topic, since, time.time()):
                self.findings.add("not listed", self.mount.name, path=topic, listed=topics)
        for topic in topics:
            if topic.startswith((".", "__")):
                continue
            below = Sight(self.mount.name, "ls", f"{self.mount.root}/{topic}", topic, -1)
            names = self.names(below, lambda topic=topic: journal.alive(topic, since, time.time()) is not None)
            alive = journal.alive(topic, since, time.time())
            missing = [
                part.partition
                for part in (alive.parts if alive else ())
                if part.acked and part.acked_at[0] < since and str(part.partition) not in names
            ]
            if missing:
                self.findings.add("not listed", self.mount.name, path=topic, missing=missing)

    def many(self) -> None:
        """``ls -l`` in the topic of many partitions: all have to be complete, one after another."""
        many = self.checker.journal.generation("many", 0)
        for part in many.parts if many else ():
            if self.is_over():
                return
            self.listing(part)
