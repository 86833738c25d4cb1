"""What is stored ahead of a reader: the right bytes, nothing that he is waiting for, and only so much."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfs.mount.kernel.prefetch import CREDIT, LAST_WINDOW, MOST_READERS, MOST_WAITING, Prefetch
from kfs.mount.kernel.protocol import NOTIFY_STORE, Notify
from tests.mount.toy_tree import Control, ToyTree, record_json

STORE_HEADER = 40


@pytest.fixture
def tree(tmp_path: Path) -> ToyTree:
    return ToyTree(Control(tmp_path / "control"), records=100_000)


def numbers(tree: ToyTree, stored: list[bytes]) -> list[int]:
    """Return which records were stored; every one of them whole, at its beginning, and as it is."""
    found = []
    for message in stored:
        length, code, unique, node_id, offset, size = NOTIFY_STORE.unpack_from(message)
        number = int(tree.path(node_id).rpartition("/")[2].removesuffix(".json"))
        assert (length, code, unique, offset) == (len(message), Notify.STORE, 0, 0)
        assert message[STORE_HEADER:] == record_json(number)
        assert size == len(record_json(number))
        found.append(number)
    return found


class Following:
    """A reader who reads in order; what arrives at the kernel is taken apart into answers and stores."""

    def __init__(self, tree: ToyTree) -> None:
        self.tree = tree
        self.kernel, device = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.descriptor = device.detach()
        self.ahead = Prefetch(tree, self.descriptor, lambda: None)

    def id_of(self, number: int) -> int:
        return self.tree.resolve(f"walked/{number}.json").attributes().node_id

    def takes(self, number: int) -> bool:
        return self.ahead.takes(self.id_of(number), struct.pack("=IiQ", 16, 0, number + 1))

    def arrived(self, seconds: float = 1.0) -> list[bytes]:
        messages = []
        while select.select([self.kernel], [], [], seconds)[0]:
            messages.append(self.kernel.recv(1 << 20))
            seconds = 0.2
        return messages

    def close(self) -> None:
        self.ahead.stop()
        self.kernel.close()
        os.close(self.descriptor)


@pytest.fixture
def following(tree: ToyTree) -> Iterator[Following]:
    reader = Following(tree)
    yield reader
    reader.close()


def test_reads_that_nobody_gets_to_look_at_are_dropped(following: Following) -> None:
    following.ahead.was_listed()
    assert not any(following.takes(number) for number in range(10 * MOST_WAITING))
    assert len(following.ahead._reads) == MOST_WAITING


def test_nothing_is_stored_where_nothing_was_listed(following: Following) -> None:
    following.ahead.start()
    assert not any(following.takes(number) for number in range(50))
    assert following.arrived(0.3) == []


def test_what_follows_is_stored_and_the_file_that_is_waited_for_is_not(following: Following) -> None:
    following.ahead.was_listed()
    following.ahead.start()
    assert not following.takes(0)
    first = numbers(following.tree, following.arrived())
    assert first == list(range(first[0], first[-1] + 1))
    assert first[0] > 0
    caught_up = first[-1] + 1
    assert following.takes(caught_up)
    messages = following.arrived()
    answer = struct.pack("=IiQ", 16, 0, caught_up + 1)
    assert messages.count(answer) == 1
    # The answer leaves before what doesn't fit into the time that it may be held for, and after something.
    assert messages.index(answer) > 0
    stored = numbers(following.tree, [message for message in messages if message != answer])
    assert caught_up not in stored
    assert stored == list(range(caught_up + 1, stored[-1] + 1))


def test_who_jumps_about_uses_up_the_credit(following: Following) -> None:
    following.ahead.was_listed()
    following.ahead.start()
    for number in range(0, 90_000, 3_000):
        following.takes(number)
        following.arrived(0.1)
    assert following.ahead._credit <= 0
    assert len(following.ahead._readers) <= min(CREDIT, MOST_READERS)


def test_memory_is_bounded_however_much_is_read(following: Following) -> None:
    following.ahead.was_listed()
    following.ahead.start()
    number = 0
    for _ in range(40):
        following.takes(number)
        stored = [message for message in following.arrived(0.3) if len(message) > 16]
        number = max([number, *numbers(following.tree, stored)]) + 1
    assert number > 2 * LAST_WINDOW
    # Those by whom a reader is recognised, and nothing for each file that was ever read.
    assert len(following.ahead._places) <= 2 * LAST_WINDOW
