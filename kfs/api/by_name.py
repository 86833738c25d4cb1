"""What brokers keep in topics of their own, by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from kfs.api.opened import Opened
from kfs.internal.state_problems import StateProblems
from kfs.log.problem import Problem


class NamedState(Protocol):
    """What the records of such a topic add up to."""

    def names(self) -> Sequence[str]:
        """Return what there is, sorted."""
        ...

    def state_problems(self) -> StateProblems:
        """Return what is wrong with the logs of the topic."""
        ...


Entry = TypeVar("Entry")
State = TypeVar("State", bound=NamedState)


class ByName(Mapping[str, Entry], Generic[Entry, State]):
    """A mapping of names to what is known of each, as it is whenever one is asked for."""

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
        """What is wrong with the logs that they are kept in, or isn't here of them, and records that can't be read."""
        return self._state.state_problems().as_problems()
