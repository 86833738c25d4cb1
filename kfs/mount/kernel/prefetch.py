"""Putting the contents of small files into the kernel's page cache before they are asked for."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Final

from kfs.errors import KfsError
from kfs.mount.kernel.protocol import NOTIFY_STORE, Notify
from kfs.mount.nodes import BLOCK_SIZE
from kfs.tree.node import Tree

logger = logging.getLogger("kfs.mount")

#: How many files the cache is filled with ahead of a reader: at first, and at most.
FIRST_WINDOW: Final = 64
LAST_WINDOW: Final = 2048
#: How many files are left to a reader who was faster than we: he is at them already.
HEAD_START: Final = 8
#: How many files are stored at most while a reader waits for his answer.
MOST_WHILE_HELD: Final = 256
#: How long, in seconds, an answer may wait for a store that is being written.
_HANDOVER_SECONDS: Final = 0.0005
#: How many reads may turn out not to go on in order before it is taken that none does, until the next listing.
CREDIT: Final = 16
#: How many readers are followed at a time.
MOST_READERS: Final = 16
#: How many reads may wait to be looked at; more are dropped.
MOST_WAITING: Final = 256
#: Larger contents are left to the kernel's own read-ahead.
LARGEST_BYTES: Final = 16 * BLOCK_SIZE

#: How many files of a reader are known before they are stored: a reader who overtakes us is still recognised.
_KNOWN: Final = 128
#: How many files are stored for one reader before it is another's turn.
_TURN: Final = 64


class _Reader:
    """A reader of files in their order. Places in that order are counted from where it was first seen."""

    __slots__ = ("contents", "ids", "next_place", "target", "upcoming", "window")

    def __init__(self, contents: Iterator[tuple[int, bytes]]) -> None:
        self.contents = contents
        self.upcoming: deque[tuple[int, bytes]] = deque()
        self.ids: deque[int] = deque()  # those by which he is recognised, the upcoming ones last
        self.next_place = 0  # of the first of the upcoming
        self.window = FIRST_WINDOW
        self.target = FIRST_WINDOW  # the place up to which to store


class Prefetch:
    """Follows those who read the files of a listed directory in order, and stays ahead of them.

    The kernel accepts contents (NOTIFY_STORE) only for inodes that it has, which it has from a listing with
    attributes. As long as a reader finds what he wants he is not heard of; his next read is the sign that he
    wants more, and more at a time, as with the kernel's own read-ahead. A tool like grep takes little longer
    to read a file than we take to store it. So when it has caught up with us its answer is held until
    there is something ahead of it again: otherwise we would run behind it from then on.

    All of that happens in a thread of its own. The kernel locks a page from when it asks for it until it is
    answered, and a write that stores the same page waits for that lock: done by a thread that has to answer
    meanwhile, it would wait for ever. Hence the rule about the answer that is held: whoever has ``_slot``
    may write. The thread has it while it stores a page that somebody may be waiting for; whoever answers
    passes it on together with an answer, and then only what follows the file in question is stored. Of that,
    somebody else may be waiting for a page, and for a slow disk: then :meth:`release_overdue` sends the answer.
    """

    def __init__(self, tree: Tree, device: int, on_reader: Callable[[], None]) -> None:
        self._tree = tree
        self._device = device
        self._on_reader = on_reader
        self._credit = 0
        self._reads: deque[int] = deque()
        self._wake = threading.Event()
        self._stopped = False
        self._slot = threading.Lock()
        self._handed_over: int | None = None  # the file whose answer came with the slot
        self._held: bytes | None = None
        self._overdue: bytes | None = None
        self._sending = threading.Lock()
        self._readers: OrderedDict[_Reader, None] = OrderedDict()
        self._places: dict[int, tuple[_Reader, int]] = {}
        self._thread = threading.Thread(target=self._run, name="kfs-ahead", daemon=True)

    def start(self) -> None:
        """Begin; the tree is asked from another thread from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Return once nothing is stored any more, or after a moment: a write may wait for a lock."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    # -- called by those who answer requests

    def was_listed(self) -> None:
        """Take note of a listing with attributes: reads in its order may follow."""
        self._credit = CREDIT

    def follows(self, node_id: int) -> bool:
        """Return whether a read of a file's beginning is to be taken note of."""
        return self._credit > 0 or node_id in self._places

    def takes(self, node_id: int, answer: bytes) -> bool:
        """Take note of a read of a file's beginning; return whether its answer is taken over, to be sent soon."""
        known = self._places.get(node_id)
        if known is None:
            if self._credit > 0:
                self._note(node_id)
            return False
        reader, place = known
        caught_up = place >= reader.next_place
        if caught_up and not self._stopped and self._slot.acquire(timeout=_HANDOVER_SECONDS):
            self._held = answer
            self._handed_over = node_id
            self._wake.set()
            return True
        self._note(node_id)
        return False

    def release_overdue(self) -> None:
        """Send an answer that was held already when this was last called."""
        if self._held is not None and self._held is self._overdue:
            self._answer_held()
        self._overdue = self._held

    def _note(self, node_id: int) -> None:
        if len(self._reads) < MOST_WAITING:
            self._reads.append(node_id)
            if not self._wake.is_set():
                self._wake.set()

    # -- the thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._work()
            except Exception:
                logger.exception("reading ahead")
                self._readers.clear()
                self._places.clear()
        self._answer_held()  # one that came after the end

    def _work(self) -> None:
        """Look at the reads that wait, then go on a little for each reader."""
        while self._reads:
            self._follow(self._reads.popleft())
        if self._handed_over is not None:
            try:
                self._store_for_held(self._handed_over)
            finally:
                self._handed_over = None
                held = self._take_held()
                self._slot.release()
                self._send(held)
        busy = [reader for reader in self._readers if reader.upcoming and reader.next_place < reader.target]
        for reader in busy:
            self._store_some(reader, _TURN, is_for_held=False)
        if not busy and not self._reads and self._handed_over is None:
            self._wake.wait()
            self._wake.clear()

    def _store_for_held(self, node_id: int) -> None:
        known = self._places.get(node_id)
        if known is not None:
            reader, place = known
            self._skip(reader, place + 1)  # what is held is not stored
            self._follow(node_id)
            self._store_some(reader, min(reader.window, MOST_WHILE_HELD), is_for_held=True)

    def _answer_held(self) -> None:
        self._send(self._take_held())

    def _take_held(self) -> bytes | None:
        """Return the answer that is held, to the first who asks."""
        with self._sending:
            held, self._held = self._held, None
        return held

    def _send(self, answer: bytes | None) -> None:
        if answer is not None:
            with contextlib.suppress(OSError):  # the reader is gone, or the mount
                os.write(self._device, answer)

    def _follow(self, node_id: int) -> None:
        """Take note of where a reader is."""
        known = self._places.get(node_id)
        if known is None:
            self._credit -= 1
            reader, place = _Reader(self._tree.following(node_id)), -1
            self._look_ahead(reader)
            if not reader.upcoming:
                return
            if len(self._readers) >= MOST_READERS:
                self._lose(next(iter(self._readers)))
            self._readers[reader] = None
        else:
            reader, place = known
            self._credit = CREDIT
            self._readers.move_to_end(reader)
            reader.window = min(reader.window * 4, LAST_WINDOW)
            reader.target = max(reader.target, place + reader.window)
            self._on_reader()
        if place >= reader.next_place and self._handed_over is None:  # he has caught up with us, and is going on
            self._skip(reader, place + 1 + HEAD_START)

    def _skip(self, reader: _Reader, place: int) -> None:
        while reader.upcoming and reader.next_place < place:
            reader.upcoming.popleft()
            reader.next_place += 1
            self._look_ahead(reader)

    def _store_some(self, reader: _Reader, most: int, *, is_for_held: bool) -> None:
        """Store what is upcoming, at most a number of files, and no further once a request waits."""
        for _ in range(most):
            if not reader.upcoming or reader.next_place >= reader.target or (self._reads and not is_for_held):
                return
            if is_for_held and self._held is None:
                return  # his answer was overdue
            if not is_for_held and not self._slot.acquire(blocking=False):
                return  # an answer is being passed on to us
            try:
                node_id, content = reader.upcoming[0]
                is_known = not content or self._store(node_id, content)
            finally:
                if not is_for_held:
                    self._slot.release()
            if not is_known:  # not listed yet: his own read will tell when it is
                reader.target = reader.next_place
                return
            reader.upcoming.popleft()
            reader.next_place += 1
            self._look_ahead(reader)

    def _look_ahead(self, reader: _Reader) -> None:
        """Find out what follows, as far as a reader is to be recognised."""
        while len(reader.upcoming) < _KNOWN:
            try:
                node_id, content = next(reader.contents)
            except (StopIteration, KfsError):  # who wants what can't be shown will be told
                reader.contents = iter(())
                return
            self._places[node_id] = reader, reader.next_place + len(reader.upcoming)
            reader.upcoming.append((node_id, content if len(content) <= LARGEST_BYTES else b""))
            reader.ids.append(node_id)
            if len(reader.ids) > 2 * LAST_WINDOW:
                self._places.pop(reader.ids.popleft(), None)

    def _lose(self, reader: _Reader) -> None:
        """Follow a reader no longer."""
        del self._readers[reader]
        for node_id in reader.ids:
            if self._places.get(node_id, (None,))[0] is reader:
                del self._places[node_id]

    def _store(self, node_id: int, content: bytes) -> bool:
        """Put the whole of a file into the page cache; return False if the kernel doesn't have its inode."""
        size = len(content)
        head = NOTIFY_STORE.pack(NOTIFY_STORE.size + size, Notify.STORE, 0, node_id, 0, size)
        try:
            os.write(self._device, head + content)
        except OSError:
            return False
        return True
