"""Cases of every kind on several processors."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.read.oracle.cases import PER_LOG, Cases

#: The kind of each log in turn: what costs most is tried least often.
_TURNS: Final = (
    *("intact", "out-of-place", "lost", "isolation") * 3,
    *("intact", "out-of-place", "copies", "histories"),
)


def kind_of(log: int) -> str:
    """Return the kind of the cases of a log."""
    return _TURNS[log % len(_TURNS)]


@dataclass(frozen=True, slots=True)
class OraclePlan:
    """See :class:`tests.watch.Plan`, whose cases are all those of a log here.

    ``directory`` is where it is written what failed; below ``scratch`` are the cases, some of which stay there where a
    process is ended. It ends with the first failures.
    """

    seed: int
    cases: int
    jobs: int
    directory: Path
    scratch: Path
    most_failures: int = 5

    @classmethod
    def of(cls, seed: int, cases: int, jobs: int, directory: Path, scratch: Path) -> OraclePlan:
        """Return the plan for about so many cases."""
        return cls(seed, -(-cases // PER_LOG), jobs, directory, scratch)

    def trial(self) -> OracleTrial:
        return OracleTrial(self.seed, self.scratch)

    def keep(self, number: int, reason: str) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        first = number * PER_LOG
        path = self.directory / f"{self.seed}-{kind_of(number)}-{first}.txt"
        path.write_text(f"cases {kind_of(number)}/{first} to {first + PER_LOG - 1} of seed {self.seed}\n{reason}")
        return path


class OracleTrial:
    """See :class:`tests.watch.Trial`."""

    def __init__(self, seed: int, scratch: Path) -> None:
        self.seen: Counter[str] = Counter()
        self._seed = seed
        self._scratch = scratch
        logging.getLogger("kfs").setLevel(logging.CRITICAL + 1)  # in a process of its own

    def failure(self, number: int) -> str | None:
        cases = Cases(kind_of(number), self._seed, self._scratch)
        reasons = []
        for case in range(number * PER_LOG, (number + 1) * PER_LOG):
            try:
                self.seen.update(cases.judge(case))
            except Exception:
                reasons.append(traceback.format_exc())
        return "\n".join(reasons) or None
