"""One of a broker's ``log.dirs``: its properties and its checkpoint files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData, Shortage, SourceLost
from kfs.format.checkpoint import TopicPartition, parse_offset_checkpoint
from kfs.log.directory_name import parse_directory_name
from kfs.log.problem import Problems
from kfs.storage.listing import list_names
from kfs.storage.side_file import Watched, read_side_file
from kfs.storage.status import is_there, kind_at, status_at

if TYPE_CHECKING:
    from kfs.format.properties import MetaProperties

LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
META_PROPERTIES: Final = "meta.properties"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
#: Files whose presence marks a directory as one of ``log.dirs``.
MARKERS: Final = (*CHECKPOINTS, META_PROPERTIES, BOOTSTRAP_CHECKPOINT, CLEAN_SHUTDOWN)
_LOOK_AGAIN_SECONDS: Final = 0.5


def is_log_dir(path: str, names: Sequence[str]) -> bool:
    """Whether a directory with these file names is one of ``log.dirs``: it has broker files or partitions."""
    if any(name in MARKERS for name in names):
        return True
    return any(parse_directory_name(name) and kind_at(os.path.join(path, name)).may_be_directory for name in names)


class LogDir:
    """A log directory; checkpoints are read on demand, and again after they have changed."""

    def __init__(self, path: str, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self._checkpoints: dict[str, _Checkpoint] = {}
        self._device = _device_of(path)
        self._had_markers = any(is_there(os.path.join(path, name)) for name in MARKERS)

    def check_is_there(self, names: Sequence[str] | None = None) -> None:
        """Raise :class:`SourceLost` if the directory is gone, for example because its disk was unmounted or replaced.

        ``names`` are the file names in it, if already known. A directory that never had anything but partitions may be
        empty now.
        """
        try:
            names = list_names(self.path) if names is None else names
        except OSError as error:
            raise SourceLost(f"{self.path}: can't be listed: {error.strerror}") from None
        is_another = self._had_markers or _device_of(self.path) != self._device
        if is_another and not is_log_dir(self.path, names):
            raise SourceLost(f"{self.path}: no longer a log directory: it has no files of Kafka's left")

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets of a checkpoint file; empty if it is missing or unreadable; the latter is a problem."""
        return self._offsets(name) or {}

    def has_checkpoint(self, name: str) -> bool:
        """Whether a checkpoint file exists and can be read."""
        return self._offsets(name) is not None

    def _offsets(self, name: str) -> dict[TopicPartition, int] | None:
        known = self._checkpoints.get(name)
        if known is None:
            known = self._checkpoints.setdefault(name, _Checkpoint(os.path.join(self.path, name)))
        return known.offsets(self.problems)

    def look_again(self) -> None:
        """Check all checkpoint files at their next use, because one may have changed."""
        for checkpoint in list(self._checkpoints.values()):
            checkpoint.look_again()

    def freeze(self) -> None:
        """Keep the present offsets of all checkpoints from now on."""
        for name in CHECKPOINTS:
            self._offsets(name)
            self._checkpoints[name].is_frozen = True

    def meta_properties(self) -> MetaProperties | None:
        """Return ``meta.properties``; None if it is missing or unreadable; the latter is a problem."""
        from kfs.format.properties import parse_meta_properties  # only here: readers of records don't need it

        try:
            return read_side_file(os.path.join(self.path, META_PROPERTIES), parse_meta_properties)
        except CorruptData as error:
            self.problems.add_error(error)
            return None


def _device_of(path: str) -> int | None:
    try:
        return status_at(path).device
    except OSError:
        return None


class _Checkpoint:
    """The offsets of one checkpoint file, reread when the broker rewrites it; None if it can't be read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_frozen = False
        self._offsets: dict[TopicPartition, int] | None = None
        self._looked = -1.0
        self._watched = Watched()
        self._looking = threading.Lock()

    def offsets(self, problems: Problems) -> dict[TopicPartition, int] | None:
        with self._looking:
            if self.is_frozen:
                return self._offsets
            if self._looked < 0 or time.monotonic() - self._looked >= _LOOK_AGAIN_SECONDS:
                self._look(problems)
                self._looked = time.monotonic()
            return self._offsets

    def look_again(self) -> None:
        with self._looking:
            self._looked = -1.0

    def _look(self, problems: Problems) -> None:
        if self._watched.changed(self.path):
            problems.forget_file(self.path)
            try:
                self._offsets = read_side_file(self.path, parse_offset_checkpoint)
            except CorruptData as error:
                problems.add_error(error)
                self._offsets = None
            except Shortage:
                self._watched.look_again()
                raise
