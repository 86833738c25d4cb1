"""Stores the contents of small files in the kernel's page cache ahead of readers."""

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

#: How many files are stored ahead of a reader: at first, and at most.
FIRST_WINDOW: Final = 64
LAST_WINDOW: Final = 2048
#: How many files to skip when a reader caught up: it is reading them already.
HEAD_START: Final = 8
#: The most files stored while a reader waits for a held reply.
MOST_WHILE_HELD: Final = 256
#: How long, in seconds, a reply may wait for a store in progress.
_HANDOVER_SECONDS: Final = 0.0005
#: How many reads may turn out not to be sequential before reads are ignored until the next listing.
CREDIT: Final = 16
#: The most readers followed at a time.
MOST_READERS: Final = 16
#: The most reads waiting to be examined; more are dropped.
MOST_WAITING: Final = 256
#: Larger contents are left to the kernel's read-ahead.
LARGEST_BYTES: Final = 16 * BLOCK_SIZE

#: How many files of a reader are known before they are stored: this recognises a reader that overtakes us.
_KNOWN: Final = 128
#: How many files are stored for a reader before the next reader's turn.
_TURN: Final = 64


class _Reader:
    """A sequential reader of files. Places count from where it was first noticed."""

    __slots__ = ("contents", "ids", "next_place", "target", "upcoming", "window")

    def __init__(self, contents: Iterator[tuple[int, bytes]]) -> None:
        self.contents = contents
        self.upcoming: deque[tuple[int, bytes]] = deque()
        self.ids: deque[int] = deque()  # ids that identify the reader, the upcoming ones last
        self.next_place = 0  # of the first upcoming file
        self.window = FIRST_WINDOW
        self.target = FIRST_WINDOW  # store up to this place


class Prefetch:
    """Follows sequential readers of the files of a listed directory, and stays ahead of them.

    The kernel accepts contents (NOTIFY_STORE) only for inodes it has, which it gets from a listing with attributes.
    While a reader finds contents in the page cache it sends no requests. Its next read shows that it needs more, and
    the window grows, as in the kernel's own read-ahead. A tool like grep reads a file in little more time than we take
    to store it. So the reply to a reader that caught up is held until there are stored files ahead of it again;
    otherwise we would stay behind from then on.

    A separate thread does all of this. The kernel locks a page from the request until the reply, and a write that
    stores the same page waits for that lock: a thread that also has to reply would deadlock. So only the holder of
    ``_slot`` may write. The thread holds it while it stores a page that a request may be waiting for. A thread that
    answers passes it on together with a held reply, and then only files after that one are stored. If another request
    waits for one of those pages, and for a slow disk, :meth:`release_overdue` sends the held reply.
    """

    def __init__(self, tree: Tree, device: int, on_reader: Callable[[], None]) -> None:
        self._tree = tree
        self._device = device
        self._on_reader = on_reader
        #: The files stored, and their bytes.
        self.files = self.nbytes = 0
        self._credit = 0
        self._reads: deque[int] = deque()
        self._wake = threading.Event()
        self._stopped = False
        self._slot = threading.Lock()
        self._handed_over: int | None = None  # the file whose reply came with the slot
        self._held: bytes | None = None
        self._overdue: bytes | None = None
        self._sending = threading.Lock()
        self._readers: OrderedDict[_Reader, None] = OrderedDict()
        self._places: dict[int, tuple[_Reader, int]] = {}
        self._thread = threading.Thread(target=self._run, name="kfs-ahead", daemon=True)

    def start(self) -> None:
        """Start the thread; from now on it uses the tree."""
        self._thread.start()

    def stop(self) -> None:
        """Stop storing; return when that is done, or after a second, because a write may wait for a lock."""
        self._stopped = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    # -- called by threads that answer requests

    def was_listed(self) -> None:
        """Note a listing with attributes: sequential reads may follow."""
        self._credit = CREDIT

    def follows(self, node_id: int) -> bool:
        """Return whether to report reads of this file's beginning."""
        return self._credit > 0 or node_id in self._places

    def takes(self, node_id: int, answer: bytes) -> bool:
        """Note a read of a file's beginning; return whether this took over its reply, to send it soon."""
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
        """Send the reply if it was already held at the previous call."""
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
        """Handle the waiting reads, then store some files for each reader."""
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
            self._skip(reader, place + 1)  # the file of the held reply is not stored
            self._follow(node_id)
            self._store_some(reader, min(reader.window, MOST_WHILE_HELD), is_for_held=True)

    def _answer_held(self) -> None:
        self._send(self._take_held())

    def _take_held(self) -> bytes | None:
        """Return the held reply, to the first caller only."""
        with self._sending:
            held, self._held = self._held, None
        return held

    def _send(self, answer: bytes | None) -> None:
        if answer is not None:
            with contextlib.suppress(OSError):  # the reader or the mount is gone
                os.write(self._device, answer)

    def _follow(self, node_id: int) -> None:
        """Update the place of a reader."""
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
        if place >= reader.next_place and self._handed_over is None:  # it has caught up with us, and goes on
            self._skip(reader, place + 1 + HEAD_START)

    def _skip(self, reader: _Reader, place: int) -> None:
        while reader.upcoming and reader.next_place < place:
            reader.upcoming.popleft()
            reader.next_place += 1
            self._look_ahead(reader)

    def _store_some(self, reader: _Reader, most: int, *, is_for_held: bool) -> None:
        """Store upcoming files, ``most`` at most, and stop when a request waits."""
        for _ in range(most):
            if not reader.upcoming or reader.next_place >= reader.target or (self._reads and not is_for_held):
                return
            if is_for_held and self._held is None:
                return  # its reply was overdue
            if not is_for_held and not self._slot.acquire(blocking=False):
                return  # a held reply is being passed on to us
            try:
                node_id, content = reader.upcoming[0]
                is_known = not content or self._store(node_id, content)
            finally:
                if not is_for_held:
                    self._slot.release()
            if not is_known:  # not listed yet: its own read will show when it is
                reader.target = reader.next_place
                return
            reader.upcoming.popleft()
            reader.next_place += 1
            self._look_ahead(reader)

    def _look_ahead(self, reader: _Reader) -> None:
        """Find the upcoming files, as many as are needed to recognise the reader."""
        while len(reader.upcoming) < _KNOWN:
            try:
                node_id, content = next(reader.contents)
            except (StopIteration, KfsError):  # a reader of an unreadable file gets the error itself
                reader.contents = iter(())
                return
            self._places[node_id] = reader, reader.next_place + len(reader.upcoming)
            reader.upcoming.append((node_id, content if len(content) <= LARGEST_BYTES else b""))
            reader.ids.append(node_id)
            if len(reader.ids) > 2 * LAST_WINDOW:
                self._places.pop(reader.ids.popleft(), None)

    def _lose(self, reader: _Reader) -> None:
        """Stop following a reader."""
        del self._readers[reader]
        for node_id in reader.ids:
            if self._places.get(node_id, (None,))[0] is reader:
                del self._places[node_id]

    def _store(self, node_id: int, content: bytes) -> bool:
        """Store a whole file in the page cache; return False if the kernel doesn't have its inode."""
        size = len(content)
        head = NOTIFY_STORE.pack(NOTIFY_STORE.size + size, Notify.STORE, 0, node_id, 0, size)
        try:
            os.write(self._device, head + content)
        except OSError:
            return False
        self.files += 1
        self.nbytes += size
        return True
