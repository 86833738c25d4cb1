"""What the parts of open log directories know of the whole."""

from __future__ import annotations

from typing import Protocol

from kfs.log.data_dir import DataDir
from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel


class Opened(Protocol):
    """Log directories that are open, until they are closed."""

    @property
    def isolation(self) -> IsolationLevel:
        """What a reader sees, unless a read says otherwise."""
        ...

    @property
    def on_damage(self) -> DamagePolicy:
        """What becomes of a read that comes to damage, unless it says otherwise."""
        ...

    @property
    def source(self) -> DataDir:
        """The log directories; raise ValueError if they were closed."""
        ...

    def check_open(self) -> None:
        """Raise ValueError if they were closed."""
        ...
