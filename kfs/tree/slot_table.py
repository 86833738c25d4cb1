"""Tables of values for segments, by slot, kept while the segment is in use: a mount outlives most segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from kfs.log.segment import Segment

Value = TypeVar("Value")


class _Entry(ref["Segment"], Generic[Value]):
    """A reference to the segment of an entry, with its slot and its value."""

    __slots__ = ("slot", "value")

    slot: int
    value: Value


class SlotTable(Generic[Value]):
    """A table by slot of a segment, or of its visible content; drops the values of segments no longer in use.

    A log keeps its segments until they are deleted, or it lets go of them; after that only their readers do.
    """

    __slots__ = ("_entries", "_forget")

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[Value]] = {}
        #: Called with the entry of a segment that is gone; made once, with the first entry.
        self._forget: Callable[[ref[Segment]], None] | None = None

    def get(self, slot: int) -> Value | None:
        """Return the value of a slot; None if there is none, or the segment is gone."""
        entry = self._entries.get(slot)
        return None if entry is None else entry.value

    def segment(self, slot: int) -> Segment | None:
        """Return the segment of a slot, None if it is no longer in use, or nothing was put for it."""
        entry = self._entries.get(slot)
        return None if entry is None else entry()

    def put(self, slot: int, segment: Segment, value: Value) -> Value:
        """Keep a value, which must not refer to the segment; return the one kept, if another thread was faster."""
        if self._forget is None:
            self._forget = self._gone
        made: _Entry[Value] = _Entry(segment, self._forget)
        made.slot, made.value = slot, value
        return self._entries.setdefault(slot, made).value

    def _gone(self, entry: ref[Segment]) -> None:
        assert isinstance(entry, _Entry)
        if self._entries.get(entry.slot) is entry:
            self._entries.pop(entry.slot, None)

    def forget(self, slot: int) -> None:
        """Drop the value of a slot."""
        self._entries.pop(slot, None)

    def __len__(self) -> int:
        return len(self._entries)
