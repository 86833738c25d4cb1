"""Node ids: opaque 63-bit numbers, computed for records, counted for the few other nodes.

An id stands for one content: a node keeps its id while its content stays, or grows at the end; a replacement gets
another id. A record's id is ``view (4 bits) | segment slot (28) | offset relative to the segment's base (31)``: Kafka
limits the last to int32, and a slot stands for one incarnation of a segment and is never reused. So there is no table
that grows with the log.
"""

from __future__ import annotations

from array import array
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
_HASH_BITS: Final = 64
_HASH_MASK: Final = (1 << _HASH_BITS) - 1
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
    def mark(self) -> int:
        """See :class:`Incarnation`: the size and a hash, in one number as a mount may keep hundreds of thousands."""
        return len(self.content) << _HASH_BITS | hash(self.content) & _HASH_MASK

    def continues(self, mark: Hashable) -> bool:
        """See :class:`Incarnation`."""
        assert isinstance(mark, int)
        size, digest = mark >> _HASH_BITS, mark & _HASH_MASK
        return size <= len(self.content) and hash(self.content[:size]) & _HASH_MASK == digest


#: The generated files of a partition, whose content is remembered in its block.
_BLOCK_FILES: Final = (
    *("meta/log.json", "meta/segments.jsonl", "meta/leader-epochs.jsonl", "meta/producers.jsonl"),
    *("meta/aborted-transactions.jsonl", "meta/transactions.json", "meta/problems.jsonl"),
)
#: The names of a directory's places whose ids lie next to each other, in a block that the directory gets for them: that
#: takes a tenth of the memory. A mount may show hundreds of thousands of them.
_BLOCK_NAMES: Final = (
    *_BLOCK_FILES,
    *("offset", "segment", "first.json", "last.json", "meta"),
    *("value", "key", "time", "at", "raw"),
)
_BLOCK_PLACES: Final = {name: at for at, name in enumerate(_BLOCK_NAMES)}
#: Sizes that stand for a file of a block without content yet, and for one whose id in the block is no longer its own.
_NOTHING_YET: Final = 2**64 - 1
_REPLACED: Final = 2**64 - 2
#: A place in the tree is always the same, whatever it contains: a directory, a symlink (its text isn't cached).
PLACE: Final = Exactly(None)


class ShownPartition(Protocol):
    """A partition that is shown at a ``path`` of the tree.

    ``number`` is what :meth:`NodeIds.number_of` has returned for it.
    """

    path: str
    number: int

    def segment_with(self, slot: int) -> Segment | None:
        """Return the segment of its log that has a slot, None if the log has none."""
        ...


