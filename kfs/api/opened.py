"""The interface of open log directories that their topics, logs and states use."""

from __future__ import annotations

from typing import Protocol

from kfs.log.data_dir import DataDir
from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel


class Opened(Protocol):
    """Log directories that stay open until they are closed."""

    @property
    def isolation(self) -> IsolationLevel:
        """The default isolation level of reads."""
        ...

    @property
    def on_damage(self) -> DamagePolicy:
        """The default damage policy of reads."""
        ...

    @property
    def source(self) -> DataDir:
        """The log directories. Raises ValueError if they are closed."""
        ...

    def check_open(self) -> None:
        """Raise ValueError if they are closed."""
        ...
