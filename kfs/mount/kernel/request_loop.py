"""The threads that answer the kernel: one at a time, replaced whenever it has to wait.

Handing each request to a pool would cost a wake-up each, and predicting which requests are slow is guesswork: any
access to a file may hit a stalled disk. So the thread that reads requests, the leader, answers them itself. If one
takes too long, another thread becomes the leader; the late one answers when it can and ends.

The leader also feeds the supervisor's watchdog, busy or idle. So it starves when nobody reads requests any more, and
not when a disk stalls.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from kfs.mount.kernel.protocol import IN_HEADER
from kfs.mount.systemd import Watchdog

logger = logging.getLogger("kfs.mount")

#: How often, in seconds, the leader is checked: it is late if it has the same request at two checks.
PATIENCE: Final = 0.01
#: The most late threads. Beyond that, the next slow request holds up the others.
MOST_LATE: Final = 64
#: Checks of an idle leader before checking pauses until the next request.
_QUIET_LOOKS: Final = 100
#: How long, in seconds, to wait for the kernel to hang up.
_END_SECONDS: Final = 2.0
_STACK_BYTES: Final = 1 << 20

#: Answers a request, given its opcode, unique number, node id and bytes.
Answer = Callable[[int, int, int, bytes], None]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Errors of a read of the device after which to read again: the request was withdrawn, for no reason at all, or to feed
#: the watchdog.
_TRY_AGAIN: Final = (errno.ENOENT, errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT)


class _Server:
    """The state of a thread: the unique number of the request that it answers, 0 while it waits for one."""

    __slots__ = ("thread_id", "unique")

    def __init__(self) -> None:
        self.unique = 0
        self.thread_id = 0

    def waits_for_a_lock(self) -> bool:
        """Return whether the thread waits for another one; False where the system doesn't say it."""
        try:
            return "futex" in Path(f"/proc/self/task/{self.thread_id}/wchan").read_text()
        except OSError:
            return False


class RequestLoop:
    """Passes each request from ``next_request`` to ``answer``, until the kernel hangs up.

    Calls ``look`` every :data:`PATIENCE` seconds for at least a second after each request. ``next_request`` returns, or
    raises TimeoutError, often enough for the ``watchdog``.
    """

    def __init__(
        self,
        next_request: Callable[[], bytes],
        answer: Answer,
        look: Callable[[], None],
        watchdog: Watchdog | None = None,
    ) -> None:
        self._next_request = next_request
        self._answer = answer
        self._look = look
        self._watchdog = watchdog
        self._leader = _Server()
        self._late: set[_Server] = set()
        self._is_watched = True
        self._ended = False
        self._alarm = threading.Event()
        self._warned = False

    def run(self) -> None:
        """Serve from threads; return when the kernel has hung up, or raise :class:`Stopped`."""
        self._start(self._leader)
        last = quiet = 0
        while not self._ended:
            if quiet > _QUIET_LOOKS:
                self._sleep()
                quiet = 0
            if self._alarm.wait(PATIENCE):
                self._alarm.clear()
                continue
            self._look()
            unique = self._leader.unique
            quiet = 0 if unique else quiet + 1
            if unique and unique == last:
                self._replace_leader()
            last = unique

    def wait_for_the_end(self) -> bool:
        """Wait briefly for the kernel to hang up; return whether it did."""
        with contextlib.suppress(Stopped):
            self._is_watched = True
            self._alarm.clear()
            if not self._ended:
                self._alarm.wait(_END_SECONDS)
        return self._ended

    @property
    def late(self) -> int:
        """How many late threads there are."""
        return len(self._late)

    def is_late(self, unique: int) -> bool:
        """Return whether a late thread is answering that request."""
        return any(server.unique == unique for server in self._late)

    def _sleep(self) -> None:
        """Wait for the next request without checking the leader."""
        self._alarm.clear()
        self._is_watched = False
        # A request that came in between found the old flag, and won't set the alarm.
        if not self._leader.unique and not self._ended:
            self._alarm.wait()
        self._is_watched = True
        self._alarm.clear()

    def _replace_leader(self) -> None:
        if len(self._late) >= MOST_LATE:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "%d requests wait for the disk or for long computations; further ones wait for them", MOST_LATE
                )
            if self._watchdog is not None and self._watchdog.is_due() and not self._is_deadlocked():
                self._watchdog.feed()  # a disk may stall for hours, and a new process would wait for it, too
            return
        late, self._leader = self._leader, _Server()
        self._late.add(late)
        self._start(self._leader)

    def _is_deadlocked(self) -> bool:
        """Return whether all threads wait for one another."""
        return all(server.waits_for_a_lock() for server in [*self._late, self._leader])

    def _start(self, server: _Server) -> None:
        before = threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=self._serve, args=(server,), name="kfs-server", daemon=True).start()
        finally:
            threading.stack_size(before)

    def _serve(self, server: _Server) -> None:
        """Answer requests for as long as this is the leader."""
        server.thread_id = threading.get_native_id()
        try:
            self._lead(server)
        except OSError as error:
            if error.errno != errno.ENODEV:  # the mount is gone
                logger.exception("reading /dev/fuse")
            self._ended = True
            self._alarm.set()
        finally:
            self._late.discard(server)

    def _lead(self, server: _Server) -> None:
        next_request, answer, watchdog = self._next_request, self._answer, self._watchdog
        unpack = IN_HEADER.unpack_from
        while self._leader is server:
            if watchdog is not None:
                watchdog.feed()
            try:
                request = next_request()
            except OSError as error:
                if error.errno in _TRY_AGAIN:
                    continue
                raise
            _, opcode, unique, node_id = unpack(request)
            server.unique = unique
            if not self._is_watched:
                self._alarm.set()
            answer(opcode, unique, node_id, request)
            server.unique = 0


class Stopped(BaseException):
    """A signal asked us to stop."""


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise :class:`Stopped` in the block, in the main thread, at a terminating signal.

    Ignored signals (SIGHUP, under nohup or in a daemon) stay ignored, as with libfuse.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _frame: FrameType | None) -> None:
    # Ignore further signals: we are stopping already.
    for other in _SIGNALS:
        if signal.getsignal(other) is _stop:
            signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)
