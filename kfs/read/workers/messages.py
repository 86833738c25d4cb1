"""The messages between a parent and its workers, except :class:`~kfs.read.workers.portion.Portion`.

They are named tuples because each worker creates these classes at its start, and dataclasses take longer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kfs.read.workers.job import Job
from kfs.read.workers.kept_log import Logged


class Begin(NamedTuple):
    """The tasks that follow belong to this job; ``ready_bytes`` limits the bytes that are ready and not taken yet.

    Log messages from ``level`` on are wanted. ``processes`` workers do this job. Regions of shared memory in
    ``returned`` are free again. With :attr:`has_output` a descriptor comes along, and the results of a task are written
    there at its :class:`Turn`.
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
    """A group of tasks, to be done after those given before."""

    tasks: list[Any]


class Turn(NamedTuple):
    """The results of the first group of tasks that hasn't ended can be written now."""


class PortionTaken(NamedTuple):
    """A portion with a weight of ``weight`` bytes was taken, and the ``returned`` regions are free again."""

    weight: int
    returned: tuple[int, ...]


class End(NamedTuple):
    """The last message on a group of tasks, with the log messages since the last portion."""

    logged: Logged = ()


class Failed(NamedTuple):
    """The last message on a group of tasks, one of which raised an error."""

    error: Exception
    logged: Logged = ()


class Rest(NamedTuple):
    """There is nothing to do for now: close what is open.

    The ``returned`` regions are free again, and the one in ``lent`` may still be in use. The worker must drop all other
    lent regions; they belong to the parent alone now.
    """

    returned: tuple[int, ...]
    lent: int | None
