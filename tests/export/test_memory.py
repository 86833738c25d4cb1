"""Memory that is kept, where the allocator lets itself be told."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from kfs.export.memory import keep_freed_memory

FAULTS = """
import resource, sys
from kfs.export.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for round in range(30):
    if round == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [b"x" * (1 << 20) for _ in range(8)]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_a_buffer_is_made_of_the_pages_of_the_last_one() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)

    assert faults("kept") * 10 < faults("given back")


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    keep_freed_memory()
