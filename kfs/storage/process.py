"""What this process takes of the machine, from ``/proc``; elsewhere than on Linux much of it is unknown."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Memory in bytes, resident now and at most; CPU time in seconds. None is unknown."""

    cpu_seconds: float
    resident_bytes: int | None = None
    most_resident_bytes: int | None = None
    threads: int | None = None
    open_files: int | None = None


def process_status() -> ProcessStatus:
    """Return the status of this process, without those that it started."""
    cpu_seconds = time.process_time()
    try:
        with open("/proc/self/status") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        open_files = len(os.listdir("/proc/self/fd")) - 1  # the listing's own
        return ProcessStatus(
            cpu_seconds, _bytes(fields["VmRSS"]), _bytes(fields["VmHWM"]), int(fields["Threads"]), open_files
        )
    except (OSError, KeyError, ValueError):
        return ProcessStatus(cpu_seconds)


def _bytes(value: str) -> int:
    """Return a number of bytes, of ``"  1234 kB"``."""
    return int(value.split()[0]) * _KIB
