"""Handles: of one path, what is open as one node is told from what is open as another."""

from __future__ import annotations

import stat
from dataclasses import dataclass

import pytest

from kfs.errors import NotFound, Stale
from kfs.mount.libfuse.handles import Handles, Pages
from kfs.tree.node import Attributes, File

PATH = b"/t/0/records.jsonl"


@dataclass(slots=True)
class Bytes(File):
    node_id: int
    content: bytes
    is_gone: bool = False
    is_new: bool = False
    is_exchanged_often: bool = False

    def attributes(self) -> Attributes:
        return Attributes(self.node_id, stat.S_IFREG | 0o444, len(self.content), 0, 0, 0)

    @property
    def is_new_there(self) -> bool:
        return self.is_new

    @property
    def is_exchanged(self) -> bool:
        return self.is_exchanged_often

    def read(self, offset: int, size: int) -> bytes:
        if self.is_gone:
            raise NotFound("gone")
        return self.content[offset : offset + size]


def opened(handles: Handles, node: Bytes, path: bytes = PATH) -> tuple[int, Pages]:
    """Open a node as the kernel does: what is refused is looked up, and opened then."""
    try:
        return handles.open(path, node, node.attributes())
    except Stale:
        handles.tell(path, node.attributes())
        return handles.open(path, node, node.attributes())


OLD, NEW = Bytes(1, b"old content"), Bytes(2, b"new")


def test_a_handle_reads_what_was_opened() -> None:
    handles = Handles()
    handle, pages = opened(handles, OLD)
    assert pages is Pages.DROPPED
    assert handles.read(handle, 4, 100) == b"content"
    assert handles.attributes(handle) == OLD.attributes()


def test_the_pages_of_the_same_content_are_kept() -> None:
    handles = Handles()
    first, _ = opened(handles, OLD)
    handles.release(first)
    assert opened(handles, OLD)[1] is Pages.KEPT
    assert opened(handles, Bytes(1, b"old content, and more"))[1] is Pages.DROPPED


def test_the_pages_of_what_is_open_are_not_filled_with_something_else() -> None:
    handles = Handles()
    old, _ = opened(handles, OLD)
    new, pages = opened(handles, NEW)
    assert pages is Pages.PASSED_BY
    assert handles.read(new, 0, 100) == b"new"
    handles.release(old)
    assert opened(handles, NEW)[1] is Pages.DROPPED
    assert opened(handles, NEW)[1] is Pages.KEPT


def test_who_holds_what_was_there_before_is_told_once_the_kernel_was() -> None:
    handles = Handles()
    old, _ = opened(handles, OLD)
    handles.tell(PATH, OLD.attributes())
    assert handles.read(old, 0, 3) == b"old"
    handles.tell(PATH, NEW.attributes())  # the size that it goes by is no longer that of the older one
    for ask in (lambda: handles.read(old, 0, 3), lambda: handles.attributes(old)):
        with pytest.raises(Stale):
            ask()


def test_what_the_kernel_knows_another_size_of_is_looked_up_before_it_is_opened() -> None:
    handles = Handles()
    handles.tell(PATH, OLD.attributes())
    with pytest.raises(Stale):
        handles.open(PATH, NEW, NEW.attributes())
    handles.tell(PATH, NEW.attributes())
    handle, pages = handles.open(PATH, NEW, NEW.attributes())
    assert pages is Pages.DROPPED
    assert handles.read(handle, 0, 100) == b"new"


def test_what_is_another_thing_each_time_is_opened_nevertheless() -> None:
    handles = Handles()
    handles.tell(PATH, OLD.attributes())
    for _ in range(2):  # another opener, before the path was looked up for the first
        with pytest.raises(Stale):
            handles.open(PATH, NEW, NEW.attributes())
    handles.tell(PATH, NEW.attributes())
    newer = Bytes(3, b"newer")
    handle, pages = handles.open(PATH, newer, newer.attributes())
    assert pages is Pages.PASSED_BY
    assert handles.read(handle, 0, 100) == b"newer"


@pytest.mark.parametrize("node", [Bytes(2, b"new", is_new=True), Bytes(2, b"new", is_exchanged_often=True)])
def test_of_a_path_that_led_elsewhere_the_kernel_may_have_a_size_that_nobody_remembers(node: Bytes) -> None:
    handles = Handles()
    with pytest.raises(Stale):
        handles.open(PATH, node, node.attributes())
    handles.tell(PATH, node.attributes())
    handles.open(PATH, node, node.attributes())


def test_of_any_other_path_the_kernel_may_have_what_came_with_a_listing() -> None:
    handles = Handles()
    assert handles.open(PATH, OLD, OLD.attributes())[1] is Pages.DROPPED


def test_pages_are_dropped_that_who_reads_past_them_may_have_left() -> None:
    handles = Handles()
    old, _ = opened(handles, OLD)
    new, pages = opened(handles, NEW)
    assert pages is Pages.PASSED_BY
    handles.release(new)
    handles.release(old)
    assert opened(handles, OLD)[1] is Pages.DROPPED


def test_paths_do_not_disturb_each_other() -> None:
    handles = Handles()
    old, _ = opened(handles, OLD)
    opened(handles, NEW, b"/elsewhere")
    assert handles.read(old, 0, 3) == b"old"


def test_what_is_gone_is_stale_to_who_has_it_open() -> None:
    handles = Handles()
    handle, _ = opened(handles, Bytes(3, b"x", is_gone=True))
    with pytest.raises(Stale):
        handles.read(handle, 0, 1)
    handles.release(handle)
    with pytest.raises(Stale):
        handles.read(handle, 0, 1)


def test_what_is_closed_is_forgotten() -> None:
    handles = Handles()
    for number in range(20_000):
        handle, _ = opened(handles, OLD, b"/%d" % number)
        handles.release(handle)
    assert not handles._opened
    assert len(handles._places) <= 4096
