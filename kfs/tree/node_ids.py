"""Node ids: opaque 63-bit numbers, computed for records, counted for the few other nodes.

An id stands for one content: a node keeps its id while its content stays, or grows at the end; a replacement gets
another id. A record's id is ``view (4 bits) | segment slot (28) | offset relative to the segment's base (31)``: Kafka
limits the last to int32, and a slot stands for one incarnation of a segment and is never reused. So there is no table
that grows with the log.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from weakref import ref

from kfs.errors import Stale
from kfs.log.storage import SLOT_BITS
from kfs.tree.slot_table import SlotTable

if TYPE_CHECKING:
    from kfs.log.segment import Segment

ROOT_ID: Final = 1
_RELATIVE_BITS: Final = 31
_VIEW_SHIFT: Final = SLOT_BITS + _RELATIVE_BITS
_SLOT_MASK: Final = (1 << SLOT_BITS) - 1
_RELATIVE_MASK: Final = (1 << _RELATIVE_BITS) - 1
#: Ids that a directory keeps for deleted names, in addition to one for each existing name.
_FEW_NAMES: Final = 64


class View(IntEnum):
    """Which part of a record or segment a node shows."""

    PATH = 0  # not a record: a directory, a file about a partition; the rest of the id is a serial number
    RECORD = 1
    VALUE = 2
    KEY = 3
    SEGMENT = 4
    TIME_LINK = 5
    AT_LINK = 6


class Incarnation(Protocol):
    """The present state of a path's target, to be compared with an earlier one."""

    @property
    def mark(self) -> Hashable:
        """The part of it to remember."""

    def continues(self, mark: Hashable) -> bool:
        """Return whether it is the one with this ``mark``, unchanged but perhaps longer at its end."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """A target that is another one as soon as its ``mark`` differs."""

    mark: Hashable

    def continues(self, mark: Hashable) -> bool:
        """See :class:`Incarnation`."""
        return mark == self.mark


@dataclass(frozen=True, slots=True)
class Parts:
    """A target made of parts from ``start`` on, each with its own slot; parts may be added at the end."""

    start: int
    slots: tuple[int, ...]

    @property
    def mark(self) -> Hashable:
        """See :class:`Incarnation`."""
        return self.start, self.slots

    def continues(self, mark: Hashable) -> bool:
        """See :class:`Incarnation`."""
        assert isinstance(mark, tuple)
        start, slots = mark
        return bool(start == self.start and slots and self.slots[: len(slots)] == slots)


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes that were generated at once."""

    content: bytes

    @property
    def mark(self) -> Hashable:
        """See :class:`Incarnation`."""
        return len(self.content), hash(self.content)

    def continues(self, mark: Hashable) -> bool:
        """See :class:`Incarnation`."""
        assert isinstance(mark, tuple)
        size, digest = mark
        return bool(size <= len(self.content) and hash(self.content[:size]) == digest)


#: A place in the tree is always the same, whatever it contains: a directory, a symlink (its text isn't cached).
PLACE: Final = Exactly(None)


class ShownPartition(Protocol):
    """A partition that is shown at a ``path`` of the tree."""

    path: str


