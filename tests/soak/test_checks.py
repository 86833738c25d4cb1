"""The soak notices what it is there for: each kind of wrong answer, made by hand."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.soak.checks import Checker, LogStart, Sight
from tests.soak.findings import Findings
from tests.soak.journal import FRESHNESS, Journal, Part
from tests.soak.values import Fate, NotOurs, Stamp

TOPIC = "orders"
#: So long ago that a mount has to know it.
LONG_AGO = 100.0


@dataclass
class World:
    """A journal with a partition of records, each at twice its sequence, that were sent long ago."""

    journal: Journal = field(default_factory=Journal)
    findings: Findings = field(default_factory=Findings)
    log_start: int = 0
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.checker = Checker(self.journal, self.findings, LogStart(lambda _topic, _partition: self.log_start))
        self.part = self.generation(10)

    def generation(self, records: int, is_compacted: bool = False) -> Part:
        """Begin a generation of the topic, with records; the one before is deleted."""
        before = self.journal.alive(TOPIC, time.time() - 1, time.time())
        if before is not None:
            before.deleted_at = time.time() - 2 * FRESHNESS
        made = self.journal.create(TOPIC, 1, is_compacted)
        made.created_at -= LONG_AGO
        part = made.parts[0]
        self.lines = [self.send(part) for _ in range(records)]
        return part

    def send(self, part: Part, fate: Fate = Fate.PLAIN, key: int = -1) -> bytes:
        """Send a record; return its line."""
        stamp = part.stamp(fate, key)
        value = stamp.value(50, random.Random(stamp.sequence))
        part.ack(stamp.sequence, 2 * stamp.sequence, fate is Fate.PLAIN)
        part.acked_at[stamp.sequence] -= LONG_AGO
        part.stable_at[stamp.sequence] -= LONG_AGO
        return line(stamp, 2 * stamp.sequence, value, part.key_at(stamp.sequence))

    def sight(self, **more: Any) -> Sight:
        """Open something of the partition."""
        return Sight("here", "lines", "path", TOPIC, 0, **more)

    def read(self, *lines: bytes, **more: Any) -> Sight:
        """Read lines."""
        sight = self.sight(**more)
        for each in lines:
            self.checker.line(sight, each)
        return sight

    def found(self) -> list[str]:
        """What is wrong, each kind once."""
        return sorted({name.split(" | ")[0] for name in self.findings.counts})


def line(stamp: Stamp, offset: int, value: bytes, key: bytes | None) -> bytes:
    """A record as kfs shows it, as far as it matters here."""
    record: dict[str, Any] = {"topic": stamp.topic, "partition": stamp.partition, "offset": offset}
    record |= {"timestamp": stamp.timestamp, "key": None if key is None else key.decode()}
    try:
        record["value"] = value.decode()
    except UnicodeDecodeError:
        record |= {"value": base64.b64encode(value).decode(), "valueEncoding": "base64"}
    return json.dumps(record).encode()


@pytest.fixture
def world() -> World:
    """What was sent, and nothing found yet."""
    return World()


def test_what_is_right_is_no_finding(world: World) -> None:
    world.checker.complete(world.read(*world.lines), None, None)
    assert world.found() == []


def altered(old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [lines[1].replace(old, new)]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(lambda lines: [lines[1][:-30]], ["line doesn't parse"], id="a line that is cut"),
        pytest.param(lambda lines: [b""], ["line doesn't parse"], id="the empty line of a damaged batch"),
        pytest.param(lambda lines: [lines[1][:150] + lines[2][150:]], ["wrong record"], id="one line made of two"),
        pytest.param(altered(b'"offset": 2', b'"offset": 4'), ["wrong record"], id="at another record's offset"),
        pytest.param(altered(b'"offset": 2', b'"offset": 3'), ["wrong record"], id="at no record's offset"),
        pytest.param(altered(b'"key": null', b'"key": "a"'), ["wrong record"], id="another key"),
        pytest.param(altered(b'"timestamp": 1', b'"timestamp": 2'), ["wrong record"], id="another timestamp"),
        pytest.param(altered(b'"partition": 0', b'"partition": 1'), ["foreign record"], id="of another partition"),
        pytest.param(lambda lines: [lines[2], lines[1]], ["offsets go back"], id="two in the wrong order"),
        pytest.param(lambda lines: [lines[1], lines[1]], ["offsets go back"], id="one twice"),
    ],
)
def test_a_wrong_line(world: World, change: Callable[[list[bytes]], list[bytes]], found: list[str]) -> None:
    world.read(*change(world.lines))
    assert world.found() == found


def test_another_record_than_the_one_whose_file_it_is(world: World) -> None:
    world.checker.line(world.sight(), world.lines[3], expected=4)
    assert world.found() == ["wrong record"]


def test_a_value_that_nobody_sent(world: World) -> None:
    stamp = Stamp(TOPIC, 0, 0, 77, 1, Fate.PLAIN)
    world.checker.value(world.sight(), 154, stamp.value(50, random.Random(1)))
    assert world.found() == ["wrong record"]


def test_a_value_seen_before_it_was_acknowledged_is_judged_when_it_is(world: World) -> None:
    stamp = world.part.stamp(Fate.PLAIN)
    sight = world.read(line(stamp, 99, stamp.value(50, random.Random(1)), None))
    assert world.found() == []
    world.part.ack(stamp.sequence, 20, True)
    world.checker.prove_late()
    assert world.found() == ["wrong record"]
    assert sight.offsets == [99]


def test_records_of_two_topics_in_one_file(world: World) -> None:
    old = world.lines
    world.generation(10)
    world.read(old[0], world.lines[1], any_generation=True)
    assert world.found() == ["mixed topics"]


def test_a_record_of_a_topic_that_was_deleted_long_before(world: World) -> None:
    old = world.lines
    world.generation(10)
    world.read(old[0])
    assert world.found() == ["record of an older topic"]


def test_an_aborted_record_where_only_committed_ones_are_shown(world: World) -> None:
    aborted = world.send(world.part, Fate.ABORT)
    world.read(aborted)
    assert world.found() == []
    world.read(aborted, committed=True)
    assert world.found() == ["aborted record"]


def test_a_record_that_is_left_out(world: World) -> None:
    sight = world.read(*world.lines[:4], *world.lines[5:])
    world.checker.gapless(sight)
    assert world.found() == ["records left out"]


def test_records_missing_at_either_end(world: World) -> None:
    sight = world.read(*world.lines[2:-2])
    world.checker.gapless(sight)
    assert world.found() == []
    world.checker.complete(sight, None, None)
    (found,) = world.findings.details
    assert (found["missing"], found["first"], found["last"]) == (4, [0, 2, 16, 18], 18)


def test_what_retention_took_need_not_be_there(world: World) -> None:
    world.log_start = 4
    world.checker.complete(world.read(*world.lines[2:]), None, None)
    assert world.found() == []


def test_what_was_written_a_moment_ago_need_not_be_there(world: World) -> None:
    world.part.acked_at[9] = time.time()
    world.checker.complete(world.read(*world.lines[:-1]), None, None)
    assert world.found() == []


def test_what_is_not_committed_need_not_be_there(world: World) -> None:
    world.send(world.part, Fate.COMMIT)
    world.checker.complete(world.read(*world.lines, committed=True), None, None)
    assert world.found() == []
    world.part.committed(10, 11)
    world.part.stable_at[10] -= LONG_AGO
    world.checker.complete(world.read(*world.lines, committed=True), None, None)
    assert world.found() == ["records left out"]


def test_of_a_compacted_topic_the_last_record_of_a_key_has_to_be_there(world: World) -> None:
    part = world.generation(0, is_compacted=True)
    lines = [world.send(part, key=key) for key in (1, 2, 1, 3)]
    world.checker.complete(world.read(*lines[1:]), None, None)
    assert world.found() == []
    world.checker.complete(world.read(*lines[:1], *lines[2:]), None, None)
    assert world.found() == ["records left out"]


def test_of_a_topic_that_was_deleted_meanwhile_nothing_has_to_be_there(world: World) -> None:
    sight = world.read(*world.lines[:2])
    generation = world.journal.generation(TOPIC, 0)
    assert generation is not None
    generation.deleted_at = time.time()
    world.checker.complete(sight, None, None)
    assert world.found() == []


def test_no_byte_of_a_value_can_be_another_unnoticed() -> None:
    value = Stamp(TOPIC, 0, 0, 3, 1, Fate.PLAIN).value(20, random.Random(1))
    for position in range(len(value)):
        with pytest.raises(NotOurs):
            Stamp.parse(value[:position] + bytes([value[position] ^ 1]) + value[position + 1 :])
