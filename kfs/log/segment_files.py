"""The segment files of a partition directory after Kafka's load rules, computed without changing the disk.

``LogLoader.load`` drops ``.deleted`` and ``.cleaned`` files. A ``.swap`` file at or above the lowest ``.cleaned`` base
offset belongs to an unfinished compaction and is dropped too. The remaining ``.swap`` files replace the plain files
whose offsets they cover.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kfs.storage.listing import FoundFile, list_directory

#: The digits of a base offset in a file's name.
_BASE_DIGITS = 20
_STATES = ("", ".deleted", ".cleaned", ".swap")
#: The kind of a file and its state, by its name after the base offset.
_SUFFIXES = {
    f"{kind}{state}": (kind, state)
    for kind in ("log", "index", "timeindex", "txnindex", "snapshot")
    for state in _STATES
}
_MAX_OFFSET = 2**63 - 1


#: A segment's base offset, and the inode of its ``.log``.
SegmentKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment; a missing side file is None."""

    base_offset: int
    log: FoundFile
    index: FoundFile | None = None
    timeindex: FoundFile | None = None
    txnindex: FoundFile | None = None

    @property
    def key(self) -> SegmentKey:
        """What distinguishes it from other segments of its log at one moment."""
        return self.base_offset, self.log.inode


@dataclass(slots=True)
class PartitionFiles:
    """The content of a partition directory; segments and producer snapshots are sorted by offset."""

    segments: list[SegmentFiles] = field(default_factory=list)
    snapshots: dict[int, FoundFile] = field(default_factory=dict)
    orphans: list[FoundFile] = field(default_factory=list)  # an index without its .log
    superseded: list[FoundFile] = field(
        default_factory=list
    )  # left by a crash: .deleted, .cleaned, replaced by a .swap
    others: dict[str, FoundFile] = field(default_factory=dict)  # by name
    deleted: list[SegmentFiles] = field(default_factory=list)  # their files are .deleted, and also in superseded


_Kinds = dict[int, dict[str, FoundFile]]


def list_partition(directory: str, next_offset: Callable[[SegmentFiles], int]) -> PartitionFiles:
    """List ``directory`` and classify its files.

    ``next_offset`` reads the offset after the last record of a segment; it is called only for ``.swap`` files. Raises
    :class:`OSError` if the directory can't be listed, and :class:`~kfs.errors.Shortage` if no descriptor is available.
    """
    result = PartitionFiles()
    states: dict[str, _Kinds] = {state: {} for state in _STATES}
    for found in list_directory(directory):
        name = found.name
        digits, _, suffix = name.partition(".")
        known = _SUFFIXES.get(suffix)
        is_offset = len(digits) == _BASE_DIGITS and digits.isascii() and digits.isdigit()
        base = int(digits) if is_offset else _MAX_OFFSET + 1
        if known is None or base > _MAX_OFFSET:
            result.others[name] = found
            continue
        kind, state = known
        if kind == "snapshot" and not state:
            result.snapshots[base] = found
        else:
            states[state].setdefault(base, {})[kind] = found
    without_suffix = _apply_swaps(states, result, next_offset)
    _collect(without_suffix, result)
    deleted = states[".deleted"]
    result.deleted = [_segment(base, deleted[base]) for base in sorted(deleted) if "log" in deleted[base]]
    return result


def _apply_swaps(
    states: dict[str, _Kinds], result: PartitionFiles, next_offset: Callable[[SegmentFiles], int]
) -> _Kinds:
    """Return the files by base offset, after resolving what an interrupted compaction left."""
    without_suffix, cleaned, swaps = states[""], states[".cleaned"], states[".swap"]
    least_cleaned = min(cleaned, default=_MAX_OFFSET + 1)
    for kinds in (*states[".deleted"].values(), *cleaned.values()):
        result.superseded.extend(kinds.values())
    for base in [base for base in swaps if base >= least_cleaned]:
        result.superseded.extend(swaps.pop(base).values())
    covering = [_segment(base, kinds) for base, kinds in swaps.items() if "log" in kinds]
    if covering:
        low = min(files.base_offset for files in covering)
        high = max(next_offset(files) for files in covering)
        for base in [base for base in without_suffix if low <= base < high]:
            result.superseded.extend(without_suffix.pop(base).values())
    for base, kinds in swaps.items():
        replaced = without_suffix.setdefault(base, {})  # still there if the .swap has nothing readable
        result.superseded.extend(found for kind, found in replaced.items() if kind in kinds)
        replaced.update(kinds)
    return without_suffix


def _collect(without_suffix: _Kinds, result: PartitionFiles) -> None:
    for base in sorted(without_suffix):
        kinds = without_suffix[base]
        if "log" in kinds:
            result.segments.append(_segment(base, kinds))
        else:
            result.orphans.extend(kinds.values())


def _segment(base: int, kinds: dict[str, FoundFile]) -> SegmentFiles:
    return SegmentFiles(base, kinds["log"], kinds.get("index"), kinds.get("timeindex"), kinds.get("txnindex"))
