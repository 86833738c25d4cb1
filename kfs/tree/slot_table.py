"""What is kept of segments, by slot, for as long as the segment is in use: a mount outlives most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from kfs.log.segment import Segment

Value = TypeVar("Value")


class SlotTable(Generic[Value]):
    """A table by slot of the segment, or of what is shown of it; what is no longer in use is in it no longer.

    A log has its segments until they are gone; then only those who read them have them.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Segment], Value]] = {}

    def get(self, slot: int) -> Value | None:
        """Return what was kept; None if there is nothing, or the segment is gone."""
        entry = self._entries.get(slot)
        return None if entry is None else entry[1]

    def segment(self, slot: int) -> Segment | None:
        """Return the segment of a slot, None if it is no longer in use, or nothing was kept."""
        entry = self._entries.get(slot)
        return None if entry is None else entry[0]()

    def put(self, slot: int, segment: Segment, value: Value) -> Value:
        """Keep a value, which must not have the segment; return the one that is kept, if another was faster."""
        entries = self._entries

        def forget(_gone: ref[Segment]) -> None:
            entries.pop(slot, None)

        return entries.setdefault(slot, (ref(segment, forget), value))[1]

    def forget(self, slot: int) -> None:
        """Drop what is kept of a slot."""
        self._entries.pop(slot, None)

    def __len__(self) -> int:
        return len(self._entries)
