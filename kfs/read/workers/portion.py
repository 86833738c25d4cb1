"""Items on their way from a worker to its parent: pickled, large buffers in memory that both share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kfs.read.workers.channel import Channel
from kfs.read.workers.job import Buffered, is_buffered, place_of
from kfs.read.workers.kept_log import Logged
from kfs.read.workers.shared import ParentMemory, Part, WorkerMemory

#: What Arrow recommends for the beginning of a buffer.
_ALIGNMENT: Final = 64
#: Less than that is sent as it is: a file and a mapping for it would cost more.
_INLINE_BYTES: Final = 64 * 1024


class Extents(NamedTuple):
    """An item without its buffers: each of these lies in the bytes that are sent, from a position on, or is None."""

    item: Buffered
    places: tuple[tuple[int, int] | None, ...]


class Portion(NamedTuple):
    """Items in their order, and what was logged up to the last of them; they count as ``weight`` bytes.

    The bytes of their buffers, ``size`` of them, are ``data`` or, where that is None, at the beginning of a ``region``.
    Regions that are ``dropped`` won't be sent again.
    """

    items: tuple[object, ...]
    weight: int
    logged: Logged
    size: int = 0
    data: bytes | None = b""
    region: int = -1
    dropped: tuple[int, ...] = ()


def send_portion(
    channel: Channel, memory: WorkerMemory, items: Sequence[object], weight: int, logged: Logged = ()
) -> None:
    """Send items; what they are made of is free afterwards."""
    layout = _layout(items)
    if layout.size < _INLINE_BYTES:
        data = bytearray(layout.size)
        for at, part in layout.parts:
            data[at : at + part.nbytes] = part
        dropped = memory.take_dropped()
        channel.send(Portion(layout.items, weight, logged, layout.size, bytes(data), dropped=dropped))
    else:
        is_in_arena = False
        if memory.arena is not None:
            whole = _layout(items, memory.arena.used)
            is_in_arena = memory.fits(whole.size)
            layout = whole if is_in_arena else layout
        with memory.filled(layout.parts, layout.size, in_arena=is_in_arena) as region:
            dropped = memory.take_dropped()
            message = Portion(layout.items, weight, logged, layout.size, None, region.number, dropped)
            channel.send(message, None if region.is_known else region.descriptor)
    memory.begin()


def items_of(portion: Portion, memory: ParentMemory, descriptor: int | None) -> list[Any]:
    """Return what a portion has; buffers are views of its bytes, and the descriptor may be closed."""
    memory.dropped(portion.dropped)
    if portion.data is None:
        whole = memory.borrowed(portion.region, portion.size, descriptor)
    else:
        whole = memoryview(portion.data)
    found: list[Any] = []
    for item in portion.items:
        if isinstance(item, Extents):
            found.append(
                item.item.with_buffers([None if at is None else whole[at[0] : at[0] + at[1]] for at in item.places])
            )
        else:
            found.append(item)
    return found


class _Layout(NamedTuple):
    """Where in how many bytes everything lies, and what has to be copied there."""

    items: tuple[object, ...]
    parts: list[Part]
    size: int


def _layout(items: Sequence[object], used: int | None = None) -> _Layout:
    """Return where all lies that has to be copied: one behind the other, from the beginning or behind a ``used`` arena.

    With an arena, what lies there stays there.
    """
    found: list[object] = []
    parts: list[Part] = []
    end = used or 0
    for item in items:
        if not is_buffered(item):
            found.append(item)
            continue
        places: list[tuple[int, int] | None] = []
        for buffer in item.buffers:
            if buffer is None:
                places.append(None)
                continue
            at = None if used is None else place_of(buffer)
            if at is None:
                at = end + -end % _ALIGNMENT
                parts.append((at, buffer))
                end = at + buffer.nbytes
            places.append((at, buffer.nbytes))
        found.append(Extents(item.with_buffers([]), tuple(places)))
    return _Layout(tuple(found), parts, end)
