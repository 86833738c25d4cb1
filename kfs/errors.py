"""All errors that kfs raises on purpose.

::

    KfsError
    ├── CorruptData          bytes that break their format: file, byte position, reason
    │   └── LimitExceeded    perhaps intact, but larger than a limit of kfs, which the message names
    ├── NotFound             no such topic, partition, offset or name (also a KeyError)
    │   └── Stale                something found earlier is gone, or has become something else
    ├── NotADirectory        a file where a directory is needed
    ├── IsADirectory         a directory where a file is needed
    ├── ReadOnly             any attempt to write
    ├── BadLine              a line or row that can't be imported: input, its number, reason
    ├── UnusableSource       a LOG_DIR that isn't a readable log directory
    ├── SourceLost           a directory that was deleted meanwhile, or can't be listed any more
    ├── Shortage             out of descriptors, maps or memory; nothing is wrong with the data
    ├── InvalidAppend        what Kafka doesn't accept in a log, neither as an append nor in a recovery
    │   ├── OffsetOverflow       an offset or position that a segment's indexes can't hold
    │   ├── InvalidOffset        a lower offset than before, where an index entry is due
    │   ├── IndexFull            an index without room for the entry that is due
    │   └── InvalidTransaction   a batch that doesn't fit its producer's open transaction
    ├── RecoveryRefused      a log that a broker refuses to start on, so --mode kafka refuses it too
    ├── OffsetStoreError     a position store that can't do what was requested
    │   ├── StoreUnreachable     the store doesn't answer; whether the last change was made may be unknown
    │   ├── CorruptStore         the store's content is invalid: place, reason
    │   ├── Fenced               another writer has taken over the group
    │   └── PositionMoved        the stored position isn't the beginning of the range to save
    ├── OutputLost           files of a batch that was saved are gone
    ├── WorkerDied           a worker process ended early: the output is incomplete
    ├── InvalidOption        an invalid option of a source
    ├── DataLoss             records that were requested, or planned to be read, don't exist (any more)
    ├── UnusableSession      a machine or a Spark session that can't run the request
    └── MountFailed          the kernel, libfuse or the mount point refused

FUSE and the command line each translate them in one place, by :attr:`KfsError.errno`.
"""

from __future__ import annotations

import errno as _errno
from typing import ClassVar


class KfsError(Exception):
    """The base class; ``errno`` is what a system call would report."""

    errno: ClassVar[int] = _errno.EIO


class CorruptData(KfsError):
    """Bytes that break their format.

    ``position`` is the byte position in ``file``; or in the buffer that was parsed, until a layer that knows the file
    has added it. ``reason`` says what was found and what was expected.
    """

    def __init__(self, reason: str, position: int = 0, file: str | None = None) -> None:
        super().__init__(reason, position, file)
        self.reason = reason
        self.position = position
        self.file = file
        #: Whether the error is among its log's problems already, and so was logged; it isn't reported twice.
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
    """Data that would need more memory than a limit, which the reason names."""


class NotFound(KfsError, KeyError):
    """A name or an offset that doesn't exist; mappings raise it for a missing key."""

    errno = _errno.ENOENT
    __str__ = Exception.__str__  # KeyError puts its message in quotes


class Stale(NotFound):
    """Something found earlier is gone, or its name belongs to something else; a new lookup finds the current state."""

    errno = _errno.ESTALE


class NotADirectory(KfsError):
    """A path with a component that isn't a directory."""

    errno = _errno.ENOTDIR


class IsADirectory(KfsError):
    """A directory where a file's content was requested."""

    errno = _errno.EISDIR


class ReadOnly(KfsError):
    """An attempt to write to the read-only tree."""

    errno = _errno.EROFS


class BadLine(KfsError):
    """A line that isn't a valid record, or whose record can't be kept as requested; ``number`` counts from 1.

    ``unit`` is what ``number`` counts: ``"line"`` or ``"row"``.
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
    """A LOG_DIR that is missing, unreadable, or has no Kafka files."""

    errno = _errno.ENOENT


class SourceLost(KfsError):
    """A source directory that can't be listed any more: an error, because its content is unknown, not empty.

    When found, it is added to the problems, and so logged.
    """


class Shortage(KfsError):
    """The system is temporarily short of descriptors, maps or memory.

    Nothing is wrong with the data, and nothing is cached: the same request may succeed a moment later.
    """


class InvalidAppend(KfsError):
    """Something that Kafka's own code doesn't accept in a log."""

    errno = _errno.EINVAL


class OffsetOverflow(InvalidAppend):
    """An offset or position that doesn't fit a segment (``LogSegmentOffsetOverflowException``)."""


class InvalidOffset(InvalidAppend):
    """An index entry that isn't above the one before it (``InvalidOffsetException``)."""


class IndexFull(InvalidAppend):
    """A full index, whose segment should have been rolled earlier."""


class InvalidTransaction(InvalidAppend):
    """A batch or marker that doesn't fit its producer's open transaction (``InvalidTxnStateException``)."""


class RecoveryRefused(KfsError):
    """A condition that keeps a broker from starting, in a recovery that does the same as a broker."""


class OffsetStoreError(KfsError):
    """A position store that can't do what was requested; the message says what to do about it."""


class StoreUnreachable(OffsetStoreError):
    """The position store doesn't answer; only when it answers again is it known whether a pending change was made."""


class CorruptStore(OffsetStoreError):
    """Invalid content of the position store; it is left as it is, unless the user forces its replacement."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class Fenced(OffsetStoreError):
    """Another writer has taken over the group, so this one must stop; its request was not carried out."""


class PositionMoved(OffsetStoreError):
    """A partition's stored position isn't where the range begins: records would be counted twice or not at all."""


class OutputLost(KfsError):
    """Files that are part of the output according to the store, but are neither staged nor in place."""


class WorkerDied(KfsError):
    """A worker process ended before its work was done; the output is incomplete."""


class InvalidOption(KfsError):
    """An option that is missing, unknown, contradicts another one, or has an invalid value."""

    errno = _errno.EINVAL


class DataLoss(KfsError):
    """Offsets that were requested, or planned to be read, but aren't in the log (any more)."""


class UnusableSession(KfsError):
    """Java, pyarrow or kfs itself is missing where Spark needs it, or has the wrong version."""


class MountFailed(KfsError):
    """The mount could not be made or removed; the message says what to do about it."""
