"""The threads that answer the kernel: one at a time, replaced whenever it has to wait.

Handing each request to a pool would cost a wake-up each, and predicting which requests are slow is guesswork: any
access to a file may hit a stalled disk. So the thread that reads requests, the leader, answers them itself. If one
takes too long, another thread becomes the leader; the late one answers when it can and ends.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from kfs.mount.kernel.protocol import IN_HEADER

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
#: Errors of a read of the device after which to read again: the request was withdrawn, or for no reason at all.
_TRY_AGAIN: Final = (errno.ENOENT, errno.EINTR, errno.EAGAIN)


class _Server:
    """The state of a thread: the unique number of the request that it answers, 0 while it waits for one."""

    __slots__ = ("unique",)

    def __init__(self) -> None:
        self.unique = 0


class RequestLoop:
    """Passes each request from ``next_request`` to ``answer``, until the kernel hangs up.

    Calls ``look`` every :data:`PATIENCE` seconds for at least a second after each request.
    """

    def __init__(self, next_request: Callable[[], bytes], answer: Answer, look: Callable[[], None]) -> None:
        self._next_request = next_request
        self._answer = answer
        self._look = look
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
            return
        late, self._leader = self._leader, _Server()
        self._late.add(late)
        self._start(self._leader)

    def _start(self, server: _Server) -> None:
        before = threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=self._serve, args=(server,), name="kfs-server", daemon=True).start()
        finally:
            threading.stack_size(before)

    def _serve(self, server: _Server) -> None:
        """Answer requests for as long as this is the leader."""
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
        next_request, answer = self._next_request, self._answer
        unpack = IN_HEADER.unpack_from
        while self._leader is server:
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
