"""Coverage of a coordinator's topic: which partitions are here, and which ones would hold an entry that isn't found.

A coordinator keeps a group, a transactional id or a share partition in the partition that its hash selects
(``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor``,
``ShareCoordinatorService.partitionFor``). That depends on the number of partitions, which is in the cluster metadata.
Without the metadata, the entries narrow that number down: if a key with hash h is in partition p, the number divides h
- p.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd, isqrt
from typing import Final

from kfs.format.java_text import java_hash

#: ``offsets.topic.num.partitions``, ``transaction.state.log.num.partitions``,
#: ``share.coordinator.state.topic.num.partitions``: if exactly this many are here, they are assumed to be all.
DEFAULT_COUNT: Final = 50
#: The maximum number of numbers or ranges to list in a message.
_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class Coverage:
    """The partitions of a topic that are ``here``, sorted, and how many there are in total.

    ``counts`` are the possible partition counts, in order. If it is empty, any sufficiently large count is possible.
    ``is_from_metadata`` says that the count is from the cluster metadata.
    """

    topic: str
    here: tuple[int, ...]
    counts: tuple[int, ...]
    is_from_metadata: bool = False

    @property
    def count(self) -> int | None:
        """The number of partitions, or None if it is unknown."""
        return self.counts[0] if len(self.counts) == 1 else None

    @property
    def least(self) -> int:
        """The minimum number of partitions."""
        return self.counts[0] if self.counts else self.here[-1] + 1 if self.here else 0

    @property
    def lacks_some(self) -> bool:
        """Whether some partitions are known to be missing."""
        return len(self.here) < self.least

    @property
    def is_complete(self) -> bool:
        """Whether all partitions are known to be here; also true if nothing is known of the topic."""
        return self.count == len(self.here) or not self.least

    def partitions_of(self, key: str) -> tuple[int, ...]:
        """Return the partitions that may hold a key, only one if the count is known; none if nothing is known."""
        return tuple(sorted({java_hash(key) % count for count in self.counts}))

    def likely_partition(self, key: str) -> int:
        """Return the partition that holds a key if the partition count is the known minimum."""
        return java_hash(key) % max(self.least, 1)

    def why_not_found(self, key: str) -> str | None:
        """Return why an entry that isn't found may exist elsewhere, or None if it would have been found."""
        partitions = self.partitions_of(key)
        if not self.least:
            return f"no partition of {self.topic} is here"
        if not partitions:
            return f"it is unknown which partition of {self.topic} would hold it: {self.sentence()}"
        missing = [partition for partition in partitions if partition not in self.here]
        if not missing:
            return None
        where = " or ".join(f"{self.topic}-{partition}" for partition in missing[:_MOST_NAMED])
        more = f" or one of {len(missing) - _MOST_NAMED} others" if len(missing) > _MOST_NAMED else ""
        return f"it would be in {where}{more}, which {'is' if len(missing) == 1 else 'are'} not here"

    def sentence(self) -> str | None:
        """Return a sentence about the missing partitions; None if there are none, or nothing is known of the topic."""
        if self.is_complete:
            return None
        missing = _gaps(self.here, self.least)
        not_here = f"; not here: {_ranges(missing)}" if missing else ""
        if self.count is not None:
            how = "by the cluster's metadata" if self.is_from_metadata else "by what is in them"
            return f"{len(self.here)} of the {self.count} partitions of {self.topic} are here, {how}{not_here}"
        if 1 < len(self.counts) <= _MOST_NAMED:
            possible = f"{' or '.join(map(str, self.counts))}, by what is in them"
        else:
            possible = f"at least {self.least}"
        own = _ranges(_runs(self.here))
        return f"it is unknown how many partitions {self.topic} has ({possible}); here: {own}{not_here}"


def coverage_of(
    topic: str, keys_by_partition: Iterable[tuple[int, Iterable[str]]], count_in_metadata: int | None
) -> Coverage:
    """Return the coverage of a topic, from the keys in each of its partitions and the count in the cluster metadata.

    A count in the metadata that is below the number of partitions here is older than the topic, and is ignored.
    """
    keys = dict(keys_by_partition)
    here = tuple(sorted(keys))
    least = here[-1] + 1 if here else 0
    if count_in_metadata is not None and count_in_metadata >= least:
        return Coverage(topic, here, (count_in_metadata,), is_from_metadata=True)
    divisor = 0
    for partition, key in ((partition, key) for partition, found in keys.items() for key in found):
        divisor = gcd(divisor, java_hash(key) - partition)
        if 0 < divisor < 2 * least:  # no smaller divisor is possible
            break
    counts = tuple(each for each in _divisors(divisor) if each >= least)
    if len(here) == least == DEFAULT_COUNT and (not counts or counts[0] == DEFAULT_COUNT):
        counts = (DEFAULT_COUNT,)
    return Coverage(topic, here, counts)


def _divisors(number: int) -> list[int]:
    """Return the divisors of a number, in order; none for 0, which every number divides."""
    if not number:
        return []
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return low + [number // each for each in reversed(low) if each * each != number]


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted numbers as ranges (start inclusive, end exclusive)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs


def _gaps(numbers: Sequence[int], end: int) -> list[tuple[int, int]]:
    """Return the ranges below ``end`` that aren't in sorted numbers."""
    gaps = []
    start = 0
    for first, stop in [*_runs(numbers), (end, end)]:
        if start < first:
            gaps.append((start, first))
        start = stop
    return gaps


def _ranges(runs: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if stop == first + 1 else f"{first} to {stop - 1}" for first, stop in runs[:_MOST_NAMED]]
    return ", ".join(shown) + (" ..." if len(runs) > _MOST_NAMED else "")
