"""Looking for what makes a promise of "for ever" untrue: segments that are cut, replaced or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData, Shortage, SourceLost
from kfs.tree.names import segment_names
from kfs.tree.node import Invalidation

if TYPE_CHECKING:
    from kfs.log.log import Log
    from kfs.tree.context import TreeContext
    from kfs.tree.partition_view import PartitionView

#: What in a partition's directory has something below it that is promised for ever.
_PROMISING: Final = ("offset", "segment", "value", "key", "time")
#: How long, in seconds, one look may take; the next goes on where it stopped.
_LOOK_SECONDS: Final = 0.02
#: In how many looks a change is told. What was found just before it may be remembered for a moment, and whoever
#: answers from that promises again what no longer holds.
_TIMES_TOLD: Final = 3


class Watch:
    """Compares the logs that have been shown with what they were when that was last looked at."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._round: Iterator[None] = iter(())

    def invalidations(self) -> frozenset[Invalidation]:
        """Return the directories below which something changed that was promised not to, and files that did."""
        until = time.monotonic() + _LOOK_SECONDS
        for view in self._context.seen_views():  # what others have noticed costs no look
            if view.log.incarnation != view.promised[0]:
                self._note_changes(view)
        while True:
            try:
                next(self._round)
            except StopIteration:
                self._round = self._look()
                break
            if time.monotonic() > until:
                break
        to_tell = self._context.to_tell
        told = frozenset(map(self._named, to_tell))
        self._context.to_tell = {path: times - 1 for path, times in to_tell.items() if times > 1}
        return told

    def _note(self, paths: list[str]) -> None:
        for path in paths:
            self._context.to_tell[path] = _TIMES_TOLD

    def _named(self, path: str) -> Invalidation:
        return Invalidation(path, self._context.ids.of_path(path.rpartition("/")[0]))

    def _look(self) -> Iterator[None]:
        """Go once through all partitions that were shown, and note what is outdated; yield to be interrupted."""
        for view in self._context.seen_views():
            log = view.log
            try:
                segments = log.segments
            except (Shortage, SourceLost):  # who asks for it hears of it; it may be back as it was
                yield
                continue
            for segment in segments:
                if segment.was_read and not segment.is_stale:
                    try:
                        segment.file()  # marks itself stale if it was cut; the log then makes another of it
                    except CorruptData:
                        log.look_again()
                    except Shortage:
                        break
                    yield
            self._note_changes(view)
            if not log.segments:
                self._context.views.pop(view.path, None)
            yield
        for view in tuple(self._context.replaced):
            self._note(_promising(view.path) + _taken_back(view, list(view.promised_files)))
            self._context.replaced.discard(view)
            yield

    def _note_changes(self, view: PartitionView) -> None:
        """Note what is outdated of a partition since this was last asked."""
        state = state_of(view.log)
        if view.promised != state:
            self._note(_promising(view.path))  # first, so that it is in doubt all along
        view.promised = state
        files = [base for base, node_id in list(view.promised_files.items()) if view.lasting_file(base) != node_id]
        self._note(_taken_back(view, files))


def _promising(path: str) -> list[str]:
    return [f"{path}/{name}" for name in _PROMISING]


def _taken_back(view: PartitionView, bases: list[int]) -> list[str]:
    """Return the files of the lines of these segments, whose promise is over."""
    for base in bases:
        del view.promised_files[base]
    return [f"{view.path}/segment/{name}" for base in bases for name in segment_names(base)]


def state_of(log: Log) -> tuple[int, int | None]:
    """Return what stays the same as long as nothing that was shown of a log has become untrue."""
    return log.incarnation, log.checkpointed_log_start_offset
