"""The walk over a segment's batches: checks every CRC, steps over damage, and finds the next intact batch after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.batch_header import (
    UNKNOWN_COUNT,
    BatchHeader,
    claimed_size,
    crc_mismatch,
    is_intact,
)
from kfs.format.batch_table import BatchTable
from kfs.format.decoders import BlockDecoder, default_decoder
from kfs.format.layout import (
    BATCH_OVERHEAD,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD_STRUCT,
    MAGIC_V2,
    MAX_INT64,
)
from kfs.log.block import Block, Cause, Damage
from kfs.log.offset_range import OffsetRange, SegmentBounds
from kfs.log.problem import Problem
from kfs.log.window import WINDOW_BYTES, Window
from kfs.storage.open_files import FileChanged, OpenFile

if TYPE_CHECKING:
    from kfs.log.surroundings import Surroundings

#: The maximum size in bytes of a block of consecutive uncompressed messages.
RUN_BYTES: Final = 256 * 1024
#: The limit on bytes searched for repeated batches, as a multiple of the file size, against hostile data.
_SEARCHES_OF_FILE: Final = 8


class SegmentWalk:
    """Yields the blocks and the damage of one segment, from a batch boundary on.

    ``limit`` is the maximum size of a batch in bytes, checked before it is read. ``report`` receives all problems.
    ``end`` is where the log ends in the file, valid after the walk; an incomplete batch or zeros may follow. ``window``
    is a window over the file that may already have data. ``on_loss`` is called for lost records before they are
    reported, and its exceptions end the walk. ``missing`` returns which of the offsets between the segment's end and
    the next base offset are lost; its exceptions end the walk too.
    """

    def __init__(
        self,
        file: OpenFile,
        bounds: SegmentBounds,
        limit: int,
        report: Callable[[Problem], None],
        decoder: BlockDecoder | None = None,
        window: Window | None = None,
        on_loss: Callable[[], None] = lambda: None,
        missing: Callable[[OffsetRange], OffsetRange | None] | None = None,
    ) -> None:
        self.file = file
        self.bounds = bounds
        self.limit = limit
        self.report = report
        self.decoder = decoder or default_decoder()
        self._on_loss = on_loss
        self._missing = missing
        self._window = window or Window(file, file.size())
        self._looked_around: Surroundings | None = None
        self.size = self.end = self._window.size
        self._after = bounds.base_offset - 1
        self._after_is_known = True
        #: Whether the last offset before the current position is known, which is so after an intact batch.
        self._end_is_known = True
        #: The last batch, if only its content tells its last offset.
        self._open_end: Block | None = None
        self._repeated_up_to = -1
        self._search_budget = max(self.size, 1) * _SEARCHES_OF_FILE
        self._looks_behind = True
        self._looked_behind_to = -1
        self._behind = MAX_INT64

    @property
    def _surroundings(self) -> Surroundings:
        """What looks around a broken batch; made, and imported, for the first one."""
        if self._looked_around is None:
            from kfs.log.surroundings import Surroundings

            self._looked_around = Surroundings(self._window, self.bounds, self.limit)
        return self._looked_around

    def items(self, position: int = 0, after: int | None = None) -> Iterator[Block | Damage]:
        """Walk from ``position`` to the end; ``after`` is the highest offset before it, if known.

        Raises:
            CorruptData: the file shrank during the walk, or the device fails to read.
        """
        self.begin(position, after)
        return self.items_from(position)

    def items_from(self, position: int) -> Iterator[Block | Damage]:
        """Continue from ``position`` like :meth:`items`, with the state from before it."""
        while position < self.size:
            item = self.item(position)
            if item is None:
                self.end = position
                return
            yield item
            position = item.end
        self.end = position
        missing = self.missing_behind()
        if missing is not None:
            yield missing

    def begin(self, position: int, after: int | None) -> None:
        """Prepare for ``position`` as :meth:`items` does, for callers that advance step by step."""
        if after is not None:
            self._after = after
        self._after_is_known = after is not None or position == 0
        self._end_is_known = position == 0
        self._open_end = None
        self._looked_behind_to = -1  # readers of pages may also go back

    def scan(self, position: int) -> BatchTable:
        """Return the ordinary record batches from ``position`` on that the window holds; there may be none.

        Call :meth:`item` for the item after them. Batches larger than the window don't count as ordinary.
        """
        buffer, at = self._window.at(position, min(BATCH_OVERHEAD, self.size - position))
        if len(buffer) - at >= BATCH_OVERHEAD:
            size = claimed_size(buffer, at)
            if size <= WINDOW_BYTES:
                buffer, at = self._window.at(position, min(size, self.size - position))
        after = self._after
        if not self._after_is_known and len(buffer) - at >= BATCH_OVERHEAD:  # nothing is known that it could leap from
            after = max(after, LOG_OVERHEAD_STRUCT.unpack_from(buffer, at)[0] - 1)
        table = self.decoder.scan(buffer, at, position, after, self.bounds.limit, self.limit)
        if len(table):
            self._after = table.last_offsets[-1]
            self._after_is_known = self._end_is_known = True
            self._open_end = None
        return table

    def missing_behind(self) -> Damage | None:
        """Return the lost offsets between the end of the segment, which the walk has reached, and the next one.

        If the segment ends in damage, that damage already covers them. None means that nothing is lost.
        """
        following = self.bounds.next_base_offset
        if self._missing is None or following is None or not self._end_is_known or self._after + 1 >= following:
            return None
        if self._open_end is not None:
            try:
                offsets = self._open_end.decode(self.decoder, self.limit).offsets
            except CorruptData:  # readers of the block get this error
                return None
            self._after = max((self._after, *offsets))
            if self._after + 1 >= following:
                return None
        missing = self._missing(OffsetRange(self._after + 1, following))
        if missing is None:
            return None
        from kfs.log.missing import missing_sentence  # only here: most logs have no gaps

        problem, shift = self._report(self.size, 0, missing_sentence(missing), Cause.MISSING)
        return Damage(problem, Cause.MISSING, missing.start - 1, self._after, before=missing.end, shift=shift)

    def item(self, position: int) -> Block | Damage | None:
        """Return the item at ``position``, or None if the log ends there."""
        left = self.size - position
        if left < HEADER_SIZE_UP_TO_MAGIC:
            return self._tail(position, None)
        header: BatchHeader | None = None
        cause = Cause.HEADER
        try:
            header = self._window.header(position)
            if header.size > left:
                return self._tail(position, header)
            if header.size > self.limit:
                cause = Cause.SIZE_LIMIT
                raise LimitExceeded(f"batch of {header.size} bytes, over the limit of {self.limit}", position)
            data = self._window.read(position, header.size)
            if not is_intact(header, data):
                cause = Cause.CHECKSUM
                raise crc_mismatch(header, data)
        except FileChanged:
            raise
        except CorruptData as error:
            if self._surroundings.ends_log(position):
                return None
            return self._damage(position, error.reason, cause, header)
        if header.record_count == UNKNOWN_COUNT or header.magic >= MAGIC_V2:
            return self._placed(header, data)
        return self._placed(*self._run(header, data))

    def _tail(self, position: int, header: BatchHeader | None) -> Damage | None:
        """Judge a batch that extends past the file.

        It is the log's end, and the result None, if this is the last segment and no intact batch follows.
        """
        left = self.size - position
        if header is None:
            reason = f"{left} bytes left, fewer than a header"
        else:
            reason = f"batch of {header.size} bytes with {left} left in the file"
        found = self._found_behind(position, header)
        if found is None and self.bounds.is_last:
            return None
        return self._damaged(position, (found or self.size) - position, reason, Cause.TRUNCATED, header)

    def _found_behind(self, position: int, header: BatchHeader | None) -> int | None:
        """Return the position of the next intact batch after one that extends past the file.

        A codec may store incompressible data unchanged. So a batch found inside a compressed message that is just being
        written may be one of the messages inside it. Its offset isn't above that of the outer message.
        """
        from kfs.log.resync import find_batch  # here and below on demand: a log without damage needs no search

        after = self._after
        is_begun = header is not None and header.record_count == UNKNOWN_COUNT and self._surroundings.is_begun(header)
        is_possible = header is not None and header.last_offset < self.bounds.limit
        if header is not None and is_begun and is_possible and self.bounds.is_last:  # only the last one is written to
            after = max(after, header.last_offset)
        return find_batch(self._window, self.bounds, position + 1, after, self.limit)

    def _damage(self, position: int, reason: str, cause: Cause, header: BatchHeader | None) -> Damage:
        """Step over a broken batch: to the next header if its size is plausible, else to the next intact batch."""
        from kfs.log.resync import find_batch

        end_of_bytes = self.file.end_of_extent(position) or self.size  # a batch doesn't span files
        if header is not None and header.size <= end_of_bytes - position:
            behind = position + header.size
            if self._surroundings.may_end_at(behind, self._after):
                end = self._surroundings.swallowed(header, behind, self._after) or behind
                return self._damaged(position, end - position, reason, cause, header)
        found = find_batch(self._window, self.bounds, position + 1, self._after, self.limit) or self.size
        return self._damaged(position, min(found, end_of_bytes) - position, reason, cause, header)

    def _damaged(self, position: int, size: int, reason: str, cause: Cause, header: BatchHeader | None) -> Damage:
        self._on_loss()
        self._end_is_known = False
        read_error = self.file.read_error(position, size)
        cause = Cause.READ_ERROR if read_error else cause
        problem, shift = self._report(position, size, read_error or reason, cause)
        before = self._first_behind(position + size)
        return Damage(problem, cause, self._after, self._claimed_last(position, header), before=before, shift=shift)

    def _report(self, position: int, size: int, reason: str, cause: Cause) -> tuple[Problem, int]:
        """Report a problem at its true position; return it, and the walk's position minus that position."""
        path, there = self.file.where(position)
        problem = Problem(path, there, size, reason, cause.value)
        self.report(problem)
        return problem, position - there

    def _first_behind(self, position: int) -> int:
        """Return the first offset of the next block at or after ``position``, the exclusive end of lost offsets.

        Without such a block, return the next segment's base offset, or :data:`MAX_INT64` for the last segment.
        """
        if not self._looks_behind:
            return MAX_INT64
        if position > self._looked_behind_to:
            self._looked_behind_to, self._behind = self._look_behind(position)
        return self._behind

    def _look_behind(self, position: int) -> tuple[int, int]:
        """Walk on silently to the next block; return its position, or the file's size, and its first offset."""
        walk = SegmentWalk(self.file, self.bounds, self.limit, lambda problem: None, self.decoder)
        walk._looks_behind = False
        walk._after, walk._after_is_known = self._after, self._after_is_known
        walk._search_budget = self._search_budget
        for item in walk.items_from(position):
            if isinstance(item, Block):
                first = self._first_of(item)
                if first is not None:
                    return item.position, first
        last = MAX_INT64 if self.bounds.next_base_offset is None else self.bounds.next_base_offset
        return self.size, last

    def _first_of(self, block: Block) -> int | None:
        """Return the lowest offset that a block may hold, or None if it is unknown."""
        if block.header.record_count != UNKNOWN_COUNT:
            return max(block.header.base_offset, block.after + 1)
        try:
            offsets = block.decode(self.decoder, self.limit).offsets
        except CorruptData:
            return None
        return offsets[0] if offsets else None

    def _claimed_last(self, position: int, header: BatchHeader | None) -> int:
        """Return the last offset that the bytes at ``position`` claim, if possible; else the offset before them."""
        if header is not None:
            first, last = header.base_offset, header.last_offset
        elif self.size - position >= BATCH_OVERHEAD:
            buffer, at = self._window.at(position, BATCH_OVERHEAD)
            first, _ = LOG_OVERHEAD_STRUCT.unpack_from(buffer, at)
            last = first + int.from_bytes(buffer[at + 23 : at + 27], "big", signed=True)
        else:
            return self._after
        if self._after < first <= last < self.bounds.limit:
            return last
        return self._after

    def _placed(self, header: BatchHeader, data: bytes) -> Block | Damage:
        """Return the block if its offsets are possible in this segment, after those before it; else the damage."""
        limit = self.bounds.limit
        first, last, after = header.base_offset, header.last_offset, self._after
        # The usual case. Wrappers are excluded, because only their content tells where they begin.
        if after + 1 == first and last < limit and header.record_count != UNKNOWN_COUNT:
            self._after = last
            return self._ends_with(Block(header, data, self.file.path))
        reason = ""
        if first >= limit or (first < self.bounds.base_offset and last < self.bounds.base_offset):
            reason = f"offsets {first} to {last} can't be in the segment with base offset {self.bounds.base_offset}"
        elif last <= after and not header.has_unknown_last:
            is_lost = not self._is_repetition(header, data)
            return self._misplaced(header, f"offsets {first} to {last} after offset {after}", Cause.REPEATED, is_lost)
        elif first > after + 1 and self._after_is_known and self._is_out_of_place(header, data):
            reason = f"offsets {first} to {last}, followed by lower ones, after offset {after}"
        if reason:
            return self._misplaced(header, reason, Cause.MISPLACED)
        block = Block(header, data, self.file.path, after=after, before=limit)
        if block.is_trimmed:
            reason = f"offsets {first} to {last}, but only those above {after} and below {limit} can be here"
            self._report(header.position, header.size, reason, Cause.MISPLACED)
        self._after = max(after, min(last, limit - 1))
        return self._ends_with(block)

    def _ends_with(self, block: Block) -> Block:
        """Note that the bytes walked so far end with an intact block."""
        self._after_is_known = self._end_is_known = True
        self._open_end = block if block.header.has_unknown_last else None
        return block

    def _misplaced(self, header: BatchHeader, reason: str, cause: Cause, loses_records: bool = True) -> Damage:
        if loses_records:
            self._on_loss()
            self._end_is_known = False
        problem, shift = self._report(header.position, header.size, reason, cause)
        before = self._first_behind(header.position + header.size) if loses_records else self._after + 1
        return Damage(problem, cause, self._after, self._after, before, shift)

    def _is_repetition(self, header: BatchHeader, data: bytes) -> bool:
        """Whether a batch with repeated offsets loses no records that belong elsewhere.

        That is so if the log continues without a gap after it, or if the same batch occurs earlier in the file.
        """
        following = self._surroundings.intact_at(header.position + header.size, self._after)
        if following is not None and self._after + 1 == following.base_offset:
            return True
        head = data[:BATCH_OVERHEAD]
        if self._repeated_up_to >= 0 and self.file.read(self._repeated_up_to, len(head)) == head:
            found: int | None = self._repeated_up_to  # consecutive repetitions, such as a block that was copied twice
        else:
            from kfs.log.resync import find_bytes

            found = find_bytes(self.file, head, header.position, self._search_budget)
            self._search_budget -= header.position if found is None else found
        self._repeated_up_to = -1 if found is None else found + header.size
        return found is not None

    def _is_out_of_place(self, header: BatchHeader, data: bytes) -> bool:
        """Whether an offset that jumps ahead is wrong, and not the offset of the next batch, which jumps back.

        The base offset lies outside the CRC in every format, so a flipped bit there leaves an intact batch in the wrong
        place. The first batch in log order is trusted, as a consumer does, with two exceptions: if that would hide more
        than one batch, or if the next batch continues exactly where this one would end without the jump.
        """
        last, end = header.last_offset, header.position + header.size
        following = self._surroundings.intact_from(end, self._after)
        if following is None or following.base_offset > last:
            return False
        second = self._surroundings.intact_from(following.position + following.size, self._after)
        if second is not None and second.base_offset <= last and second.last_offset > following.last_offset:
            return True
        if following.position != end:  # the broken bytes between them hide where it would continue
            return False
        try:
            length = len(self._offsets_of(header, data))
        except CorruptData:
            return True  # it has no records that could overlap the next one's
        try:
            begin = self._offsets_of(following, self._window.read(following.position, following.size)).start
        except CorruptData:
            return False
        return begin == self._after + 1 + length

    def _offsets_of(self, header: BatchHeader, data: bytes) -> range:
        """Return the range from a batch's first offset to its last; for a wrapper, decode it.

        Raises:
            CorruptData: the wrapper can't be decoded.
        """
        if header.record_count == UNKNOWN_COUNT:
            offsets = self.decoder.decode(header, data, self.limit).offsets
            return range(offsets[0], offsets[-1] + 1)
        return range(header.base_offset, header.last_offset + 1)

    def _run(self, first: BatchHeader, data: bytes) -> tuple[BatchHeader, bytes]:
        """Extend an intact uncompressed message by the similar ones after it that are intact and in order."""
        position = first.position + first.size
        last, latest = first.last_offset, first.max_timestamp
        stop = min(self.size, first.position + RUN_BYTES)
        if last != self._after + 1:
            stop = position  # a jump: judge it on its own
        while position + HEADER_SIZE_UP_TO_MAGIC <= stop:
            size = claimed_size(*self._window.at(position, HEADER_SIZE_UP_TO_MAGIC))
            if size > stop - position:
                break
            buffer, at = self._window.at(position, size)
            end = min(len(buffer), at + stop - position)
            stop_at, last, timestamp = self.decoder.scan_messages(buffer, at, end, first, last, self.bounds.limit)
            if stop_at == at:
                break
            latest = max(latest, timestamp)
            position += stop_at - at
        if last == first.last_offset:
            return first, data
        size = position - first.position
        count = last - first.last_offset + 1
        run = first._replace(size=size, last_offset=last, record_count=count, max_timestamp=latest)
        return run, self._window.read(first.position, size)
