"""The directories of what was shown: waiting for changes in them, and knowing which partitions these concern."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from kfs.log.log import Log
from kfs.log.log_dir import CHECKPOINTS, LogDir
from kfs.log.partition_directory import PARTITION_METADATA
from kfs.storage.changes import Changes, fair_share_of_watches
from kfs.tree.node import LIVE
from kfs.tree.partition_view import PartitionView

#: How often to look, in seconds, where events tell of changes: not everything that a system can do makes one.
SELDOM_SECONDS: Final = 5.0


class Told(NamedTuple):
    """What events reported: partitions that may have changed, and the names of checkpoint files that have."""

    views: list[PartitionView]
    checkpoints: set[str]


class WatchedDirectories:
    """The directories of partitions, and of the log directories with their checkpoints."""

    def __init__(self) -> None:
        self._changes = Changes(often=LIVE, seldom=SELDOM_SECONDS, most=fair_share_of_watches())
        self._views: dict[str, tuple[PartitionView, ...]] = {}
        self._log_dirs: dict[str, LogDir] = {}

    def add(self, view: PartitionView) -> None:
        """Wait for changes of a partition from now on, too."""
        directory = view.log.directory
        if directory.log_dir is not None:
            self._log_dirs[directory.log_dir.path] = directory.log_dir
        views = self._views.get(directory.path, ())
        if view not in views:
            self._views[directory.path] = (*views, view)

    def discard(self, view: PartitionView) -> None:
        """Wait for changes of a partition no longer."""
        path = view.log.directory.path
        left = tuple(each for each in self._views.get(path, ()) if each is not view)
        if left:
            self._views[path] = left
        elif self._views.pop(path, None) is not None:
            self._changes.discard(path)

    def tells(self, view: PartitionView) -> bool:
        """Whether events report every later change of a partition, whose directory may have been replaced meanwhile."""
        directory = view.log.directory
        return self._tells_checkpoints(directory.log_dir) and self._changes.add(directory.path)

    def _tells_checkpoints(self, log_dir: LogDir | None) -> bool:
        if log_dir is None:
            return True
        was_told = self._changes.is_told(log_dir.path)
        is_told = self._changes.add(log_dir.path)
        if is_told and not was_told:  # what changed before made no event
            log_dir.look_again()
        return is_told

    def at(self, path: str) -> tuple[PartitionView, ...]:
        """Return the partitions in the directory at ``path``."""
        return self._views.get(path, ())

    def wait(self, seconds: float) -> Told | None:
        """Wait at most ``seconds`` for a change; return what events report, None if any partition may have changed."""
        changed = self._changes.wait(seconds)
        if changed is None:
            return None
        told = Told([], set())
        for path, names in changed.items():
            log_dir = self._log_dirs.get(path)
            if log_dir is not None and not names.isdisjoint(CHECKPOINTS):
                log_dir.look_again()
                told.checkpoints.update(names.intersection(CHECKPOINTS))
            told.views.extend(view for view in self.at(path) if _may_break_promises(view.log, names))
        return told

    def wake(self) -> None:
        """End a wait, from any thread."""
        self._changes.wake()

    def close(self) -> None:
        """Release the descriptors."""
        self._changes.close()


def _may_break_promises(log: Log, names: Collection[str]) -> bool:
    """Whether a change of files with these names, in the directory of a log, may be more than an append."""
    last = log.known_last_base_offset
    appended = "" if last is None else f"{last:020d}.log"
    return any(not name or name == PARTITION_METADATA or (".log" in name and name != appended) for name in names)
