"""The process's one budget of descriptors: who holds what, and who lets go when there are too few.

A process may have a number of files open (``RLIMIT_NOFILE``). What kfs keeps open for longer than a call is counted
here, in one budget, and half of the limit is left to everything else. Beyond that, and whenever the system has none to
give, those go that weren't used lately: a file that was let go is opened again when it is needed. A file that is
deleted, or renamed, is let go within five seconds: until then its blocks stay on the disk.

Nothing here knows what the files are for.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar
from weakref import ref

from kfs.errors import Shortage

Result = TypeVar("Result")

#: More are of no use: what was let go is open again in a hundredth of a millisecond.
_MOST: Final = 4096
#: What a process may have open where the system doesn't tell.
_USUAL_LIMIT: Final = 1024
#: EMFILE: the process has no more of them; ENFILE: the system; ENOMEM: no memory for it, or no more maps.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: How often, and for how long each time in seconds, those are waited for that need one for the length of a call.
_WAITS: Final = 20
_WAIT_SECONDS: Final = 0.005
#: How often, in seconds, deleted files are looked for.
_LOOK_SECONDS: Final = 1.0
#: For how long, in seconds, who is at a deleted file may go on with it.
_GRACE_SECONDS: Final = 2.0
#: A directory changed this recently, in nanoseconds, may change again within one tick of its clock.
_CLOCK_TICK_NS: Final = 2_000_000_000
_JOIN_SECONDS: Final = 0.5


class Holder(Protocol):
    """Who has a descriptor, and can do without it at any moment.

    ``was_used`` is set whenever it is of use. ``gone_since`` is when the file was seen to be deleted
    (``time.monotonic``), 0 where it wasn't.
    """

    path: str
    was_used: bool
    gone_since: float

    def is_there(self) -> bool:
        """Whether the path still leads to the file that is open."""

    def forget(self) -> None:
        """Give the file to no further user."""

    def let_go(self) -> None:
        """Have the descriptor closed, and what depends on it, as soon as no call is using it."""


class Descriptor:
    """The number of an open file. It is closed when the last reference goes: never under a call that uses it."""

    __slots__ = ("_budget", "number")

    def __init__(self, number: int, budget: Descriptors) -> None:
        self.number = number
        self._budget = budget

    def note_map(self) -> None:
        """Count a map of the file, kept as long as this is: it has a descriptor of its own."""
        self._budget.mapped.add(self.number)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        self._budget.mapped.discard(self.number)
        self._budget.held.pop(self.number, None)
        close(self.number)


class Descriptors:
    """The budget, of which a process has one: :data:`BUDGET`."""

    def __init__(self) -> None:
        #: Who holds each descriptor, the one opened last at the end. Only single operations, which need no lock.
        self.held: dict[int, ref[Holder]] = {}
        #: Descriptors of files that are mapped.
        self.mapped: set[int] = set()
        self._processes = 1
        self._most: int | None = None
        self._lock = threading.Lock()
        #: How directories were when their files were last looked for, by path: device, inode and mtime.
        self._settled: dict[str, tuple[int, int, int]] = {}
        self._stop = threading.Event()
        self._watching: threading.Thread | None = None

    @property
    def most(self) -> int:
        """How many may be kept: half of what the process may have open, and no more than are of use."""
        if self._most is None:
            self._most = max(min(_limit() // 2, _MOST // self._processes), 1)
        return self._most

    @property
    def count(self) -> int:
        """How many are open, with those of maps."""
        return len(self.held) + len(self.mapped)

    def share(self, processes: int) -> None:
        """Keep only what is one process's part where several do the same work."""
        self._processes, self._most = processes, None

    def look_up_limit(self) -> None:
        """Go by the limit as it is now: it was changed."""
        self._most = None

    def open(self, path: str, flags: int, holder: Holder) -> Descriptor:
        """Open a file for ``holder``, who may be told at any moment to let it go.

        Raises:
            OSError: it can't be opened.
            Shortage: there is no descriptor for it, even if all others let go.
        """
        if self.count >= self.most:
            self._make_room(max(self.most // 8, 1))
        try:
            number = os.open(path, flags)
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            number = self.attempt(partial(os.open, path, flags), path)
        descriptor = Descriptor(number, self)
        self.held[number] = ref(holder)
        return descriptor

    def attempt(self, call: Callable[[], Result], path: str) -> Result:
        """Return what ``call`` returns, which needs a descriptor or a map; if there is none others let theirs go.

        Raises:
            OSError: what the call raises for any other reason.
            Shortage: there is still none when all have let go.
        """
        for _ in range(_WAITS):
            try:
                return call()
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                reason = error.strerror
            if not self._make_room(max(self.most // 2, 1)):
                time.sleep(_WAIT_SECONDS)  # others may have one for the length of a call
        limit = f"{_limit()} files may be open (ulimit -n), kfs keeps {self.count}"
        raise Shortage(f"{path}: {reason}: {limit}")

    def _make_room(self, wanted: int) -> bool:
        """Have ``wanted`` holders let go, first those that weren't used since the last time; return whether any did."""
        with self._lock:
            holders = self._holders()
            used = [holder for holder in holders if holder.was_used]
            victims = [holder for holder in holders if not holder.was_used][:wanted]
            victims += used[: wanted - len(victims)]
            for holder in used:
                holder.was_used = False
            for holder in victims:
                holder.let_go()
            return bool(victims)

    def let_all_go(self) -> None:
        """Close everything; what is needed again is opened again."""
        for holder in self._holders():
            holder.let_go()

    def _holders(self) -> list[Holder]:
        return [holder for who in list(self.held.values()) if (holder := who()) is not None]

    # -- deleted files

    def watch(self) -> None:
        """Have deleted files looked for, in a thread, from now until nothing is open any more."""
        if self._watching is None:
            with self._lock:
                if self._watching is None:
                    thread = threading.Thread(target=self._watch, name="kfs-deleted-files", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter ends, and we with it
                        return
                    self._watching = thread

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.look_for_deleted()
            with self._lock:
                if not self.held:
                    self._watching = None
                    return

    def look_for_deleted(self) -> None:
        """Have files let go whose path leads elsewhere by now, or nowhere; those in use only after a moment."""
        by_directory: dict[str, list[Holder]] = defaultdict(list)
        for holder in self._holders():
            by_directory[os.path.dirname(holder.path)].append(holder)
        self._settled = {path: state for path, state in self._settled.items() if path in by_directory}
        now = time.monotonic()
        for directory, holders in by_directory.items():
            if not self._may_have_changed(directory) and not any(holder.gone_since for holder in holders):
                continue
            for holder in holders:
                if holder.gone_since:
                    if now - holder.gone_since >= _GRACE_SECONDS:
                        holder.let_go()
                elif not holder.is_there():
                    holder.gone_since = now
                    holder.forget()

    def _may_have_changed(self, directory: str) -> bool:
        """Whether a name in a directory may have gone since this was last asked."""
        try:
            status = os.stat(directory)
        except OSError:
            return True
        state = (status.st_dev, status.st_ino, status.st_mtime_ns)
        is_settled = time.time_ns() - status.st_mtime_ns > _CLOCK_TICK_NS
        is_same = self._settled.get(directory) == state
        if is_settled:
            self._settled[directory] = state
        return not is_same

    # -- forks

    def pause(self) -> None:
        """Have no thread of ours at the moment of a fork."""
        thread = self._watching
        if thread is not None:
            self._stop.set()
            thread.join(_JOIN_SECONDS)

    def resume(self) -> None:
        """Go on after a fork."""
        self._stop.clear()
        if self._watching is not None:
            self._watching = None
            self.watch()

    def begin_anew(self) -> None:
        """Have nothing open in a fork that the process has which it is a fork of."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._watching = None
        self.let_all_go()


BUDGET: Final = Descriptors()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=BUDGET.pause, after_in_parent=BUDGET.resume, after_in_child=BUDGET.begin_anew)


def _limit() -> int:
    """Return how many files the process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return _USUAL_LIMIT
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2 * _MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Let the process have as many files open as it is allowed to: for processes that are ours from their start on.

    The library leaves the limit as it is: who uses it may depend on it (``select`` can't wait for descriptors above
    1,023).
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS accepts less than it says
            return
    BUDGET.look_up_limit()
