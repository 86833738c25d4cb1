"""Mappings by name for the state that brokers keep in internal topics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from kfs.api.opened import Opened
from kfs.internal.state_problems import StateProblems
from kfs.log.problem import Problem


class NamedState(Protocol):
    """The state that results from the records of an internal topic."""

    def names(self) -> Sequence[str]:
        """Return all names, sorted."""
        ...

    def state_problems(self) -> StateProblems:
        """Return the problems with the topic's logs."""
        ...


Entry = TypeVar("Entry")
State = TypeVar("State", bound=NamedState)


class ByName(Mapping[str, Entry], Generic[Entry, State]):
    """A mapping of names to entries; each access reads the current state."""

    def __init__(self, opened: Opened, state: State) -> None:
        self._opened = opened
        self._kept = state

    def __repr__(self) -> str:
        return f"<kfs.{type(self).__name__}: {len(self)}>"

    @property
    def _state(self) -> State:
        self._opened.check_open()
        return self._kept

    @abstractmethod
    def __getitem__(self, name: str) -> Entry: ...

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.names())

    def __len__(self) -> int:
        return len(self._state.names())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems with the logs of the internal topic: damage, missing partitions, unreadable records."""
        return self._state.state_problems().as_problems()
