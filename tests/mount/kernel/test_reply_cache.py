"""Answers at hand: what they are, and when the request is handed on instead. This test is in the kernel's place."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from threading import Event, Thread, Timer
from typing import Final
from weakref import ref

import pytest

from kfs.mount.kernel import reply_cache
from kfs.mount.kernel.protocol import Opcode, entry_reply
from kfs.mount.kernel.reply_cache import MOST_GROUPS, ReplyCache
from kfs.mount.request_counts import request_metrics
from kfs.tree.node import NumberedFiles, Stamp
from tests.mount.toy_tree import FILE_MODE, MTIME_NS

IMPLEMENTATIONS: list[type[ReplyCache]] = [ReplyCache]
try:
    from kfs.mount.kernel.compiled_reply_cache import CompiledReplyCache
except ImportError:
    pass
else:
    IMPLEMENTATIONS.append(CompiledReplyCache)

UNIQUE: Final = 4712
DIRECTORY: Final = 77
ID_OF_ZERO: Final = (1 << 59) - 1000
#: No request that is ever at hand.
OTHER: Final = 99


class Lines:
    """Contents as a tree keeps them."""

    def __init__(self, lines: dict[int, bytes], timestamps: list[int] | None = None) -> None:
        self.lines = lines
        self.buffer = b"".join(lines.values())
        self.starts = array("q", accumulate(map(len, lines.values()), initial=0))
        self.offsets = array("q", lines)
        self.timestamps = array("q", timestamps or [1_606_446_771_205 + number for number in lines])


def lines_of(*numbers: int) -> Lines:
    return Lines({number: b"%d " % number * (number % 50 + 1) + b"\n" for number in numbers})


def files_of(lines: Lines, state: object = 1, id_of_zero: int = ID_OF_ZERO) -> NumberedFiles:
    return NumberedFiles(state, ".json", Stamp(id_of_zero, FILE_MODE, MTIME_NS, 12, 34), ref(lines))


class Kernel:
    """Asks as the kernel does."""

    def __init__(self, implementation: type[ReplyCache], most_seconds: float | None = None) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self.followed: set[int] = set()
        self.reply_cache = implementation(self._theirs.fileno(), lambda node_id: node_id in self.followed, most_seconds)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def ask(self, opcode: int, node_id: int, body: bytes) -> bytes | None:
        """Return the reply, None where the request is handed on."""
        request = self._request(opcode, node_id, body)
        other = self._request(OTHER, 1, b"")
        self._ours.send(request)
        self._ours.send(other)
        handed_on = self.reply_cache.next_request()
        if handed_on == request:
            assert self.reply_cache.next_request() == other
            return None
        assert handed_on == other
        return self._ours.recv(1 << 20)

    def look_up(self, name: str, directory: int = DIRECTORY) -> bytes | None:
        return self.ask(Opcode.LOOKUP, directory, name.encode() + b"\0")

    def read(self, node_id: int, offset: int = 0, size: int = 4096) -> bytes | None:
        reply = self.ask(Opcode.READ, node_id, struct.pack("=QQI20x", 0, offset, size))
        if reply is None:
            return None
        assert struct.unpack_from("=IiQ", reply) == (len(reply), 0, UNIQUE)
        return reply[16:]

    @contextmanager
    def sending(self, node_id: int, *, after: float) -> Iterator[bytes]:
        """Have a thread send a request that is never at hand, some seconds from now."""
        request = self._request(OTHER, node_id, b"")
        sender = Timer(after, self._ours.send, [request])
        sender.start()
        try:
            yield request
        finally:
            sender.join()

    @contextmanager
    def looking_up_for_ever(self, name: str) -> Iterator[None]:
        """Have a thread look a name up again whenever it was answered, until the end of a block."""
        is_over = Event()
        self._ours.setblocking(True)
        self._ours.settimeout(10)

        def run() -> None:
            while not is_over.is_set():
                self._ours.send(self._request(Opcode.LOOKUP, DIRECTORY, name.encode() + b"\0"))
                if not is_over.wait(0.001):
                    with suppress(TimeoutError):
                        self._ours.recv(1 << 16)

        asking = Thread(target=run)
        asking.start()
        try:
            yield
        finally:
            is_over.set()
            self._ours.settimeout(0.01)
            asking.join()

    @staticmethod
    def _request(opcode: int, node_id: int, body: bytes) -> bytes:
        return struct.pack("=IIQQIIII", 40 + len(body), opcode, UNIQUE, node_id, 0, 0, 0, 0) + body


@pytest.fixture(params=IMPLEMENTATIONS, ids=[implementation.__name__ for implementation in IMPLEMENTATIONS])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr(reply_cache, "HELD_SECONDS", 3600.0)  # no test depends on how busy the machine is
    made = Kernel(request.param)
    yield made
    made.close()


# -- what is answered


def test_a_name_is_answered_as_the_front_would(kernel: Kernel) -> None:
    lines = lines_of(*range(5), 8, 9, 200)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    for at, (number, line) in enumerate(lines.lines.items()):
        attributes = files_of(lines).stamp.attributes(number, len(line), lines.timestamps[at])
        assert kernel.look_up(f"{number}.json") == entry_reply(UNIQUE, attributes)


@pytest.mark.parametrize("timestamp", [-1, -2, 0, 999, -999, -1000, -1001, 2**63 - 1, -(2**63), 2**63 // 1_000_000])
def test_times_are_those_of_the_tree(kernel: Kernel, timestamp: int) -> None:
    lines = Lines({3: b"three\n"}, [timestamp])
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    attributes = files_of(lines).stamp.attributes(3, 6, timestamp)
    assert kernel.look_up("3.json") == entry_reply(UNIQUE, attributes)


def test_any_range_is_read(kernel: Kernel) -> None:
    lines = Lines({3: b"abc\n", 4: bytes(range(256)) * 80, 7: b""})
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    source = random.Random(4)
    for number, line in lines.lines.items():
        for _ in range(50):
            offset, size = source.randrange(len(line) + 10), source.choice([1, 100, 4096, 1 << 20])
            assert kernel.read(ID_OF_ZERO + number, offset, size) == line[offset : offset + size]


def test_offsets_far_behind_the_end_are_the_end(kernel: Kernel) -> None:
    lines = lines_of(3)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    for offset in (2**31, 2**63 - 1):
        assert kernel.read(ID_OF_ZERO + 3, offset) == b""


def test_large_numbers_whose_ids_count_from_below_zero(kernel: Kernel) -> None:
    number = 10**17 + 5
    lines = lines_of(number, number + 1)
    kernel.reply_cache.put(DIRECTORY, files_of(lines, id_of_zero=1000 - number))
    assert kernel.look_up(f"{number}.json") is not None
    assert kernel.read(1000) == lines.lines[number]
    assert kernel.read(1001) == lines.lines[number + 1]
    assert kernel.read(999) is None


def test_many_groups_in_several_directories(kernel: Kernel) -> None:
    made = []
    for directory in (5, 6):
        groups = [lines_of(*range(first, first + 10)) for first in range(0, 1000, 10)]
        random.Random(directory).shuffle(groups)
        for lines in groups:
            kernel.reply_cache.put(directory, files_of(lines, id_of_zero=directory << 32))
        made.append((directory, groups))
    for directory, groups in made:
        for lines in groups:
            for number, line in lines.lines.items():
                assert kernel.look_up(f"{number}.json", directory) is not None
                assert kernel.read((directory << 32) + number) == line


def test_what_is_put_again_takes_the_place_of_what_is_gone(kernel: Kernel) -> None:
    first = lines_of(*range(10))
    kernel.reply_cache.put(DIRECTORY, files_of(first))
    del first
    assert kernel.look_up("4.json") is None
    again = lines_of(*range(10))
    kernel.reply_cache.put(DIRECTORY, files_of(again))
    assert kernel.read(ID_OF_ZERO + 4) == again.lines[4]


# -- what is handed on


OTHER_STEMS: Final = ("007", "00", "-3", "+3", "3 ", "", "x", "٣", "3.json", "1_0", "9" * 18, "9" * 19, "9" * 200)


@pytest.mark.parametrize("name", [*(f"{stem}.json" for stem in OTHER_STEMS), "", "3", "3.jsonl", "3.JSON"])
def test_other_names_are_handed_on(kernel: Kernel, name: str) -> None:
    lines = lines_of(0, 3, 7, 10)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    assert kernel.look_up("3.json") is not None
    assert kernel.look_up(name) is None


def test_holes_and_what_lies_outside_are_handed_on(kernel: Kernel) -> None:
    lines = lines_of(10, 11, 14)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    for number in (0, 9, 12, 13, 15, 1000):
        assert kernel.look_up(f"{number}.json") is None
        assert kernel.read(ID_OF_ZERO + number) is None
    assert kernel.look_up("10.json", DIRECTORY + 1) is None
    assert kernel.read(1) is None


def test_nothing_at_hand(kernel: Kernel) -> None:
    assert kernel.look_up("1.json") is None
    assert kernel.read(1) is None
    kernel.reply_cache.hand_on_next(DIRECTORY)


def test_contents_that_are_not_kept_are_handed_on(kernel: Kernel) -> None:
    lines, others = lines_of(1, 2), lines_of(3, 4)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    kernel.reply_cache.put(DIRECTORY, files_of(others))
    files = files_of(lines)
    del lines
    assert kernel.look_up("1.json") is None
    assert kernel.read(ID_OF_ZERO + 1) is None
    kernel.reply_cache.put(DIRECTORY, files)
    assert kernel.look_up("1.json") is None
    assert kernel.look_up("3.json") is not None


def test_the_beginning_of_a_file_that_is_followed_is_handed_on(kernel: Kernel) -> None:
    lines = lines_of(49)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    kernel.followed.add(ID_OF_ZERO + 49)
    assert kernel.read(ID_OF_ZERO + 49) is None
    assert kernel.read(ID_OF_ZERO + 49, 3) == lines.lines[49][3:]


def test_a_directory_that_changed_has_only_the_new_at_hand(kernel: Kernel) -> None:
    old, new = lines_of(1, 2), lines_of(3, 4)
    kernel.reply_cache.put(DIRECTORY, files_of(old, state="old"))
    kernel.reply_cache.put(DIRECTORY, files_of(new, state="new"))
    assert kernel.look_up("1.json") is None
    assert kernel.read(ID_OF_ZERO + 1) is None
    assert kernel.read(ID_OF_ZERO + 3) == new.lines[3]


def test_a_directory_is_asked_again_after_a_while(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, more = lines_of(1, 2), lines_of(3)
    monkeypatch.setattr(reply_cache, "HELD_SECONDS", -0.1)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    assert kernel.look_up("1.json") is None
    assert kernel.read(ID_OF_ZERO + 1) is None
    monkeypatch.setattr(reply_cache, "HELD_SECONDS", 3600.0)
    kernel.reply_cache.put(DIRECTORY, files_of(more))  # it says the same: so all of it holds
    assert kernel.look_up("1.json") is not None
    assert kernel.read(ID_OF_ZERO + 1) == lines.lines[1]


def test_the_next_name_is_handed_on_where_that_is_wanted(kernel: Kernel) -> None:
    lines = lines_of(1, 2)
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    kernel.reply_cache.hand_on_next(DIRECTORY)
    assert kernel.look_up("1.json") is None
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    assert kernel.look_up("1.json") is not None


def test_no_more_groups_are_known_than_there_is_room_for(kernel: Kernel) -> None:
    kept = [Lines({number: b"x"}, [0]) for number in range(MOST_GROUPS + 1)]
    for lines in kept:
        kernel.reply_cache.put(DIRECTORY, files_of(lines))
    assert kernel.look_up("0.json") is None
    assert kernel.read(ID_OF_ZERO) is None
    assert kernel.read(ID_OF_ZERO + MOST_GROUPS) == b"x"


@pytest.mark.parametrize("seconds", [0.0, 0.00005, 0.3])
def test_a_request_is_returned_whenever_it_comes(kernel: Kernel, seconds: float) -> None:
    for number in range(3):
        with kernel.sending(number, after=seconds) as request:
            assert kernel.reply_cache.next_request() == request


def test_waiting_takes_no_cpu_even_after_requests_that_came_fast(kernel: Kernel) -> None:
    for number in range(100):
        kernel.ask(OTHER, number, b"")
    before = time.thread_time()
    with kernel.sending(101, after=0.5) as request:
        assert kernel.reply_cache.next_request() == request
    assert time.thread_time() - before < 0.1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_device_that_fails_is_an_error(implementation: type[ReplyCache]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(OSError) as failed:
            implementation(writing, lambda _node_id: False).next_request()
    finally:
        os.close(writing)
    assert failed.value.errno == errno.EBADF


# -- how long it waits


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_it_waits_no_longer_than_it_may(implementation: type[ReplyCache]) -> None:
    kernel = Kernel(implementation, most_seconds=0.02)
    try:
        with pytest.raises(TimeoutError):
            kernel.reply_cache.next_request()
        with kernel.sending(5, after=0) as request:
            pass
        assert kernel.reply_cache.next_request() == request
    finally:
        kernel.close()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nor_while_it_answers_one_request_after_another(
    implementation: type[ReplyCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_cache, "HELD_SECONDS", 3600.0)
    kernel = Kernel(implementation, most_seconds=0.1)
    lines = lines_of(*range(5))
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    try:
        with kernel.looking_up_for_ever("3.json"), pytest.raises(TimeoutError):
            kernel.reply_cache.next_request()
    finally:
        kernel.close()


# -- what is counted


def test_answers_are_counted_with_their_bytes_and_what_is_handed_on_is_not(kernel: Kernel) -> None:
    lines = Lines({3: b"three\n", 4: b"x" * 9000})
    kernel.reply_cache.put(DIRECTORY, files_of(lines))
    assert kernel.reply_cache.counts.answered() == []
    for name in ("3.json", "4.json", "5.json"):
        kernel.look_up(name)
    for number, offset in ((3, 0), (4, 0), (4, 4096), (4, 9000), (5, 0)):
        kernel.read(ID_OF_ZERO + number, offset)
    assert kernel.look_up("5.json") is None
    answered = {each.operation: each for each in kernel.reply_cache.counts.answered()}
    assert {operation: each.number for operation, each in answered.items()} == {Opcode.LOOKUP: 2, Opcode.READ: 4}
    assert kernel.reply_cache.counts.read_bytes == 6 + 2 * 4096
    assert all(each.nanoseconds > 0 for each in answered.values())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_requests_are_counted_by_operation_duration_and_error(implementation: type[ReplyCache]) -> None:
    counts = implementation.counts_class()
    for seconds in (0.002, 2, 5, 20):
        counts.add(Opcode.READ, time.monotonic_ns() - int(seconds * 1e9), read_bytes=100)
    counts.add(Opcode.LOOKUP, time.monotonic_ns() - 2_000_000_000, errno.ENOENT)
    counts.add(Opcode.LOOKUP, time.monotonic_ns() - 2_000_000_000, errno.ENOENT)
    counts.add_read(11)
    answered = {each.operation: each for each in counts.answered()}
    assert answered[Opcode.READ].classes == (0, 0, 0, 1, 0, 0, 2, 1)
    assert answered[Opcode.LOOKUP].classes == (0, 0, 0, 0, 0, 0, 2, 0)
    assert 27.002e9 < answered[Opcode.READ].nanoseconds < 60e9
    assert counts.errors.items() == [((Opcode.LOOKUP, errno.ENOENT), 2)]
    assert counts.read_bytes == 411


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_opcodes_that_nobody_knows_yet_are_counted_together(implementation: type[ReplyCache]) -> None:
    counts = implementation.counts_class()
    for opcode in (63, 64, 4096, 2**32 - 1):
        counts.add(opcode, time.monotonic_ns())
    metrics = {metric.name: metric for metric in request_metrics([counts], lambda _: "other")}
    assert [sample.value for sample in metrics["kfs_requests_total"].samples] == [4]
