"""Runs ``kfs`` commands in forks of one process that has imported what they need: most of a short command is imports.

Each command is a process of its own all the same, with its own descriptors, directory and environment, and ends as the
installed command does. What depends on how Python itself starts needs that command: ``tests.system.kafka_mount.kfs``
chooses.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = 3
_LARGEST_REQUEST: Final = 1 << 20
#: Imported by commands when they are used.
_USED_BY_COMMANDS: Final = (
    "kazoo.client",
    "kfs.dump.decoders",
    "kfs.format.decoders",
    "kfs.render.compiled_arrow",
    "kfs.scan",
    "kfs.spark.offsets",
    "pyarrow.parquet",
    "redis",
    "rich.console",
    "rich.table",
)


class CommandServer:
    """The process, started when it is first needed; it ends with this one."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def run(self, arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[bytes]:
        """Do as :func:`subprocess.run` with ``capture_output`` does."""
        ends = [os.pipe() for _ in range(_DESCRIPTORS)]
        output_end, errors_end, said_end = (ours for ours, _ in ends)
        with open(output_end, "rb") as output, open(errors_end, "rb") as errors, open(said_end, "rb") as said:
            request = ([self._script, *arguments], os.getcwd(), dict(os.environ))
            with self._lock:
                socket.send_fds(self._connected(), [pickle.dumps(request)], [theirs for _, theirs in ends])
            for _, theirs in ends:
                os.close(theirs)
            pid = int(said.readline())
            too_late = threading.Timer(timeout, _kill, (pid,))
            too_late.start()
            found: list[bytes] = []
            reader = threading.Thread(target=lambda: found.append(errors.read()))
            reader.start()
            printed = output.read()
            reader.join()
            status = os.waitstatus_to_exitcode(int(said.readline()))
            was_killed = not too_late.is_alive()
            too_late.cancel()
        if was_killed:
            raise subprocess.TimeoutExpired(list(arguments), timeout, printed, found[0])
        return subprocess.CompletedProcess([self._script, *arguments], status, printed, found[0])

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_REQUEST)
            with theirs:
                command = [sys.executable, __file__, str(theirs.fileno()), self._script]
                subprocess.Popen(command, pass_fds=[theirs.fileno()])
        return self._socket


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _serve(requests: socket.socket) -> Sequence[str] | None:
    """Return in each fork the words of its command, and in the server None, once nobody asks for more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, _DESCRIPTORS)
        if not data:
            return None
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            words, directory, environment = pickle.loads(data)
            if _is_command(descriptors):
                os.chdir(directory)
                os.environ.clear()
                os.environ.update(environment)
                time.tzset()
                return list(words)
        for descriptor in descriptors:
            os.close(descriptor)


def _is_command(descriptors: Sequence[int]) -> bool:
    """Fork once more: return in what becomes the command; its parent says which process it is, and how it ended."""
    output, errors, say = descriptors
    pid = os.fork()
    if not pid:
        os.dup2(output, 1)
        os.dup2(errors, 2)
        for descriptor in descriptors:
            os.close(descriptor)
        return True
    os.close(output)
    os.close(errors)
    os.write(say, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    os.write(say, b"%d\n" % status)
    os._exit(0)


def _run(command: Callable[[], object]) -> None:
    """End as Python does after a command, but for taking to pieces what the server has imported."""
    code: object = 0
    try:
        command()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _main() -> None:
    descriptor, script = sys.argv[1:]
    sys.path[0] = str(Path(script).parent)
    sys.argv[:] = [script]
    command = import_module("kfs.cli.main")
    for name in (*command._COMMANDS, *_USED_BY_COMMANDS):
        with suppress(ImportError):
            import_module(name if "." in name else f"kfs.cli.{name}")
    gc.collect()
    gc.freeze()  # what is collected in a fork is written to, and so copied
    with socket.socket(fileno=int(descriptor)) as requests:
        words = _serve(requests)
    if words is None:
        return
    sys.argv[:] = words
    _run(command.main)


if __name__ == "__main__":
    _main()
