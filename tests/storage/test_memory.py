"""Memory that is kept, where the allocator lets itself be told."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from kfs.storage.memory import keep_freed_memory, share_one_heap

GLIBC = pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")

FAULTS = """
import resource, sys
from kfs.storage.memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for round in range(30):
    if round == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [b"x" * (1 << 20) for _ in range(8)]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


IN_HEAP = """
import sys, threading
from kfs.storage.memory import share_one_heap
if sys.argv[1] == "shared":
    share_one_heap()
def look():
    address = id(bytes(40_000))
    heap = next(line for line in open("/proc/self/maps") if line.rstrip().endswith("[heap]"))
    first, end = (int(bound, 16) for bound in heap.split()[0].split("-"))
    print(first <= address < end)
thread = threading.Thread(target=look)
thread.start()
thread.join()
"""


@GLIBC
def test_a_buffer_is_made_of_the_pages_of_the_last_one() -> None:
    def faults(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True).stdout)

    assert faults("kept") * 10 < faults("given back")


@GLIBC
@pytest.mark.parametrize(("how", "where"), [("shared", "True"), ("apart", "False")])
def test_threads_share_the_heap_once_they_are_told(how: str, where: str) -> None:
    done = subprocess.run([sys.executable, "-c", IN_HEAP, how], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == where


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    keep_freed_memory()
    share_one_heap()
