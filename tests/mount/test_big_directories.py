"""Directories larger than a reply, and much larger than memory."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.toy_mount import ToyMount
from tests.mount.toy_tree import Slot

pytestmark = pytest.mark.fuse

#: The fronts that resume a listing by cookie; the others gather it first.
STREAMING = pytest.mark.parametrize("front", ["kernel", "mfusepy", "mfusepy-fuse2"], indirect=True)


class DirectoryStream:
    """opendir(3) and what goes with it, which Python doesn't offer."""

    def __init__(self, path: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.opendir.restype = ctypes.c_void_p
        self._libc.readdir.restype = ctypes.c_void_p
        self._libc.telldir.restype = ctypes.c_long
        self._stream = ctypes.c_void_p(self._libc.opendir(os.fsencode(path)))

    def names(self) -> Iterator[str]:
        while entry := self._libc.readdir(self._stream):
            # struct dirent of the 64-bit glibc and musl: d_ino, d_off, d_reclen, d_type, d_name.
            yield os.fsdecode(ctypes.string_at(entry + 19))

    def tell(self) -> int:
        position: int = self._libc.telldir(self._stream)
        return position

    def seek(self, position: int) -> None:
        self._libc.seekdir(self._stream, ctypes.c_long(position))

    def close(self) -> None:
        self._libc.closedir(self._stream)


def numbers(names: list[str]) -> list[int]:
    return [int(name.removesuffix(".json")) for name in names]


def test_a_listing_is_complete_and_in_order(mounted: ToyMount) -> None:
    assert numbers(os.listdir(mounted.path("records"))) == list(range(1000))


def test_a_listing_goes_on_from_any_place_that_was_told(mounted: ToyMount) -> None:
    stream = DirectoryStream(mounted.path("records"))
    try:
        places, names = [stream.tell()], []
        for name in stream.names():
            names.append(name)
            places.append(stream.tell())
        assert names[:2] == [".", ".."]
        assert numbers(names[2:]) == list(range(1000))
        for at in (0, 1, 2, 3, 500, 999, 1001, 1002, 250, 1):
            stream.seek(places[at])
            assert list(stream.names()) == names[at:]
    finally:
        stream.close()


@STREAMING
def test_a_listing_goes_on_after_a_pause(mounted: ToyMount) -> None:
    with os.scandir(mounted.path("million")) as listing:
        names = [next(listing).name for _ in range(1500)]
        time.sleep(0.8)
        names += [next(listing).name for _ in range(1500)]
    assert numbers(names) == list(range(3000))


def test_entries_that_vanish_meanwhile_do_not_disturb_a_listing(mounted: ToyMount) -> None:
    mounted.control[Slot.DELETED_BELOW] = 0
    try:
        with os.scandir(mounted.path("shrinking")) as listing:
            seen = [next(listing).name for _ in range(100)]
            mounted.control[Slot.DELETED_BELOW] = 900
            seen += [item.name for item in listing]
    finally:
        mounted.control[Slot.DELETED_BELOW] = 0
    found = numbers(seen)
    assert found == sorted(set(found))
    assert found[:100] == list(range(100))
    assert found[-100:] == list(range(900, 1000))


def test_two_listings_at_once_do_not_mix(mounted: ToyMount) -> None:
    with os.scandir(mounted.path("records")) as one, os.scandir(mounted.path("records")) as other:
        pairs = [(a.name, b.name) for a, b in zip(one, other, strict=True)]
    assert numbers([a for a, _ in pairs]) == list(range(1000))
    assert all(a == b for a, b in pairs)


def test_a_listing_with_attributes_is_right(mounted: ToyMount) -> None:
    with os.scandir(mounted.path("records")) as listing:
        for item in listing:
            assert item.stat().st_size == len(Path(item.path).read_bytes())
            assert item.stat().st_ino == item.inode()


@STREAMING
def test_the_first_entry_comes_at_once(mounted: ToyMount) -> None:
    started = time.monotonic()
    with os.scandir(mounted.path("ten-million")) as listing:
        assert next(listing).name == "0.json"
    assert time.monotonic() - started < 0.5


@STREAMING
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "count"), [("million", 1_000_000), pytest.param("ten-million", 10_000_000, marks=pytest.mark.long)]
)
def test_memory_does_not_grow_with_a_directory(mounted: ToyMount, name: str, count: int) -> None:
    with subprocess.Popen(["ls", "-f", mounted.path(name)], stdout=subprocess.PIPE) as ls:
        assert ls.stdout is not None
        lines = 0
        while chunk := ls.stdout.read(1 << 20):
            lines += chunk.count(b"\n")
    assert lines == count + 2
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{mounted.pid}/status").read_text())
    assert peak is not None
    assert int(peak[1]) < 150 * 1024


@STREAMING
def test_a_listing_is_resumed_and_not_started_again(mounted: ToyMount) -> None:
    before = mounted.control[Slot.LISTINGS]
    with os.scandir(mounted.path("million")) as listing:
        for _ in range(20_000):
            next(listing)
    # Once at the start, and once when the kernel stops asking for attributes as well.
    assert mounted.control[Slot.LISTINGS] - before <= 3


@pytest.mark.parametrize("front", ["kernel"], indirect=True)  # the others ask for the attributes of each entry
def test_attributes_come_with_the_listing(mounted: ToyMount) -> None:
    mounted.control[Slot.DELETED_BELOW] = 0
    mounted.control[Slot.LOOKUPS] = 0
    names = os.listdir(mounted.path("shrinking"))
    assert all(os.stat(mounted.path(f"shrinking/{name}")).st_size > 0 for name in names)
    # One entry in each reply may be left to be asked for.
    assert mounted.control[Slot.LOOKUPS] <= len(names) // 50
