"""Every error that kfs raises on purpose.

::

    KfsError
    ├── CorruptData          bytes that break their format: file, byte position, reason
    │   └── LimitExceeded    intact perhaps, but larger than a limit of ours, which it names
    ├── NotFound             no such topic, partition, offset or name (a KeyError, too)
    │   └── Stale                what was found before is gone, or has become something else
    ├── NotADirectory        a file where a directory was needed
    ├── IsADirectory         a directory where a file was needed
    ├── ReadOnly             any attempt to write
    ├── BadLine              a line or row that can't be imported: input, its number, reason
    ├── UnusableSource       a LOG_DIR that cannot be read as one
    ├── SourceLost           a directory that was there and is gone, or can't be listed any more
    ├── Shortage             descriptors, maps or memory are used up: nothing is wrong with the data
    ├── InvalidAppend        what Kafka doesn't let into a log, whether it is appended or recovered
    │   ├── OffsetOverflow       an offset or position that a segment's indexes can't hold
    │   ├── InvalidOffset        an offset that goes back where an index entry is due
    │   ├── IndexFull            an index that has no place for the entry that is due
    │   └── InvalidTransaction   a batch that doesn't fit its producer's open transaction
    ├── RecoveryRefused      a log that no broker would start on, so that --mode kafka doesn't either
    ├── OffsetStoreError     a place where positions are kept that won't do what was asked
    │   ├── StoreUnreachable     no answer from there; whether the last change was made may be unknown
    │   ├── CorruptStore         what is stored there is not what it has to be: place, reason
    │   ├── Fenced               another writer has taken the group over
    │   └── PositionMoved        the position is not the one that the range to be saved begins at
    ├── OutputLost           files of a batch that was saved are gone
    ├── WorkerDied           a process of ours ended early: the output is not complete
    ├── InvalidOption        an option of a source that can't be meant as it is given
    ├── DataLoss             records that were asked for, or planned to be read, are not there (any more)
    ├── UnusableSession      a machine or a Spark session that what was asked for can't run on
    └── MountFailed          the kernel, libfuse or the mount point said no

The edges (FUSE, the command line) translate them in one place each, by :attr:`KfsError.errno`.
"""

from __future__ import annotations

import errno as _errno
from typing import ClassVar


class KfsError(Exception):
    """The root of the tree; ``errno`` is what a system call would report for it."""

    errno: ClassVar[int] = _errno.EIO


class CorruptData(KfsError):
    """Bytes that are not what their format promises.

    ``position`` is the byte position in ``file`` (or, until a layer that knows the file has added
    it, in the buffer that was parsed); ``reason`` says what was found and what was expected.
    """

    def __init__(self, reason: str, position: int = 0, file: str | None = None) -> None:
        super().__init__(reason, position, file)
        self.reason = reason
        self.position = position
        self.file = file
        #: Whether it stands among the problems of its log, and so was logged: once is enough.
        self.reported = False

    def __str__(self) -> str:
        where = self.file if self.file is not None else "<bytes>"
        return f"{where}: position {self.position}: {self.reason}"

    def located(self, file: str, base: int = 0) -> CorruptData:
        """Return the same error placed in ``file``, its position moved up by ``base`` bytes."""
        error = type(self)(self.reason, self.position + base, file)
        error.reported = self.reported
        return error


class LimitExceeded(CorruptData):
    """Data that would need more memory than the limit that the reason names."""


class NotFound(KfsError, KeyError):
    """There is nothing of that name, or at that offset: what a mapping without the key raises."""

    errno = _errno.ENOENT
    __str__ = Exception.__str__  # KeyError's own puts a sentence in quotes


class Stale(NotFound):
    """What was found before is gone, or something else has its name: a new look finds what is there now."""

    errno = _errno.ESTALE


class NotADirectory(KfsError):
    """A path goes through something that is not a directory."""

    errno = _errno.ENOTDIR


class IsADirectory(KfsError):
    """A directory where bytes were asked for."""

    errno = _errno.EISDIR


class ReadOnly(KfsError):
    """kfs never writes to what it shows."""

    errno = _errno.EROFS


class BadLine(KfsError):
    """A line that is not a record's, or is of one that can't be kept as asked for; ``number`` counts from 1.

    ``unit`` is what is numbered: a line, or a row.
    """

    errno = _errno.EINVAL

    def __init__(self, source: str, number: int, reason: str, unit: str = "line") -> None:
        super().__init__(source, number, reason, unit)
        self.source = source
        self.number = number
        self.reason = reason
        self.unit = unit

    def __str__(self) -> str:
        return f"{self.source}: {self.unit} {self.number}: {self.reason}"


class UnusableSource(KfsError):
    """A LOG_DIR that is missing, unreadable, or holds nothing of Kafka's."""

    errno = _errno.ENOENT


class SourceLost(KfsError):
    """A directory of the source that can't be listed any more: what it holds isn't known, and an error, not nothing.

    It stands among the problems, and so was logged, where it was found.
    """


class Shortage(KfsError):
    """What the system has too little of just now: descriptors, maps or memory.

    Nothing is wrong with the data, and nothing is remembered of it: the same question may be answered a moment later.
    """


class InvalidAppend(KfsError):
    """What Kafka's own code refuses to have in a log."""

    errno = _errno.EINVAL


class OffsetOverflow(InvalidAppend):
    """An offset or a position that doesn't fit a segment (``LogSegmentOffsetOverflowException``)."""


class InvalidOffset(InvalidAppend):
    """An index entry that isn't above the one before it (``InvalidOffsetException``)."""


class IndexFull(InvalidAppend):
    """An index that should have been rolled before."""


class InvalidTransaction(InvalidAppend):
    """A batch or marker that doesn't fit the transaction its producer has open (``InvalidTxnStateException``)."""


class RecoveryRefused(KfsError):
    """What keeps a broker from starting, where what it would leave was asked for."""


class OffsetStoreError(KfsError):
    """A place where positions are kept that won't do what was asked; the message says what to do about it."""


class StoreUnreachable(OffsetStoreError):
    """No answer from where positions are kept; whether a change under way was made is known when it answers again."""


class CorruptStore(OffsetStoreError):
    """Something stored that can't be understood: it is left as it is, unless replacing it is forced by hand."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class Fenced(OffsetStoreError):
    """Another writer has taken the group over, so this one has to stop; nothing of what it asked for was done."""


class PositionMoved(OffsetStoreError):
    """The stored position of a partition is not where a range begins: records would count twice, or not at all."""


class OutputLost(KfsError):
    """Files that the store says are part of the output are neither staged nor in their place."""


class WorkerDied(KfsError):
    """A process of ours ended without having done its work; the output is not complete."""


class InvalidOption(KfsError):
    """An option that is missing, unknown, contradicts another one, or has a value that it can't have."""

    errno = _errno.EINVAL


class DataLoss(KfsError):
    """Offsets that were asked for, or planned to be read, and that the log doesn't reach (any more)."""


class UnusableSession(KfsError):
    """Java, pyarrow or kfs itself is missing where Spark needs it, or is not the one that it has to be."""


class MountFailed(KfsError):
    """The mount could not be made or taken away; the message says what to do about it."""
