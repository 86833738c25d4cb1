"""Daemonizing, and the daemon's reports to the process that started it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from kfs.errors import KfsError, MountFailed, UnusableSource

logger = logging.getLogger("kfs.mount")

_KINDS: Final = {kind.__name__: kind for kind in (MountFailed, UnusableSource)}


class Reports:
    """The daemon's end of the pipe, and its standard error while its parent waits.

    Output of libfuse and its helper would be lost in a daemon; it is kept and becomes part of the message if the mount
    fails.
    """

    def __init__(self, pipe: int, log_file: str | None) -> None:
        self._pipe = pipe
        self._log_file = log_file
        self._printed = os.memfd_create("stderr")
        os.dup2(self._printed, 2)
        self._say(state="started", pid=os.getpid())

    def mounting(self) -> None:
        """Report that the tree is open, and that the mount should answer soon."""
        self._say(state="mounting")

    def ready(self) -> None:
        """Report that the mount answers, and detach from the waiting process and its session."""
        os.setsid()
        _redirect(2, self._log_file or os.devnull)
        os.close(self._printed)
        with contextlib.suppress(BrokenPipeError):
            self._say(state="ready")
        os.close(self._pipe)
        self._pipe = -1

    def failed(self, error: BaseException) -> None:
        """Report ``error``; log it unless the waiting parent gets all of it."""
        expected = isinstance(error, KfsError)
        waiting = self._pipe >= 0
        if self._log_file or not (waiting and expected):
            logger.error("%s", error, exc_info=None if expected else error)
        if not waiting:
            return
        message = str(error) if expected else f"{type(error).__name__}: {error}"
        printed = os.pread(self._printed, 4096, 0).decode("utf-8", "replace").strip()
        self._say(state="failed", kind=type(error).__name__, message="\n".join(filter(None, (message, printed))))

    def _say(self, **report: object) -> None:
        os.write(self._pipe, json.dumps(report).encode() + b"\n")


@dataclass
class _Daemon:
    """The starting process's view of the daemon."""

    pid: int = 0
    deadline: float | None = None


def start(
    serve: Callable[[Reports], None], *, log_file: str | None, timeout: float, give_up: Callable[[], None]
) -> None:
    """Run ``serve`` in a daemon; return when it reports that it is ready.

    Output of the daemon's libraries goes to ``log_file``, if there is one. ``timeout``, in seconds, counts from the
    report that the daemon is mounting. On timeout, or when this process is interrupted, kills the daemon, calls
    ``give_up`` and raises TimeoutError or KeyboardInterrupt. Raises the UnusableSource or MountFailed that the daemon
    reports.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become_daemon(serve, writing, log_file)
    os.close(writing)
    os.waitpid(child, 0)
    daemon = _Daemon()
    try:
        _await_ready(daemon, reading, timeout)
    except (TimeoutError, KeyboardInterrupt):
        if daemon.pid:
            os.kill(daemon.pid, signal.SIGKILL)
        give_up()
        raise
    finally:
        os.close(reading)


def _await_ready(daemon: _Daemon, pipe: int, timeout: float) -> None:
    for line in _lines(daemon, pipe):
        report = json.loads(line)
        match report["state"]:
            case "started":
                daemon.pid = report["pid"]
            case "mounting":
                daemon.deadline = time.monotonic() + timeout
            case "ready":
                return
            case "failed":
                raise _KINDS.get(report["kind"], MountFailed)(report["message"])
    raise MountFailed("the daemon died before the mount answered")


def _lines(daemon: _Daemon, pipe: int) -> Iterator[bytes]:
    """Yield the daemon's reports, line by line; raise TimeoutError after its deadline."""
    buffered = b""
    while True:
        remaining = None if daemon.deadline is None else max(0.0, daemon.deadline - time.monotonic())
        if not select.select([pipe], [], [], remaining)[0]:
            raise TimeoutError
        received = os.read(pipe, 4096)
        if not received:
            return
        *lines, buffered = (buffered + received).split(b"\n")
        yield from lines


def _become_daemon(serve: Callable[[Reports], None], pipe: int, log_file: str | None) -> NoReturn:
    """Detach from terminal and parent, and serve; the process ends here.

    It stays in the process group until the mount answers: autofs makes all others wait for that.
    """
    status = 1
    try:
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_inherited(pipe)
        _redirect(0, os.devnull)
        _redirect(1, os.devnull)
        reports = Reports(pipe, log_file)
        try:
            serve(reports)
            status = 0
        except BaseException as error:
            reports.failed(error)
    finally:
        logging.shutdown()
        os._exit(status)


def _close_inherited(pipe: int) -> None:
    """Close the descriptors inherited from the shell, except the standard three.

    Descriptors that Python opened are not inheritable, and may belong to the tree.
    """
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and descriptor != pipe:
            try:
                if os.get_inheritable(descriptor):
                    os.close(descriptor)
            except OSError:
                continue


def _redirect(descriptor: int, path: str) -> None:
    opened = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)
