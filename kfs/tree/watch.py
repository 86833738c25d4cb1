"""Detecting broken promises of "for ever": segments that are truncated, replaced or deleted."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final
from weakref import ref

from kfs.errors import CorruptData, Shortage, SourceLost
from kfs.log.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from kfs.tree.context import Look
from kfs.tree.names import segment_names
from kfs.tree.node import LIVE, Invalidation
from kfs.tree.partition_view import PartitionView
from kfs.tree.partition_views import PartitionViews
from kfs.tree.visible_log import state_of
from kfs.tree.watched_directories import SELDOM_SECONDS, Told, WatchedDirectories

#: How long, in seconds, one look may take; the next continues where it stopped.
_LOOK_SECONDS: Final = 0.02
#: The least time, in seconds, from one look to the next: what changes meanwhile is looked at together.
_LEAST_SECONDS: Final = 0.1


class Watch:
    """Compares the logs that were shown with their state at the last look.

    A log is looked at when its directory tells of a change, when a reader noticed one, and every :data:`SELDOM_SECONDS`
    or as long as a share of the time allows; twice a second if its directory may change untold.
    """

    def __init__(self, views: PartitionViews) -> None:
        self._views = views
        self._pending = views.context.pending
        self._directories = WatchedDirectories()
        #: Partitions to look at now, in this order.
        self._due: OrderedDict[PartitionView, None] = OrderedDict()
        #: Those whose directory may change untold, and those whose directory can't be listed.
        self._polled: set[PartitionView] = set()
        self._unlisted: set[PartitionView] = set()
        #: Whether any partition may have changed, and when the next round over several may begin (monotonic clock).
        self._is_any_due = True
        self._round_due = 0.0
        #: Those that are still to be looked at although nothing tells of a change, and when to go on with them.
        self._others: Iterator[ref[PartitionView]] = iter(())
        self._others_due = 0.0
        self._steps: Iterator[None] = iter(())
        self._is_interrupted = False
        self._looked = -1.0
        #: What other threads noticed: partitions that are shown now, and directories of logs that changed.
        self._made: deque[PartitionView] = deque()
        self._changed: deque[str] = deque()
        self._is_woken = False
        views.on_made = self._note_made
        views.context.data_dir.storage.on_incarnation = self._note_incarnation
        self._made.extend(views.shown())

    # -- called by other threads

    def _note_made(self, view: PartitionView) -> None:
        self._made.append(view)
        self._wake()

    def _note_incarnation(self, directory: str) -> None:
        self._changed.append(directory)
        self._wake()

    def look_now(self) -> None:
        """Have everything looked at now, whatever was told of it."""
        self._is_any_due = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._directories.wake()

    # -- called by one thread

    def close(self) -> None:
        """Release the descriptors."""
        self._directories.close()

    def invalidations(self) -> frozenset[Invalidation]:
        """Look everywhere; return the directories below which a promise was broken, and such files."""
        self._is_any_due, self._round_due = True, 0.0
        return self._look()

    def await_invalidations(self) -> frozenset[Invalidation]:
        """Wait until something may have changed, or :meth:`look_now`; look there, and return what was broken.

        That may be nothing. What was noticed before is returned again, when it is time to tell it again.
        """
        time.sleep(max(0.0, self._looked + _LEAST_SECONDS - time.monotonic()))
        told = self._directories.wait(max(0.0, self._due_at() - time.monotonic()))
        self._is_woken = False  # before it is looked at what was noticed
        if told is None:
            self._is_any_due = True
        else:
            self._note_told(told)
        return self._look()

    def _due_at(self) -> float:
        """Return when the next look is due even without an event (monotonic clock)."""
        if self._due:
            return self._looked
        due = [self._others_due]
        if self._is_any_due or self._polled:
            due.append(self._round_due)
        if self._is_interrupted:
            due.append(self._looked + LIVE)
        if (told_again := self._pending.due()) is not None:
            due.append(told_again)
        return min(due)

    def _note_told(self, told: Told) -> None:
        self._due.update(dict.fromkeys(told.views))
        if self._views.context.data_dir.until_high_watermark and HIGH_WATERMARK_CHECKPOINT in told.checkpoints:
            self._is_any_due = True
        if LOG_START_OFFSET_CHECKPOINT in told.checkpoints:
            for view in self._views.shown():
                if view.promised != state_of(view.log):
                    self._note_changes(view)

    def _note_noticed(self) -> None:
        """Take up what other threads noticed."""
        while self._made:
            view = self._made.popleft()
            self._directories.add(view)
            self._due[view] = None
        while self._changed:
            self._note_changed(self._directories.at(self._changed.popleft()))
        for view in tuple(self._views.replaced):
            self._pending.note_expected(view.path, _taken_back(view, list(view.promised_files)))
            self._views.replaced.discard(view)
            self._drop(view)

    def _note_changed(self, views: Iterable[PartitionView]) -> None:
        for view in views:
            if view.log.incarnation != view.promised[0]:
                self._note_changes(view)

    def _drop(self, view: PartitionView) -> None:
        self._directories.discard(view)
        self._due.pop(view, None)
        self._polled.discard(view)
        self._unlisted.discard(view)

    def _look(self) -> frozenset[Invalidation]:
        """Look at what is due, for a short time; return what is to be told now."""
        until = time.monotonic() + _LOOK_SECONDS
        self._note_noticed()
        if not self._is_interrupted:
            self._steps = self._look_around()
        self._is_interrupted = False
        for _ in self._steps:
            if time.monotonic() > until:
                self._is_interrupted = True
                break
        self._looked = time.monotonic()
        return frozenset(map(self._named, self._pending.take()))

    def _named(self, path: str) -> Invalidation:
        return Invalidation(path, self._views.context.ids.of_path(path.rpartition("/")[0]))

    def _look_around(self) -> Iterator[None]:
        """Look at everything that is due; yield to be interrupted."""
        begun, started = time.time(), time.monotonic()
        yield from self._look_at_due()
        is_round_due = self._is_any_due or bool(self._polled)
        if is_round_due and started >= self._round_due:
            views = self._views.shown() if self._is_any_due else list(self._polled)
            self._is_any_due, self._round_due = False, started + LIVE
            for view in views:
                yield from self._look_at(view)
                yield from self._look_at_due()
            is_round_due = False
        if not is_round_due:
            seconds, shown = time.monotonic() - started, len(self._views.shown())
            self._views.context.last_look = Look(begun, seconds, shown, len(self._unlisted))
        if started >= self._others_due:
            yield from self._look_at_others()

    def _look_at_due(self) -> Iterator[None]:
        while self._due:
            yield from self._look_at(self._due.popitem(last=False)[0])

    def _look_at_others(self) -> Iterator[None]:
        """Look at some partitions of which nothing was told, in turn: not everything makes an event."""
        until = time.monotonic() + _LOOK_SECONDS
        for each in self._others:
            if (view := each()) is not None:
                yield from self._look_at(view)
            if time.monotonic() > until:
                break
        else:
            self._others = iter([ref(view) for view in self._views.shown()])
        self._others_due = time.monotonic() + SELDOM_SECONDS

    def _look_at(self, view: PartitionView) -> Iterator[None]:
        """Look at a partition, and note what is outdated; yield to be interrupted."""
        if not self._views.is_shown(view):
            return
        if self._directories.tells(view):  # first, so that events report every later change
            self._polled.discard(view)
        else:
            self._polled.add(view)
        if self._is_as_promised(view):
            yield
            return
        log = view.log
        log.look_again()
        try:
            segments = log.segments
        except (Shortage, SourceLost) as error:  # readers get the error themselves; it may come back unchanged
            if isinstance(error, SourceLost):
                self._unlisted.add(view)
            yield
            return
        self._unlisted.discard(view)
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
            self._drop(view)
        yield

    @staticmethod
    def _is_as_promised(view: PartitionView) -> bool:
        """Whether the log let go of its segments, and nothing has changed: to take them up again would tell no more.

        What is committed, or below the high watermark, may change without a file of the log.
        """
        can_tell = view.ends_with_log and view.committed is None
        is_told = view.promised == state_of(view.log) and (can_tell or not view.promised_files)
        return is_told and view.log.is_as_let_go()

    def _note_changes(self, view: PartitionView) -> None:
        """Note what is outdated of a partition since the last call."""
        state = state_of(view.log)
        if view.promised != state:
            self._pending.note_partition(view.path)  # first, so that it is in doubt all along
            view.look_again()
        view.promised = state
        files = [
            base for base, node_id in list(view.promised_files.items()) if view.lines.lasting_file(base) != node_id
        ]
        self._pending.note(_taken_back(view, files))


def _taken_back(view: PartitionView, bases: list[int]) -> list[str]:
    """Return the line files of these segments, which are no longer promised."""
    for base in bases:
        del view.promised_files[base]
    return [f"{view.path}/segment/{name}" for base in bases for name in segment_names(base)]
