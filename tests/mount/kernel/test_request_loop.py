"""The request loop feeds the watchdog for as long as somebody reads requests, or can't for want of a disk."""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from kfs.mount.kernel import request_loop
from kfs.mount.kernel.protocol import IN_HEADER
from kfs.mount.kernel.request_loop import RequestLoop
from kfs.mount.systemd import Watchdog
from tests.mount.toy_mount import eventually

_MOST_LATE: Final = 3
_LIMIT: Final = 0.2


class Fed(Watchdog):
    """Counts how often it was fed."""

    def __init__(self) -> None:
        super().__init__(_LIMIT)
        self.times = 0

    def feed(self) -> None:
        if self.is_due():
            self.times += 1
            self._due = time.monotonic() + self.interval

    def is_fed_again(self, seconds: float) -> bool:
        """Return whether it is fed twice more; the first time may have been under way."""
        before = self.times
        return eventually(lambda: self.times > before + 1, seconds)


class Requests:
    """In the device's place: hands out what a test puts in."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._seconds = watchdog.interval
        self._is_over = False

    def put(self, unique: int) -> None:
        self._waiting.put(unique)

    def hang_up(self) -> None:
        self._is_over = True

    def are_waiting(self) -> bool:
        return not self._waiting.empty()

    def next_request(self) -> bytes:
        if self._is_over:
            raise OSError(errno.ENODEV, "")
        try:
            unique = self._waiting.get(timeout=self._seconds)
        except queue.Empty:
            raise TimeoutError(errno.ETIMEDOUT, "") from None
        return IN_HEADER.pack(IN_HEADER.size, 1, unique, 1)


Serve = Callable[[Callable[[], None]], tuple[Fed, Requests]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Runs a loop that answers each request by a call; late threads are few."""
    monkeypatch.setattr(request_loop, "MOST_LATE", _MOST_LATE)
    running: list[tuple[Requests, threading.Thread]] = []

    def start(answer: Callable[[], None]) -> tuple[Fed, Requests]:
        watchdog = Fed()
        requests = Requests(watchdog)
        loop = RequestLoop(requests.next_request, lambda *_: answer(), lambda: None, watchdog)
        thread = threading.Thread(target=loop.run)
        thread.start()
        running.append((requests, thread))
        return watchdog, requests

    yield start
    for requests, thread in running:
        requests.hang_up()
        thread.join(10)
        assert not thread.is_alive()


def test_an_idle_loop_feeds_the_watchdog(serve: Serve) -> None:
    watchdog, _ = serve(lambda: None)
    assert watchdog.is_fed_again(10)


def test_a_busy_loop_feeds_it(serve: Serve) -> None:
    watchdog, requests = serve(lambda: time.sleep(0.001))
    for unique in range(1, 20_000):
        requests.put(unique)
    assert watchdog.is_fed_again(10)
    assert requests.are_waiting()


def test_a_stalled_disk_starves_nobody(serve: Serve) -> None:
    stalled, disk = os.pipe()

    def read() -> None:
        os.read(stalled, 1)

    watchdog, requests = serve(read)
    try:
        for unique in range(1, _MOST_LATE + 3):  # more than there may be late threads: nobody reads any more
            requests.put(unique)
            assert watchdog.is_fed_again(10)
    finally:
        os.write(disk, b"x" * 100)
    assert watchdog.is_fed_again(10)


def test_threads_that_wait_for_each_other_starve_it(serve: Serve) -> None:
    lock = threading.Lock()
    lock.acquire()

    def wait() -> None:
        with lock:
            pass

    watchdog, requests = serve(wait)
    try:
        requests.put(1)
        assert watchdog.is_fed_again(10)  # others are served
        for unique in range(2, _MOST_LATE + 3):
            requests.put(unique)
        assert eventually(lambda: not watchdog.is_fed_again(3 * _LIMIT))
    finally:
        lock.release()
    assert watchdog.is_fed_again(10)