class NodeIds:
    """Issues ids and finds their nodes."""

    def __init__(self) -> None:
        #: The id of each place, and the id and the mark of anything else.
        self._by_path: dict[str, int | tuple[int, Hashable]] = {"": ROOT_ID}
        self._paths: dict[int, str] = {ROOT_ID: ""}
        #: The first id of the block of a directory, by the directory's path, and the other way round.
        self._blocks: dict[str, int] = {}
        self._directories: dict[int, str] = {}
        #: Size and hash of the content of each of the :data:`_BLOCK_FILES`, by the first id of their block.
        self._contents: dict[int, array[int]] = {}
        self._last = ROOT_ID
        #: The partition that shows a segment, kept no longer than the segment.
        self._slots: SlotTable[ref[ShownPartition]] = SlotTable()
        #: The same by number, for segments that their logs have let go: four bytes for each slot that has ids.
        self._owners = array("I")
        self._partitions: list[ref[ShownPartition]] = []
        self._second_slots: SlotTable[dict[str, int]] = SlotTable()
        self._issuing = Lock()

    def of_path(self, path: str, found: Incarnation = PLACE) -> int:
        """Return the id of the target ``found`` at ``path`` (no leading slash): the same while the target is the same.

        Otherwise the previous target loses its id, which is not found any more.
        """
        known = self._by_path.get(path)
        if known is None and (found is PLACE or isinstance(found, Content)):
            node_id = self._in_block(path, found)
            if node_id is not None:
                return node_id
        mark = found.mark
        if known is not None and _mark_of(known) == mark:
            return _id_of(known)
        with self._issuing:
            known = self._by_path.get(path)
            if known is not None and (_mark_of(known) is None or found.continues(_mark_of(known))):
                node_id = _id_of(known)
            else:
                self._last = node_id = self._last + 1
                if known is not None:
                    del self._paths[_id_of(known)]
            self._paths[node_id] = path
            self._by_path[path] = node_id if mark is None else (node_id, mark)
        return node_id

    def _in_block(self, path: str, found: Incarnation) -> int | None:
        """Return the id of a place with one of the names of a block, if its directory has an id; None for any other."""
        directory, name = _directory_and_name(path)
        place = _BLOCK_PLACES.get(name)
        known = None if place is None else self._by_path.get(directory)
        if place is None or not isinstance(known, int):
            return None
        block = self._blocks.get(directory)
        if block is None:
            with self._issuing:
                block = self._blocks.get(directory)
                if block is None:
                    directory = self._paths[known]  # the same string, rather than another one
                    block = self._last + 1
                    self._last += len(_BLOCK_NAMES)
                    self._directories[block] = directory
                    self._blocks[directory] = block
        if isinstance(found, Content) and not (place < len(_BLOCK_FILES) and self._has_content(block, place, found)):
            return None
        return block + place

    def _has_content(self, block: int, place: int, found: Content) -> bool:
        """Return whether a file of a block still has the content that its id was issued for; note what was added."""
        with self._issuing:
            contents = self._contents.get(block)
            if contents is None:
                contents = self._contents[block] = array("Q", (_NOTHING_YET, 0) * len(_BLOCK_FILES))
            at = 2 * place
            size, digest = contents[at], contents[at + 1]
            if size != _NOTHING_YET and (size == _REPLACED or not found.continues(size << _HASH_BITS | digest)):
                contents[at] = _REPLACED
                return False
            contents[at], contents[at + 1] = found.mark >> _HASH_BITS, found.mark & _HASH_MASK
            return True

    def forget(self, path: str) -> None:
        """Forget the target at ``path``: it is gone, and its id is not found any more."""
        with self._issuing:
            known = self._by_path.pop(path, None)
            if known is not None:
                self._paths.pop(_id_of(known), None)

    def last_of(self, path: str) -> int:
        """Return the id of the last target at ``path``; if there was none yet, that of the first."""
        known = self._by_path.get(path)
        return self.of_path(path) if known is None else _id_of(known)

    def first_of(self, view: View, segment: Segment, partition: ShownPartition, slot: int | None = None) -> int:
        """Return the id of a view of the segment's base offset; add the relative offset for other records.

        The visible part may change without the segment: then it gets another ``slot``.
        """
        slot = segment.slot if slot is None else slot
        first_shown_in = self._slots.get(slot) or self._slots.put(slot, segment, self._owner(slot, partition))
        if first_shown_in() is not partition:
            slot = self._second_slot(slot, segment, partition)
        return view << _VIEW_SHIFT | slot << _RELATIVE_BITS

    def number_of(self, partition: ShownPartition) -> int:
        """Return the number of a partition that is shown from now on."""
        with self._issuing:
            self._partitions.append(ref(partition))
            return len(self._partitions)

    def _owner(self, slot: int, partition: ShownPartition) -> ref[ShownPartition]:
        """Return the partition that the ids of a slot were issued for first, which is this one if there is none."""
        with self._issuing:
            if slot >= len(self._owners):
                self._owners.frombytes(bytes((slot + 1 - len(self._owners)) * self._owners.itemsize))
            owner = self._owners[slot]
            known = None if not owner else self._partitions[owner - 1]
            if known is None or known() is None:
                self._owners[slot] = partition.number
                known = self._partitions[partition.number - 1]
            return known

    def _let_go(self, slot: int) -> tuple[Segment | None, ref[ShownPartition] | None]:
        """Return the segment of a slot and the partition that shows it, if its log had let go of it."""
        owner = self._owners[slot] if slot < len(self._owners) else 0
        shown_in = self._partitions[owner - 1] if owner else None
        partition = None if shown_in is None else shown_in()
        segment = None if partition is None else partition.segment_with(slot)
        if segment is not None and shown_in is not None:
            self._slots.put(slot, segment, shown_in)
        return segment, shown_in

    def _second_slot(self, first: int, segment: Segment, partition: ShownPartition) -> int:
        """Return the slot for one of two views of a segment, above and below the log start offset."""
        segment.is_pinned = True
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
        if path is not None:
            return path
        for at, name in enumerate(_BLOCK_NAMES):
            directory = self._directories.get(node_id - at)
            if directory is not None and not self._is_replaced(node_id - at, at):
                return f"{directory}/{name}"
        raise Stale(f"no node {node_id}")

    def _is_replaced(self, block: int, place: int) -> bool:
        contents = self._contents.get(block)
        return contents is not None and place < len(_BLOCK_FILES) and contents[2 * place] == _REPLACED

    def record_of(self, node_id: int) -> tuple[View, ShownPartition, Segment, int]:
        """Return the view, partition, segment and offset of an id.

        Raises:
            Stale: the segment's incarnation is gone, or the id was never issued.
        """
        slot = node_id >> _RELATIVE_BITS & _SLOT_MASK
        segment, shown_in = self._slots.segment(slot), self._slots.get(slot)
        if segment is None:
            segment, shown_in = self._let_go(slot)
        partition = None if shown_in is None else shown_in()
        if segment is None or partition is None or segment.is_stale:
            self._slots.forget(slot)
            raise Stale(f"no node {node_id}: its segment is gone")
        return View(node_id >> _VIEW_SHIFT), partition, segment, segment.base_offset + (node_id & _RELATIVE_MASK)


def _directory_and_name(path: str) -> tuple[str, str]:
    """Return the directory that would have the block for a path, and the path below it."""
    directory, _, name = path.rpartition("/")
    above, _, last = directory.rpartition("/")
    return (above, f"{last}/{name}") if last == "meta" else (directory, name)


def _id_of(known: int | tuple[int, Hashable]) -> int:
    return known if isinstance(known, int) else known[0]


def _mark_of(known: int | tuple[int, Hashable]) -> Hashable:
    return None if isinstance(known, int) else known[1]


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
