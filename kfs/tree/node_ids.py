"""Node ids: opaque 63-bit numbers, computed for records, counted for the few nodes that are not of a record.

A record's id is ``view (4 bits) | segment slot (28) | offset relative to the segment's base (31)``: Kafka bounds
the last by int32, and a slot is one incarnation of a segment and never reused. So there is no
table that grows with the log.
"""

from __future__ import annotations

from enum import IntEnum
from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import ref

from kfs.errors import NotFound
from kfs.log.storage import SLOT_BITS

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.tree.partition_view import PartitionView

ROOT_ID: Final = 1
_RELATIVE_BITS: Final = 31
_VIEW_SHIFT: Final = SLOT_BITS + _RELATIVE_BITS
_SLOT_MASK: Final = (1 << SLOT_BITS) - 1
_RELATIVE_MASK: Final = (1 << _RELATIVE_BITS) - 1


class View(IntEnum):
    """What of a record, or of a segment, a node shows."""

    PATH = 0  # not of a record: a directory, a file about a partition; the rest of the id is a serial number
    RECORD = 1
    VALUE = 2
    KEY = 3
    SEGMENT = 4
    TIME_LINK = 5
    AT_LINK = 6


class NodeIds:
    """Issues ids and finds what they name."""

    def __init__(self) -> None:
        self._by_path: dict[str, int] = {"": ROOT_ID}
        self._paths: dict[int, str] = {ROOT_ID: ""}
        self._slots: dict[int, tuple[ref[Segment], PartitionView]] = {}
        self._second_slots: dict[tuple[int, str], int] = {}
        self._issuing = Lock()

    def of_path(self, path: str) -> int:
        """Return the id of the node at ``path`` (no leading slash), the same at every call."""
        node_id = self._by_path.get(path)
        if node_id is None:
            with self._issuing:
                node_id = self._by_path.get(path, len(self._by_path) + ROOT_ID)
                self._paths[node_id] = path
                self._by_path[path] = node_id
        return node_id

    def first_of(self, view: View, segment: Segment, partition: PartitionView) -> int:
        """Return the id that ``view`` has of the segment's base offset; add the relative offset for others."""
        slot = segment.slot
        _, first_shown_in = self._slots.setdefault(slot, (ref(segment), partition))
        if first_shown_in is not partition:
            slot = self._second_slot(segment, partition)
        return view << _VIEW_SHIFT | slot << _RELATIVE_BITS

    def _second_slot(self, segment: Segment, partition: PartitionView) -> int:
        """A segment that two views share, above and below the log start offset, has a slot for each."""
        key = (segment.slot, partition.path)
        with self._issuing:
            if key not in self._second_slots:
                self._second_slots[key] = segment.storage.new_slot()
            slot = self._second_slots[key]
        self._slots[slot] = ref(segment), partition
        return slot

    def path_of(self, node_id: int) -> str | None:
        """Return the path of an id that :meth:`of_path` issued; None for the id of a record or segment.

        Raises:
            NotFound: the id was never issued.
        """
        if node_id >> _VIEW_SHIFT:
            return None
        if node_id not in self._paths:
            raise NotFound(f"no node {node_id}")
        return self._paths[node_id]

    def record_of(self, node_id: int) -> tuple[View, PartitionView, Segment, int]:
        """Return the view, partition, segment and offset that an id names.

        Raises:
            NotFound: the segment's incarnation is gone, or the id was never issued.
        """
        slot = node_id >> _RELATIVE_BITS & _SLOT_MASK
        reference, partition = self._slots.get(slot, (None, None))
        segment = reference() if reference is not None else None
        if segment is None or partition is None or segment.is_stale:
            self._slots.pop(slot, None)
            raise NotFound(f"no node {node_id}: its segment is gone")
        return View(node_id >> _VIEW_SHIFT), partition, segment, segment.base_offset + (node_id & _RELATIVE_MASK)
