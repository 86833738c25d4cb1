"""What a benchmark finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """The best of what one contender did with one log, or the median where there are ``rounds``, in seconds.

    ``amount`` are records, or bytes in the groups ``raw`` and ``memory``. ``cpu_seconds`` are those of all processes
    that took part; of a mount, its daemon's.
    """

    group: str
    log: str
    contender: str
    amount: int
    seconds: float
    cpu_seconds: float
    rounds: tuple[float, ...] = ()
