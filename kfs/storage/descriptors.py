"""The process's single budget of file descriptors: who holds them, and which ones to close when there are too few.

The system limits how many files a process may have open (``RLIMIT_NOFILE``). Every descriptor that kfs keeps open for
longer than a call counts in this budget, which is half of that limit at most. If it is exceeded, or the system has no
descriptor left, the least recently used ones are closed. Their files are reopened on demand. A file that is deleted or
renamed is closed within five seconds; until then its blocks stay allocated on disk.

This module doesn't know what the files are for.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol, TypeVar
from weakref import ref

from kfs.errors import Shortage

Result = TypeVar("Result")

#: A higher number is of no use: reopening a file takes a hundredth of a millisecond.
_MOST: Final = 4096
#: The assumed limit if the system doesn't provide one.
_USUAL_LIMIT: Final = 1024
#: EMFILE: the process has no descriptor left; ENFILE: the system has none; ENOMEM: no memory or no maps left.
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: How often, and for how many seconds each time, to wait for descriptors that are in use during a call.
_WAITS: Final = 20
_WAIT_SECONDS: Final = 0.005
#: The interval in seconds between checks for deleted files.
_LOOK_SECONDS: Final = 1.0
#: How many seconds a reader may continue with a deleted file.
_GRACE_SECONDS: Final = 2.0
#: A directory changed this recently, in nanoseconds, may change again within one tick of the file system's clock.
_CLOCK_TICK_NS: Final = 2_000_000_000
_JOIN_SECONDS: Final = 0.5
#: How many parts any system writes at once (``IOV_MAX``).
_MOST_PARTS: Final = 1024


class Holder(Protocol):
    """The holder of a descriptor, which can do without it at any moment.

    ``was_used`` is set at each use. ``gone_since`` is when the file was found to be deleted (``time.monotonic``), or 0
    if it wasn't.
    """

    path: str
    was_used: bool
    gone_since: float

    def is_there(self) -> bool:
        """Whether the path still leads to the open file."""

    def forget(self) -> None:
        """Stop handing out the file to new users."""

    def let_go(self) -> None:
        """Release the descriptor, and what depends on it; it is closed as soon as no call uses it."""


class Descriptor:
    """The number of an open file, closed when the last reference goes: never during a call that uses it."""

    __slots__ = ("_budget", "number")

    def __init__(self, number: int, budget: Descriptors) -> None:
        self.number = number
        self._budget = budget

    def note_map(self) -> None:
        """Count a map of the file, which holds a descriptor of its own as long as this object exists."""
        self._budget.mapped.add(self.number)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        self._budget.mapped.discard(self.number)
        self._budget.held.pop(self.number, None)
        close(self.number)


class Descriptors:
    """The budget; a process has exactly one: :data:`BUDGET`."""

    def __init__(self) -> None:
        #: The holder of each descriptor, the newest last. Only single operations, which need no lock.
        self.held: dict[int, ref[Holder]] = {}
        #: Descriptors of mapped files.
        self.mapped: set[int] = set()
        self._processes = 1
        self._most: int | None = None
        self._lock = threading.Lock()
        #: Device, inode and mtime of directories at the last check of their files, by path.
        self._settled: dict[str, tuple[int, int, int]] = {}
        self._stop = threading.Event()
        self._watching: threading.Thread | None = None

    @property
    def most(self) -> int:
        """The maximum number to keep open: half of the process's limit, capped at a useful number."""
        if self._most is None:
            self._most = max(min(_limit() // 2, _MOST // self._processes), 1)
        return self._most

    @property
    def count(self) -> int:
        """The number of open descriptors, including those of maps."""
        return len(self.held) + len(self.mapped)

    def share(self, processes: int) -> None:
        """Reduce the cap to one process's share, if several processes do the same work."""
        self._processes, self._most = processes, None

    def look_up_limit(self) -> None:
        """Read the process's limit again, after it was changed."""
        self._most = None

    def open(self, path: str, flags: int, holder: Holder) -> Descriptor:
        """Open a file for ``holder``, which may be asked to release it at any moment.

        Raises:
            OSError: it can't be opened.
            Shortage: no descriptor is available, even after all others were released.
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
        """Return the result of ``call``, which needs a descriptor or a map; release others if none is available.

        Raises:
            OSError: what the call raises for any other reason.
            Shortage: none is available even after all others were released.
        """
        for _ in range(_WAITS):
            try:
                return call()
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                reason = error.strerror
            if not self._make_room(max(self.most // 2, 1)):
                time.sleep(_WAIT_SECONDS)  # others may hold one during a call
        limit = f"{_limit()} files may be open (ulimit -n), kfs keeps {self.count}"
        raise Shortage(f"{path}: {reason}: {limit}")

    def _make_room(self, wanted: int) -> bool:
        """Release ``wanted`` descriptors, unused ones since the last time first; return whether there were any."""
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
        """Release all descriptors; files are reopened on demand."""
        for holder in self._holders():
            holder.let_go()

    def _holders(self) -> list[Holder]:
        return [holder for who in list(self.held.values()) if (holder := who()) is not None]

    # -- deleted files

    def watch(self) -> None:
        """Start a thread that checks for deleted files until nothing is open any more."""
        if self._watching is None:
            with self._lock:
                if self._watching is None:
                    thread = threading.Thread(target=self._watch, name="kfs-deleted-files", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is shutting down
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
        """Release files whose path now leads elsewhere or nowhere, after a grace period for current readers."""
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
        """Whether a name may have disappeared from a directory since the last call."""
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
        """Stop the thread before a fork."""
        thread = self._watching
        if thread is not None:
            self._stop.set()
            thread.join(_JOIN_SECONDS)

    def resume(self) -> None:
        """Restart the thread after a fork."""
        self._stop.clear()
        if self._watching is not None:
            self._watching = None
            self.watch()

    def begin_anew(self) -> None:
        """Reset the state in a forked child, and release the parent's descriptors in it."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._watching = None
        self.let_all_go()


BUDGET: Final = Descriptors()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=BUDGET.pause, after_in_parent=BUDGET.resume, after_in_child=BUDGET.begin_anew)


def _limit() -> int:
    """Return the number of files that the process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return _USUAL_LIMIT
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2 * _MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raise the limit of open files to the hard limit, for processes that kfs controls from their start.

    The library doesn't change the limit, because its users may depend on it (``select`` can't wait for descriptors
    above 1,023).
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS accepts less than the hard limit
            return
    BUDGET.look_up_limit()


def write_all(number: int, parts: Iterable[bytes]) -> None:
    """Write all parts to an open descriptor, without joining them; raise OSError if that fails."""
    rest = [memoryview(part) for part in parts if part]
    while rest:
        written = os.writev(number, rest[:_MOST_PARTS]) if hasattr(os, "writev") else os.write(number, rest[0])
        for done, part in enumerate(rest):
            if written < len(part):
                rest = [part[written:], *rest[done + 1 :]]
                break
            written -= len(part)
        else:
            return