class NodeIds:
    """Issues ids and finds their nodes."""

    def __init__(self) -> None:
        self._by_path: dict[str, tuple[int, Hashable]] = {"": (ROOT_ID, None)}
        self._paths: dict[int, str] = {ROOT_ID: ""}
        self._last = ROOT_ID
        #: The partition that shows a segment, kept no longer than the segment.
        self._slots: SlotTable[ref[ShownPartition]] = SlotTable()
        self._second_slots: SlotTable[dict[str, int]] = SlotTable()
        self._issuing = Lock()

    def of_path(self, path: str, found: Incarnation = PLACE) -> int:
        """Return the id of the target ``found`` at ``path`` (no leading slash): the same while the target is the same.

        Otherwise the previous target loses its id, which is not found any more.
        """
        known = self._by_path.get(path)
        mark = found.mark
        if known is not None and known[1] == mark:
            return known[0]
        with self._issuing:
            known = self._by_path.get(path)
            if known is not None and (known[1] is None or found.continues(known[1])):
                node_id = known[0]
            else:
                self._last = node_id = self._last + 1
                if known is not None:
                    del self._paths[known[0]]
            self._paths[node_id] = path
            self._by_path[path] = node_id, mark
        return node_id

    def forget(self, path: str) -> None:
        """Forget the target at ``path``: it is gone, and its id is not found any more."""
        with self._issuing:
            known = self._by_path.pop(path, None)
            if known is not None:
                self._paths.pop(known[0], None)

    def last_of(self, path: str) -> int:
        """Return the id of the last target at ``path``; if there was none yet, that of the first."""
        known = self._by_path.get(path)
        return self.of_path(path) if known is None else known[0]

    def first_of(self, view: View, segment: Segment, partition: ShownPartition, slot: int | None = None) -> int:
        """Return the id of a view of the segment's base offset; add the relative offset for other records.

        The visible part may change without the segment: then it gets another ``slot``.
        """
        slot = segment.slot if slot is None else slot
        first_shown_in = self._slots.get(slot) or self._slots.put(slot, segment, ref(partition))
        if first_shown_in() is not partition:
            slot = self._second_slot(slot, segment, partition)
        return view << _VIEW_SHIFT | slot << _RELATIVE_BITS

    def _second_slot(self, first: int, segment: Segment, partition: ShownPartition) -> int:
        """Return the slot for one of two views of a segment, above and below the log start offset."""
        with self._issuing:
            slots = self._second_slots.get(first)
            if slots is None:
                slots = self._second_slots.put(first, segment, {})
            slot = slots.get(partition.path)
            if slot is None:
                slot = slots[partition.path] = segment.storage.new_slot()
            shown_in = self._slots.get(slot)
            if shown_in is None or shown_in() is not partition:
                self._slots.forget(slot)
                self._slots.put(slot, segment, ref(partition))
        return slot

    def path_of(self, node_id: int) -> str | None:
        """Return the path of an id that :meth:`of_path` issued; None for the id of a record or segment.

        Raises:
            Stale: the path has another target now, or the id was never issued.
        """
        if node_id >> _VIEW_SHIFT:
            return None
        path = self._paths.get(node_id)
        if path is None:
            raise Stale(f"no node {node_id}")
        return path

    def record_of(self, node_id: int) -> tuple[View, ShownPartition, Segment, int]:
        """Return the view, partition, segment and offset of an id.

        Raises:
            Stale: the segment's incarnation is gone, or the id was never issued.
        """
        slot = node_id >> _RELATIVE_BITS & _SLOT_MASK
        segment, shown_in = self._slots.segment(slot), self._slots.get(slot)
        partition = None if shown_in is None else shown_in()
        if segment is None or partition is None or segment.is_stale:
            self._slots.forget(slot)
            raise Stale(f"no node {node_id}: its segment is gone")
        return View(node_id >> _VIEW_SHIFT), partition, segment, segment.base_offset + (node_id & _RELATIVE_MASK)


class NamesWithIds:
    """The names with ids in a directory at ``path``. Files come and go there; deleted ones lose their ids soon."""

    def __init__(self, ids: NodeIds, path: str) -> None:
        self._ids = ids
        self._path = path
        self._names: set[str] = set()
        self._most = _FEW_NAMES

    def note(self, name: str, there: Callable[[], Iterable[str]]) -> None:
        """Note that a name has an id; now and then, forget the ids of names that ``there`` doesn't return any more."""
        self._names.add(name)
        if len(self._names) >= self._most:
            gone = self._names.difference(there())
            for each in gone:
                self._ids.forget(f"{self._path}/{each}")
            self._names -= gone
            self._most = 2 * len(self._names) + _FEW_NAMES
