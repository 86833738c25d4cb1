"""Which cases the fuzzer tries, and what is wrong with one."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.cases import CaseMaker
from tests.fuzz.compare import Comparison
from tests.fuzz.seeds import Seed


@dataclass(frozen=True, slots=True)
class FuzzPlan:
    """See :class:`tests.watch.Plan`; ``directory`` is where failing cases are written to."""

    seeds: Sequence[Seed]
    seed: int
    cases: int
    jobs: int
    directory: Path
    #: So many tell enough.
    most_failures: int = 50

    def trial(self) -> FuzzTrial:
        return FuzzTrial(CaseMaker(self.seeds, self.seed))

    def keep(self, number: int, reason: str) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{self.seed}-{number}.bin"
        path.write_bytes(CaseMaker(self.seeds, self.seed).case(number))
        path.with_suffix(".txt").write_text(reason)
        return path


class FuzzTrial:
    """See :class:`tests.watch.Trial`."""

    def __init__(self, maker: CaseMaker) -> None:
        self._maker = maker
        self._comparison = Comparison()
        self.seen: Counter[str] = self._comparison.seen

    def failure(self, number: int) -> str | None:
        return failure(self._comparison, self._maker.case(number))


def failure(implementations: Comparison, data: bytes) -> str | None:
    """Return what is wrong with a case, None where all is well."""
    try:
        implementations.check(data)
    except Exception:
        return traceback.format_exc()
    return None
