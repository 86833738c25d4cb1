"""Handles: of one path, what is open as one node is told from what is open as another."""

from __future__ import annotations

import stat
from dataclasses import dataclass

import pytest

from kfs.errors import NotFound, Stale
from kfs.mount.handles import Handles, Pages
from kfs.tree.node import Attributes, File

PATH = b"/t/0/records.jsonl"


@dataclass(slots=True)
class Bytes(File):
    node_id: int
    content: bytes
    is_gone: bool = False

    def attributes(self) -> Attributes:
        return Attributes(self.node_id, stat.S_IFREG | 0o444, len(self.content), 0, 0, 0)

    def read(self, offset: int, size: int) -> bytes:
        if self.is_gone:
            raise NotFound("gone")
        return self.content[offset : offset + size]


OLD, NEW = Bytes(1, b"old content"), Bytes(2, b"new")


def test_a_handle_reads_what_was_opened() -> None:
    handles = Handles()
    handle, pages = handles.open(PATH, OLD)
    assert pages is Pages.DROPPED
    assert handles.read(handle, 4, 100) == b"content"
    assert handles.attributes(handle) == OLD.attributes()


def test_the_pages_of_the_same_content_are_kept() -> None:
    handles = Handles()
    first, _ = handles.open(PATH, OLD)
    handles.release(first)
    assert handles.open(PATH, OLD)[1] is Pages.KEPT
    assert handles.open(PATH, Bytes(1, b"old content, and more"))[1] is Pages.DROPPED


def test_the_pages_of_what_is_open_are_not_filled_with_something_else() -> None:
    handles = Handles()
    old, _ = handles.open(PATH, OLD)
    new, pages = handles.open(PATH, NEW)
    assert pages is Pages.PASSED_BY
    assert handles.read(new, 0, 100) == b"new"
    handles.release(old)
    assert handles.open(PATH, NEW)[1] is Pages.DROPPED
    assert handles.open(PATH, NEW)[1] is Pages.KEPT


def test_who_holds_what_was_there_before_is_told_once_the_kernel_was() -> None:
    handles = Handles()
    old, _ = handles.open(PATH, OLD)
    assert not handles.tell(PATH, OLD.attributes())
    assert handles.read(old, 0, 3) == b"old"
    assert handles.tell(PATH, NEW.attributes())  # the size that it goes by is no longer that of the older one
    for ask in (lambda: handles.read(old, 0, 3), lambda: handles.attributes(old)):
        with pytest.raises(Stale):
            ask()


def test_paths_do_not_disturb_each_other() -> None:
    handles = Handles()
    old, _ = handles.open(PATH, OLD)
    handles.open(b"/elsewhere", NEW)
    assert handles.read(old, 0, 3) == b"old"


def test_what_is_gone_is_stale_to_who_has_it_open() -> None:
    handles = Handles()
    handle, _ = handles.open(PATH, Bytes(3, b"x", is_gone=True))
    with pytest.raises(Stale):
        handles.read(handle, 0, 1)
    handles.release(handle)
    with pytest.raises(Stale):
        handles.read(handle, 0, 1)


def test_what_is_closed_is_forgotten() -> None:
    handles = Handles()
    for number in range(20_000):
        handle, _ = handles.open(b"/%d" % number, OLD)
        handles.release(handle)
    assert not handles.any_open
    assert len(handles._places) <= 4096
