"""What the producers know: which records there are, since when, and which of them nothing may have taken away."""

from __future__ import annotations

import random
import threading
import time
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from tests.soak.values import Fate, Stamp, key_bytes

#: Seconds after which a mount has to show what was written, and no longer what was deleted. SEMANTICS.md promises
#: "within a second"; the rest is for a machine that has other things to do.
FRESHNESS: Final = 4.0
_UNKNOWN: Final = -1


@dataclass(slots=True)
class Part:
    """The records of one partition of one generation of a topic; all arrays are indexed by sequence."""

    topic: str
    partition: int
    generation: int
    is_compacted: bool
    offsets: array[int] = field(default_factory=lambda: array("q"))
    acked_at: array[float] = field(default_factory=lambda: array("d"))
    #: From when on a read_committed reader gets it; infinite where never.
    stable_at: array[float] = field(default_factory=lambda: array("d"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("h"))
    tombstones: bytearray = field(default_factory=bytearray)
    #: The last sequence that was sent for each key.
    last_of_key: dict[int, int] = field(default_factory=dict)
    acked: int = 0
    #: The log start offset, as far as it is known, and since when it has been that.
    log_start: int = 0
    moved_at: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.topic}-{self.partition}"

    def stamp(self, fate: Fate, key: int = -1, tombstone: bool = False) -> Stamp:
        """Return the stamp of the next record; it counts as sent from now on."""
        sequence, timestamp = len(self.offsets), int(time.time() * 1000)
        self.timestamps.append(timestamp)
        self.keys.append(key)
        self.tombstones.append(tombstone)
        self.acked_at.append(float("inf"))
        self.stable_at.append(float("inf"))
        if key >= 0:
            self.last_of_key[key] = sequence
        self.offsets.append(_UNKNOWN)
        return Stamp(self.topic, self.partition, self.generation, sequence, timestamp, fate)

    def ack(self, sequence: int, offset: int, is_stable: bool) -> None:
        """Note that the broker has the record; records are acknowledged in the order in which they are sent."""
        if sequence != self.acked:
            raise RuntimeError(f"{self.name}: acknowledged {sequence} before {self.acked}")
        self.offsets[sequence] = offset
        self.acked_at[sequence] = time.time()
        if is_stable:
            self.stable_at[sequence] = time.time()
        self.acked += 1

    def starts_at(self, log_start: int) -> None:
        """Note what the broker says the log start offset is."""
        if log_start != self.log_start:
            self.log_start, self.moved_at = log_start, time.time()

    def committed(self, first: int, last: int) -> None:
        """Note that the transaction with these sequences, ``last`` not included, is committed."""
        for sequence in range(first, last):
            self.stable_at[sequence] = time.time()

    def sequence_at(self, offset: int) -> int | None:
        """Return the sequence of the record at an offset, None if there is none that is acknowledged."""
        at = bisect_left(self.offsets, offset, 0, self.acked)
        return at if at < self.acked and self.offsets[at] == offset else None

    def key_at(self, sequence: int) -> bytes | None:
        """Return the key of a record."""
        return key_bytes(self.topic, self.partition, self.generation, self.keys[sequence])

    def lasting(self, since: float, log_start: int, committed: bool, low: int = 0) -> list[int]:
        """Return the sequences of the records that were there from ``since`` (a time) until now, in order.

        ``log_start`` is the log start offset that the broker says now, ``low`` the first offset that matters, and
        ``committed`` whether aborted records don't count.
        """
        first = bisect_left(self.offsets, max(log_start, low), 0, self.acked)
        since_when = self.stable_at if committed else self.acked_at
        return [
            sequence
            for sequence in range(first, self.acked)
            if since_when[sequence] < since and not (self.is_compacted and self._may_be_cleaned(sequence))
        ]

    def _may_be_cleaned(self, sequence: int) -> bool:
        """Whether the cleaner may have removed it: a tombstone, or no longer the last record with its key."""
        return bool(self.tombstones[sequence]) or self.last_of_key[self.keys[sequence]] != sequence


@dataclass(slots=True)
class Generation:
    """One of the topics that have the same name one after another."""

    topic: str
    number: int
    created_at: float
    #: When the broker was asked to delete it.
    deleted_at: float = float("inf")
    parts: list[Part] = field(default_factory=list)
    is_compacted: bool = False

    def add_partitions(self, count: int) -> list[Part]:
        """Add ``count`` partitions."""
        first = len(self.parts)
        added = [Part(self.topic, number, self.number, self.is_compacted) for number in range(first, first + count)]
        self.parts += added
        return added

    def was_there(self, since: float, until: float) -> bool:
        """Whether there was a moment in that time at which it may have been seen."""
        return self.created_at <= until and self.deleted_at >= since


class Journal:
    """All topics of a run, deleted ones included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generations: dict[str, list[Generation]] = {}

    def create(self, topic: str, partitions: int, is_compacted: bool = False) -> Generation:
        """Begin a new generation of a topic."""
        with self._lock:
            known = self._generations.setdefault(topic, [])
            made = Generation(topic, len(known), time.time(), is_compacted=is_compacted)
            made.add_partitions(partitions)
            known.append(made)
            return made

    def generation(self, topic: str, number: int) -> Generation | None:
        """Return a generation; None if there never was one."""
        known = self._generations.get(topic, [])
        return known[number] if 0 <= number < len(known) else None

    def part(self, topic: str, generation: int, partition: int) -> Part | None:
        """Return a partition of a generation; None if there never was one."""
        found = self.generation(topic, generation)
        return found.parts[partition] if found and 0 <= partition < len(found.parts) else None

    def alive(self, topic: str, since: float, until: float) -> Generation | None:
        """Return the generation that was there for the whole of that time."""
        for each in reversed(self._generations.get(topic, [])):
            if each.created_at < since and each.deleted_at > until:
                return each
        return None

    def pick(self, rng: random.Random, topics: tuple[str, ...] = ()) -> Part:
        """Return a partition with records of a topic that isn't being deleted; topics are equally likely."""
        while True:
            with self._lock:
                newest = {topic: known[-1] for topic, known in self._generations.items()}
            chosen = [
                parts
                for topic, each in newest.items()
                if each.deleted_at == float("inf") and (not topics or topic in topics)
                if (parts := [part for part in each.parts if part.acked])
            ]
            if chosen:
                return rng.choice(rng.choice(chosen))
            time.sleep(0.05)

    def parts(self) -> list[Part]:
        """Return all partitions of topics that nobody has asked to delete."""
        with self._lock:
            newest = [known[-1] for known in self._generations.values()]
        return [part for each in newest if each.deleted_at == float("inf") for part in each.parts]
