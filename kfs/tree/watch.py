"""Looking for what makes a promise of "for ever" untrue: segments that are cut, replaced or deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData

if TYPE_CHECKING:
    from kfs.log.log import Log
    from kfs.tree.context import TreeContext

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
        self._round: Iterator[str | None] = iter(())
        self._to_tell: dict[str, int] = {}

    def outdated(self) -> frozenset[str]:
        """Return the directories, by path, below which something changed that was promised not to."""
        until = time.monotonic() + _LOOK_SECONDS
        while True:
            try:
                path = next(self._round)
            except StopIteration:
                self._round = self._look()
                break
            if path is not None:
                self._to_tell[path] = _TIMES_TOLD
            if time.monotonic() > until:
                break
        partitions = tuple(self._to_tell)
        self._to_tell = {path: times - 1 for path, times in self._to_tell.items() if times > 1}
        return frozenset(f"{path}/{name}" for path in partitions for name in _PROMISING)

    def _look(self) -> Iterator[str | None]:
        """Go once through all partitions that were shown; yield the path of one, or None to be interrupted."""
        for path, view in list(self._context.views.items()):
            log = view.log
            for segment in log.segments:
                if segment.was_read and not segment.is_stale:
                    try:
                        segment.file()  # marks itself stale if it was cut; the log then makes another of it
                    except CorruptData:
                        log.look_again()
                    yield None
            state = state_of(log)
            changed = view.promised != state
            view.promised = state
            if not log.segments:
                self._context.views.pop(path, None)
            yield path if changed else None
        while self._context.replaced:
            yield self._context.replaced.pop()


def state_of(log: Log) -> tuple[int, int | None]:
    """Return what stays the same as long as nothing that was shown of a log has become untrue."""
    return log.incarnation, log.checkpointed_log_start_offset
