"""The records of a partition by offset, decoded and rendered."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress

from kfs.errors import NotFound, Stale
from kfs.log.segment import Segment
from kfs.log.storage import LoadedBlock
from kfs.read.log_reader import Located
from kfs.render.record_json import RenderedLines
from kfs.storage.open_files import FileChanged
from kfs.tree.visible_log import VisibleLog


class PartitionRecords:
    """Finds records in the visible part of a log, and caches their lines."""

    __slots__ = ("_visible",)

    def __init__(self, visible: VisibleLog) -> None:
        self._visible = visible

    def loaded(self, offset: int, *, keep: bool = True) -> Located:
        """Return the record at ``offset``; see :meth:`LogReader.find`.

        Raises:
            NotFound: there is no such record, or it is a control record.
            CorruptData: it lies in damaged bytes.
        """
        found = self._visible.reader.find(offset, keep=keep)
        if found is None:
            remote = self._visible.log.remote
            why = f": {remote.sentence}" if remote is not None and offset in remote else ""
            raise NotFound(f"{self._visible.path}: no record at offset {offset}{why}")
        return found

    def rendered(self, offset: int) -> tuple[Segment, RenderedLines, int]:
        """Return as :meth:`loaded` does, with the block's lines instead of its columns."""
        segment = self._visible.log.segment_for(offset)
        if segment is not None and offset in self._visible.offsets:
            lines = self._visible.context.rendered.find(self._visible.cache_slot(segment), offset)
            if lines is not None:
                index = bisect_left(lines.offsets, offset)
                if index == len(lines) or lines.offsets[index] != offset:
                    raise NotFound(f"{self._visible.path}: no record at offset {offset}")
                if index not in lines.faults:
                    return segment, lines, index
        segment, loaded, index = self.loaded(offset, keep=False)  # its lines are cached
        return segment, self._render(segment, loaded), index

    def loaded_of(self, segment: Segment, offset: int) -> tuple[LoadedBlock, int]:
        """Return as :meth:`loaded` does, for one incarnation of a segment, even if the log no longer has it.

        Raises:
            Stale: the record is gone.
        """
        if self._visible.log.segment_for(offset) is segment:
            found = self.loaded(offset)
            if found.segment is segment:
                return found.loaded, found.record_index
        kept = self._visible.reader.find_kept(segment, offset)
        if kept is None:
            raise Stale(f"{self._visible.path}: offset {offset} is gone")
        return kept.loaded, kept.record_index

    def rendered_of(self, segment: Segment, offset: int) -> tuple[RenderedLines, int]:
        """Return as :meth:`rendered` does, for one incarnation of a segment, as :meth:`loaded_of`."""
        if self._visible.log.segment_for(offset) is segment:
            found, lines, index = self.rendered(offset)
            if found is segment:
                return lines, index
        kept = self._visible.context.rendered.find(self._visible.cache_slot(segment), offset)
        if kept is None:
            loaded, _ = self.loaded_of(segment, offset)
            kept = self._visible.json.lines(loaded.columns, (loaded.first_offset, loaded.last_offset))
        index = bisect_left(kept.offsets, offset)
        if index == len(kept) or kept.offsets[index] != offset or index in kept.faults:
            raise Stale(f"{self._visible.path}: offset {offset} is gone")
        return kept, index

    def render(self, segment: Segment, loaded: LoadedBlock) -> RenderedLines:
        """Return the lines of a decoded block, through the cache."""
        covers = (loaded.first_offset, loaded.last_offset)
        lines = self._visible.context.rendered.find(self._visible.cache_slot(segment), loaded.last_offset)
        if (
            lines is None
            or (lines.first_offset, lines.last_offset) != covers
            or lines.offsets != loaded.columns.offsets
        ):
            lines = self._render(segment, loaded)
        return lines

    def _render(self, segment: Segment, loaded: LoadedBlock) -> RenderedLines:
        lines = self._visible.json.lines(loaded.columns, (loaded.first_offset, loaded.last_offset))
        slot = self._visible.cache_slot(segment)
        with suppress(FileChanged):
            # Ask again: the record may have been found before the slot changed.
            if self._visible.reader.shows(segment, loaded.header):
                self._visible.context.rendered.put(slot, lines)
        return lines
