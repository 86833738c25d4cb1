"""What this runs on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Say what is measured on: processors, kernel, Python."""
    cpu_info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in cpu_info if line.startswith("model name")), platform.machine())
    cpus = len(os.sched_getaffinity(0))
    return f"{cpus} CPUs ({model}), Linux {platform.release()}, Python {platform.python_version()}"
