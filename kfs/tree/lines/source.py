"""The interface that makes a segment's text: the length of each part, and the text itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kfs.errors import CorruptData
from kfs.log.block import Block, Cause
from kfs.read.deciding_markers import Marker
from kfs.tree.lines.index import NO_EARLIEST, NO_LATEST

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: The least length of a chunk of text, except the last; it ends with a block.
CHUNK_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Chunk:
    """The text of one block or damage; ``faults`` are ranges that stand for unreadable data."""

    text: bytes
    faults: list[tuple[int, int, CorruptData]] = field(default_factory=list)

    @classmethod
    def join(cls, chunks: Sequence[Chunk]) -> Chunk:
        """Join consecutive chunks."""
        if len(chunks) == 1:
            return chunks[0]
        parts: list[bytes] = []
        faults: list[tuple[int, int, CorruptData]] = []
        size = 0
        for chunk in chunks:
            faults.extend((start + size, end + size, error) for start, end, error in chunk.faults)
            parts.append(chunk.text)
            size += len(chunk.text)
        return cls(b"".join(parts), faults)


class TextPart(NamedTuple):
    """The length of the text of a part of the log that ends at ``log_end``, and more for the index.

    ``last_offset`` is that of the part's blocks, -1 for damage. A part for offsets missing after the segment has no
    bytes in the log: it ends where the part before it does. The timestamps of its records, in milliseconds, lie between
    ``earliest`` and ``latest``.
    """

    size: int
    log_end: int
    last_offset: int
    earliest: int = NO_EARLIEST
    latest: int = NO_LATEST
    is_missing: bool = False


class LineSource(Protocol):
    """Makes a segment's text from a batch boundary on; ``after`` is the highest offset before that."""

    def measure(self, segment: Segment, position: int, after: int, end: int | None) -> Iterator[TextPart]:
        """Measure the text, part by part, up to the batch boundary ``end``, or to the end of the segment."""
        ...

    def chunks(self, segment: Segment, position: int, after: int, ends: Sequence[int]) -> Iterator[Chunk]:
        """Make the text, a chunk up to each of ``ends``, which are boundaries; at least one.

        It ends with a chunk that extends beyond its end: consecutive messages are measured as they come, and read as
        one block.
        """
        ...

    def deciding_markers(self) -> Sequence[Marker] | None:
        """Return the markers after the segment that decided the measured text; None if something else did."""
        ...

    def still_decide(self, markers: Sequence[Marker]) -> bool:
        """Return whether these markers still exist, so that a text measured with them is still right."""
        ...


class BlockLines:
    """Text that ``render`` makes of each block in a segment, visible or not."""

    def __init__(self, render: Callable[[Segment, Block], Chunk]) -> None:
        self._render = render

    def measure(self, segment: Segment, position: int, after: int, end: int | None) -> Iterator[TextPart]:
        """See :class:`LineSource`."""
        for item in segment.walk(position, after):
            if end is not None and item.position >= end:
                return
            if isinstance(item, Block):
                yield TextPart(len(self._render(segment, item).text), item.end, item.header.last_offset)
            else:
                yield TextPart(0, item.end, -1, is_missing=item.cause is Cause.MISSING)

    def chunks(self, segment: Segment, position: int, after: int, ends: Sequence[int]) -> Iterator[Chunk]:
        """See :class:`LineSource`."""
        items = segment.walk(position, after)
        held = next(items, None)
        for end in ends:
            chunks = []
            reached = position
            while held is not None and held.position < end:
                if isinstance(held, Block):
                    chunks.append(self._render(segment, held))
                reached = held.end
                held = next(items, None)
            yield Chunk.join(chunks)
            if reached > end:
                return

    def deciding_markers(self) -> Sequence[Marker]:
        """See :class:`LineSource`."""
        return ()

    def still_decide(self, markers: Sequence[Marker]) -> bool:
        """See :class:`LineSource`."""
        return not markers
