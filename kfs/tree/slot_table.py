"""Tables of values for segments, by slot, kept while the segment is in use: a mount outlives most segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from kfs.log.segment import Segment

Value = TypeVar("Value")


class SlotTable(Generic[Value]):
    """A table by slot of a segment, or of its visible content; drops the values of segments no longer in use.

    A log keeps its segments until they are deleted; after that only their readers do.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Segment], Value]] = {}

    def get(self, slot: int) -> Value | None:
        """Return the value of a slot; None if there is none, or the segment is gone."""
        entry = self._entries.get(slot)
        return None if entry is None else entry[1]

    def segment(self, slot: int) -> Segment | None:
        """Return the segment of a slot, None if it is no longer in use, or nothing was put for it."""
        entry = self._entries.get(slot)
        return None if entry is None else entry[0]()

    def put(self, slot: int, segment: Segment, value: Value) -> Value:
        """Keep a value, which must not refer to the segment; return the one kept, if another thread was faster."""
        entries = self._entries

        def forget(_gone: ref[Segment]) -> None:
            entries.pop(slot, None)

        return entries.setdefault(slot, (ref(segment, forget), value))[1]

    def forget(self, slot: int) -> None:
        """Drop the value of a slot."""
        self._entries.pop(slot, None)

    def __len__(self) -> int:
        return len(self._entries)
