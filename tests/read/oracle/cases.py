"""Cases by number: the same seed, kind and number make the same case on any machine."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Final
from unittest import mock

from kfs.log import segment
from kfs.log.window import FIRST_READ
from tests.read.oracle.copies import OfOneHistory
from tests.read.oracle.histories import OfSeveralHistories
from tests.read.oracle.kind import Kind, Size, temporary_directory
from tests.read.oracle.one_log import Intact, Lost, OutOfPlace
from tests.read.oracle.transactions import Isolation
from tests.thoroughness import IS_LONG

KINDS: Final[dict[str, Kind[Any, Any]]] = {
    "intact": Intact(),
    "out-of-place": OutOfPlace(),
    "lost": Lost(),
    "isolation": Isolation(),
    "copies": OfOneHistory(),
    "histories": OfSeveralHistories(),
}
#: The seed of the cases that are judged every day.
_EVERY_DAY: Final = 1
#: Cases of one log.
PER_LOG: Final = 8


class Cases:
    """The cases of a kind and a seed, written below a directory; without one, wherever there is room for a moment."""

    def __init__(self, kind: str, seed: int, directory: Path | None = None) -> None:
        self.name = kind
        self.kind = KINDS[kind]
        self.seed = seed
        self._directory = directory
        self._log = lru_cache(maxsize=1)(self._draw_log)

    def _random(self, what: str, number: int) -> Random:
        return Random(f"{self.seed} {self.name} {what} {number}")

    def _draw_log(self, number: int) -> Any:
        random = self._random("log", number)
        with temporary_directory(self._directory) as directory:
            return self.kind.draw_log(random, Size.draw(random, number * PER_LOG), directory)

    def draw(self, number: int) -> Any:
        """Return the case of a number."""
        random = self._random("case", number)
        return self.kind.draw(random, Size.draw(random, number), self._log(number // PER_LOG))

    def judge(self, number: int) -> Counter[str]:
        """Draw, write and judge a case; return what it was.

        Raises:
            AssertionError: something is wrong; notes say what the case is, and how to have it again.
            Exception: whatever goes wrong in a view, with the same notes.
        """
        case = self.draw(number)
        with temporary_directory(self._directory) as directory:
            roots = self.kind.write(case, directory)
            # The segments are small: in half of the cases they are read as large ones are, by their indexes.
            scanned_bytes = FIRST_READ if number % 2 else 0
            try:
                with mock.patch.object(segment, "_SCANNED_BYTES", scanned_bytes):
                    self.kind.judge(case, roots, self._random("views", number))
            except Exception as error:
                error.add_note("\n".join(self.kind.describe(case)))
                error.add_note(f"again: python -m tests.read.oracle --seed {self.seed} --case {self.name}/{number}")
                raise
        return Counter(f"{self.name}: {trait}" for trait in self.kind.traits(case))

    def keep(self, number: int, directory: Path) -> list[Path]:
        """Write a case into an empty directory; return its log directories."""
        return self.kind.write(self.draw(number), directory)


def try_cases(kind: str, count: int) -> Counter[str]:
    """Judge cases of a kind; return what they were.

    Every day they are the same, so that a change is judged by what it changes; in the long matrix no run before had
    them.
    """
    cases = Cases(kind, SystemRandom().getrandbits(32) if IS_LONG else _EVERY_DAY)
    return sum((cases.judge(number) for number in range(count)), Counter())
