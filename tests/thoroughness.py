"""How much a test does that could go on forever: less of it every day than in the long matrix."""

from __future__ import annotations

import os
from typing import Final

#: Set by ``tests/run.sh --long``.
IS_LONG: Final = os.environ.get("KFS_LONG_MATRIX") == "1"


def examples(every_day: int, in_the_long_matrix: int) -> int:
    """Return how many examples of something expensive are drawn; they are others in each run."""
    return in_the_long_matrix if IS_LONG else every_day
