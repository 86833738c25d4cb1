"""What a parent and its workers say to each other, beside the :class:`~kfs.read.workers.portion.Portion`.

Named tuples: each worker makes these classes when it starts, and dataclasses take longer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kfs.read.workers.job import Job
from kfs.read.workers.kept_log import Logged


class Begin(NamedTuple):
    """The tasks that follow are of this job; ``ready_bytes`` are what may be ready and not taken yet.

    What is logged from ``level`` on is wanted. As many ``processes`` do the same. Regions of shared memory that were
    ``returned`` are free again. With :attr:`has_output` a descriptor comes along, and each task waits for its
    :class:`Turn` to be written there.
    """

    job: Job[Any, Any]
    ready_bytes: int
    level: int
    processes: int
    has_output: bool
    returned: tuple[int, ...] = ()


class Ready(NamedTuple):
    """The answer to :class:`Begin`."""


class Give(NamedTuple):
    """Tasks, to be done when those given before are done."""

    tasks: list[Any]


class Turn(NamedTuple):
    """What is made of the first tasks given together that haven't ended can be written."""


class PortionTaken(NamedTuple):
    """A portion was taken that counted as ``weight`` bytes, and these regions are free again."""

    weight: int
    returned: tuple[int, ...]


class End(NamedTuple):
    """The last message on tasks given together, with what was logged since the last portion."""

    logged: Logged = ()


class Failed(NamedTuple):
    """The last message on tasks given together, one of which raised something."""

    error: Exception
    logged: Logged = ()


class Rest(NamedTuple):
    """There is nothing to do for now: close what is open.

    Some regions are free again, and one may still be ``lent``; any others that were are the parent's alone.
    """

    returned: tuple[int, ...]
    lent: int | None
