"""Detecting broken promises of "for ever": segments that are truncated, replaced or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from kfs.errors import CorruptData, Shortage, SourceLost
from kfs.tree.context import Look
from kfs.tree.names import segment_names
from kfs.tree.node import Invalidation
from kfs.tree.partition_view import PartitionView
from kfs.tree.partition_views import PartitionViews
from kfs.tree.visible_log import state_of

#: How long, in seconds, one look may take; the next continues where it stopped.
_LOOK_SECONDS: Final = 0.02


class Watch:
    """Compares the logs that were shown with their state at the last look."""

    def __init__(self, views: PartitionViews) -> None:
        self._views = views
        self._pending = views.context.pending
        self._round: Iterator[None] = iter(())

    def invalidations(self) -> frozenset[Invalidation]:
        """Return the directories below which something changed that was promised not to, and such files."""
        until = time.monotonic() + _LOOK_SECONDS
        for view in self._views.shown():  # changes that others have noticed cost no look
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
        return frozenset(map(self._named, self._pending.take()))

    def _named(self, path: str) -> Invalidation:
        return Invalidation(path, self._views.context.ids.of_path(path.rpartition("/")[0]))

    def _look(self) -> Iterator[None]:
        """Go once through all partitions that were shown, and note outdated ones; yield to be interrupted."""
        begun, started, views, unlisted = time.time(), time.monotonic(), self._views.shown(), 0
        for view in views:
            log = view.log
            if self._is_as_promised(view):
                yield
                continue
            try:
                segments = log.segments
            except (Shortage, SourceLost) as error:  # readers get the error themselves; it may come back unchanged
                unlisted += isinstance(error, SourceLost)
                yield
                continue
            for segment in segments:
                if segment.was_read and not segment.is_stale:
                    try:
                        segment.file()  # marks itself stale if it was truncated; the log then replaces it
                    except CorruptData:
                        log.look_again()
                    except Shortage:
                        break
                    yield
            self._note_changes(view)
            if not log.segments:
                self._views.forget(view)
            yield
        for view in tuple(self._views.replaced):
            self._pending.note_expected(view.path, _taken_back(view, list(view.lines.promised_files)))
            self._views.replaced.discard(view)
            yield
        self._views.context.last_look = Look(begun, time.monotonic() - started, len(views), unlisted)

    @staticmethod
    def _is_as_promised(view: PartitionView) -> bool:
        """Whether the log let go of its segments, and nothing has changed: to take them up again would tell no more.

        What is committed, or below the high watermark, may change without a file of the log.
        """
        can_tell = view.ends_with_log and view.committed is None
        is_told = view.promised == state_of(view.log) and (can_tell or not view.lines.promised_files)
        return is_told and view.log.is_as_let_go()

    def _note_changes(self, view: PartitionView) -> None:
        """Note what is outdated of a partition since the last call."""
        state = state_of(view.log)
        if view.promised != state:
            self._pending.note_partition(view.path)  # first, so that it is in doubt all along
        view.promised = state
        files = [
            base
            for base, node_id in list(view.lines.promised_files.items())
            if view.lines.lasting_file(base) != node_id
        ]
        self._pending.note(_taken_back(view, files))


def _taken_back(view: PartitionView, bases: list[int]) -> list[str]:
    """Return the line files of these segments, which are no longer promised."""
    for base in bases:
        del view.lines.promised_files[base]
    return [f"{view.path}/segment/{name}" for base in bases for name in segment_names(base)]
