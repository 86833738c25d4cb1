"""One read of a mount: what is opened, and what its errors mean."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from tests.soak.checks import Checker, Sight
from tests.soak.journal import FRESHNESS, Part
from tests.soak.mounts import SoakMount

_GONE: Final = (errno.ENOENT, errno.ENOTDIR)


class Ended(Exception):
    """A read came to no end, and what that means has been written down."""


class Found(NamedTuple):
    """A file of the broker's: which one it is, and when it got its name or was last written to."""

    inode: int
    changed_at: float


class Reading:
    """Reads of one mount; what is read is chosen by ``rng``."""

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
        it may have been replaced meanwhile, as by compaction, so that who has it open gets ESTALE.
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
            self._close(sight, descriptor)

    def _close(self, sight: Sight, descriptor: int) -> None:
        try:
            os.close(descriptor)
        except OSError:
            if not self.mount.outages.since(sight.opened_at):
                raise

    def _judge(self, sight: Sight, error: OSError, call: str, must_exist: Callable[[], bool]) -> None:
        number = error.errno or 0
        name = errno.errorcode.get(number, str(number))
        if self.mount.outages.since(sight.opened_at):
            self.findings.note(f"{name} around a kill", self.mount.name)
            return
        if number in _GONE and call == "open" and not must_exist():
            self.findings.note(f"{name} for what is gone: {sight.kind}", self.mount.name)
            return
        self.findings.add(f"{name} on {call}", self.mount.name, **sight.place)

    def whole(self, sight: Sight, must_exist: Callable[[], bool], may_change: bool = False) -> bytes:
        """Return all of a file, read at once."""
        with self.opened(sight, must_exist, may_change) as descriptor:
            return b"".join(iter(lambda: os.read(descriptor, 1 << 20), b""))

    def names(self, sight: Sight, must_exist: Callable[[], bool]) -> list[str]:
        """Return the names in a directory, in its order.

        Linux says ENOENT of any directory that was removed after it was opened (``iterate_dir``). Through libfuse that
        is how it ends, too: an open directory's ``fstat`` is asked for by its path.
        """
        with self.opened(sight, must_exist) as descriptor:
            try:
                return os.listdir(descriptor)
            except OSError as error:
                if error.errno != errno.ENOENT or must_exist():
                    raise
        self.findings.note(f"ENOENT for a directory that is gone: {sight.kind}", self.mount.name)
        raise Ended

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

    def is_unmoved(self, sight: Sight) -> bool:
        """Whether nothing was taken from the partition's beginning, nor from its midst, since it was opened."""
        part, start = self.checker.lasting_part(sight), self.checker.log_start(sight)
        if part is None or part.is_compacted or start is None:
            return False
        return start == part.log_start and part.moved_at < sight.opened_at - FRESHNESS

    def known_offset(self, part: Part) -> int:
        """Choose an offset that the partition has, or had lately."""
        return part.offsets[self.rng.randrange(max(0, part.acked - 400), part.acked)]

    # -- what many readers do

    def lines(self, sight: Sight, raw: bytes) -> None:
        """Check lines that were read to the end."""
        *lines, rest = raw.split(b"\n")
        for line in lines:
            self.checker.line(sight, line)
        if rest:
            self.findings.add("cut line", self.mount.name, **sight.place, bytes=repr(rest[:300]))

    def judge_segment(self, sight: Sight, part: Part, base: int, before: dict[int, Found]) -> None:
        """Check that the lines of a segment, which were read to the end, are all that it has."""
        after = self.segments_on_disk(part)
        found = before.get(base)
        is_new = found is None or (part.is_compacted and found.changed_at > sight.opened_at - FRESHNESS)
        if is_new or found is None or base not in after or found.inode != after[base].inode:
            self.checker.gapless(sight)
            return
        behind = min((each for each in after if each > base), default=None)
        if behind is not None and sight.offsets and sight.offsets[-1] >= behind:
            self.findings.add("foreign record", self.mount.name, **sight.place, error=f"segment ends at {behind}")
        self.checker.complete(sight, base, behind)

    def segments_on_disk(self, part: Part) -> dict[int, Found]:
        """Return the ``.log`` files that the broker has, by base offset."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self.mount.data / part.name) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    with suppress(FileNotFoundError):
                        status = entry.stat()
                        found[int(entry.name.removesuffix(".log"))] = Found(status.st_ino, status.st_ctime)
        return found
