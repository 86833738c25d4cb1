"""A supervisor that does what ``packaging/kfs@.service`` has systemd do: start, believe READY=1, watch, start again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: As in the unit, in seconds: between an end and the next start, and from SIGTERM to SIGKILL.
RESTART_SECONDS: Final = 0.25
STOP_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a process told, or did, and when (monotonic clock): ``READY=1``, ``WATCHDOG=1``, ``ended -9``."""

    at: float
    pid: int
    what: str


class Supervisor:
    """Runs ``command``, in the foreground, until :meth:`stop`; a failure starts it again (``Restart=on-failure``).

    A process that gives no sign of life for ``watchdog`` seconds gets SIGABRT (``WatchdogSec=``).
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        watchdog: float = 30.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._watchdog = watchdog
        self._environment = {**os.environ, **(environment or {})}
        self._log = directory / "supervised.log"
        self._address = str(directory / "notify")
        self._told: list[Told] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start; the process may not be ready yet."""
        self._thread.start()

    def stop(self) -> None:
        """End the process as ``systemctl stop`` does."""
        self._stopping = True
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.terminate()
        self._thread.join(STOP_SECONDS)
        if process is not None and process.poll() is None:
            process.kill()
        self._thread.join()

    @property
    def pid(self) -> int:
        """The process that runs now, 0 if none does."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the process; return its pid, 0 if there was none."""
        pid = self.pid
        if pid:
            os.kill(pid, number)
        return pid

    def told(self, what: str) -> list[Told]:
        """Return what was told so far that begins so."""
        with self._changed:
            return [each for each in self._told if each.what.startswith(what)]

    def wait_for(self, what: str, times: int = 1, seconds: float = 30.0) -> Told:
        """Wait until something was told so often; return the last of these."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count(what) >= times, seconds):
                raise TimeoutError(f"{what} not told {times} times: {self._told[-20:]}; {self.log()[-2000:]}")
        return self.told(what)[times - 1]

    def log(self) -> str:
        """Return what the processes printed."""
        return self._log.read_text() if self._log.exists() else ""

    def _count(self, what: str) -> int:
        return sum(each.what.startswith(what) for each in self._told)

    def _run(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, self._log.open("ab") as log:
            told.bind(self._address)
            while not self._stopping:
                # The process needs its own pid in WATCHDOG_PID, which exec keeps.
                shell = ["sh", "-c", 'export WATCHDOG_PID=$$; exec "$@"', "sh", *self._command]
                environment = {
                    **self._environment,
                    "NOTIFY_SOCKET": self._address,
                    "WATCHDOG_USEC": str(int(self._watchdog * 1e6)),
                }
                process = self._process = subprocess.Popen(
                    shell, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
                )
                status = self._watch(process, told)
                self._note(process.pid, f"ended {status}")
                if status == 0:
                    break
                time.sleep(RESTART_SECONDS)

    def _watch(self, process: subprocess.Popen[bytes], told: socket.socket) -> int:
        """Listen to a process until its end; return its status."""
        deadline = None  # before it is ready nothing is due
        limit = self._watchdog
        while (status := process.poll()) is None:
            if select.select([told], [], [], 0.02)[0]:
                for what in told.recv(4096).decode().split("\n"):
                    self._note(process.pid, what)
                    if what.startswith("WATCHDOG_USEC="):
                        limit = int(what.partition("=")[2]) / 1e6
                    if what in ("READY=1", "WATCHDOG=1") and (deadline is not None or what == "READY=1"):
                        deadline = time.monotonic() + limit
            elif deadline is not None and limit and time.monotonic() > deadline:
                self._note(process.pid, "watchdog")
                process.send_signal(signal.SIGABRT)
                process.send_signal(signal.SIGCONT)
                deadline = None
        return status

    def _note(self, pid: int, what: str) -> None:
        with self._changed:
            self._told.append(Told(time.monotonic(), pid, what))
            self._changed.notify_all()
