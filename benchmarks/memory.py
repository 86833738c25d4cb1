"""How much memory a command takes, with the processes that it starts."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_INTERVAL_SECONDS: Final = 0.02


def peak_memory(command: Sequence[str]) -> int:
    """Return the most bytes that a command and its children held at a time, what they share counted once."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, _proportional(process.pid))
            time.sleep(_INTERVAL_SECONDS)
    if process.returncode:
        raise RuntimeError(f"{command}: status {process.returncode}")
    return peak


def _proportional(pid: int) -> int:
    """Return the proportional set sizes of a process and its descendants; one that has ended counts nothing."""
    total = 0
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total = int(line.split()[1]) * 1024
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            total += sum(_proportional(int(child)) for child in children)
    return total
