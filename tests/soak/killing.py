"""Kills daemons under a supervisor, and takes the time until another mount namespace can read again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.mount.toy_mount import ROOT
from tests.soak.findings import Findings
from tests.soak.mounts import SoakMount

#: How long, in seconds, until reads have to work again, and until this waits no longer.
BACK_SECONDS: Final = 2.0
_GIVEN_UP_SECONDS: Final = 60.0
_PAUSE: Final = 0.01
#: One that is never re-created.
_TOPIC: Final = "lasting"
_READS_KEPT: Final = 10_000


def share(directory: Path) -> None:
    """Have mounts below a directory appear in mount namespaces that are made from now on; needs root."""
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    subprocess.run(["mount", "--make-shared", directory], check=True)


def unshare(directory: Path) -> None:
    """Undo :func:`share`."""
    subprocess.run(["umount", "--lazy", directory], check=True)


class Witness:
    """A process in a mount namespace of its own that reads a mount again and again, and takes the time itself."""

    def __init__(self, point: str) -> None:
        command = [sys.executable, "-m", __name__, point]
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", *command],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._came = threading.Condition()
        #: When each of the last reads began and was done.
        self._reads: deque[tuple[float, float]] = deque(maxlen=_READS_KEPT)
        self._thread = threading.Thread(target=self._listen, name="witness", daemon=True)
        self._thread.start()

    def wait_for_read(self, after: float) -> float | None:
        """Wait for a read that began after a time (monotonic clock); return when it was done, None if none was."""
        with self._came:
            self._came.wait_for(lambda: bool(self._reads) and self._reads[-1][0] > after, _GIVEN_UP_SECONDS)
            return next((done for began, done in self._reads if began > after), None)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._came:
                began, done = line.split()
                self._reads.append((float(began), float(done)))
                self._came.notify_all()


@dataclass
class Killer:
    """Kills the daemon of each mount every ``every`` seconds, in turns; ``running`` gets the pids of the new ones."""

    mounts: Sequence[SoakMount]
    every: float
    most: float
    findings: Findings
    running: dict[str, int]
    #: By name of the mount, the seconds from each kill to the first read.
    took: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._witnesses = {mount.name: Witness(mount.root) for mount in self.mounts}
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(mount, self.every * (number + 1) / (len(self.mounts) + 1)),
                name=f"killer {mount.name}",
                daemon=True,
            )
            for number, mount in enumerate(self.mounts)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, with all mounts there."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * _GIVEN_UP_SECONDS)
        for witness in self._witnesses.values():
            witness.stop()

    def summary(self) -> dict[str, Any]:
        """Return how often each mount was killed, and how long it took to come back."""
        return {
            name: {"kills": len(took), "median": sorted(took)[len(took) // 2], "most": max(took)}
            for name, took in self.took.items()
        }

    def _run(self, mount: SoakMount, pause: float) -> None:
        while not self._over.wait(pause):
            pause = self.every
            try:
                self._kill(mount)
            except Exception as error:
                self.findings.add("soak-error", "killer", error=repr(error))
                raise

    def _kill(self, mount: SoakMount) -> None:
        supervisor = mount.supervisor
        assert supervisor is not None
        ready = len(supervisor.told("READY=1"))
        with mount.outages.one():
            killed_at = time.monotonic()
            supervisor.kill()
            read_at = self._witnesses[mount.name].wait_for_read(killed_at)
            ready_at = supervisor.wait_for("READY=1", ready + 1, _GIVEN_UP_SECONDS).at
        self.running[mount.name] = supervisor.pid
        seconds = (read_at or time.monotonic()) - killed_at
        self.took.setdefault(mount.name, []).append(round(seconds, 2))
        if seconds > self.most:
            ready_after = round(ready_at - killed_at, 2)
            ended_after = round(supervisor.told("ended")[-1].at - killed_at, 2)
            self.findings.add(
                "slow to come back", mount.name, seconds=round(seconds, 2), ended=ended_after, ready=ready_after
            )


def main() -> None:
    """Read the mount at the path given, and print when each read that succeeded began and was done."""
    point = sys.argv[1]
    parent = os.getppid()
    while os.getppid() == parent:
        began = time.monotonic()
        try:
            with open(f"{point}/{_TOPIC}/0/first.json", "rb") as file:
                is_read = _TOPIC in os.listdir(point) and bool(file.read())
        except OSError:
            is_read = False
        if is_read:
            sys.stdout.write(f"{began} {time.monotonic()}\n")
            sys.stdout.flush()
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
