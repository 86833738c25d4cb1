"""Sends items from a worker to its parent: pickled, with large buffers in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kfs.read.workers.channel import Channel
from kfs.read.workers.job import Buffered, is_buffered, place_of
from kfs.read.workers.kept_log import Logged
from kfs.read.workers.shared import ParentMemory, Part, WorkerMemory

#: The alignment that Arrow recommends for buffers, in bytes.
_ALIGNMENT: Final = 64
#: Buffers with fewer bytes in total are sent inline: a file and a mapping would cost more.
_INLINE_BYTES: Final = 64 * 1024


class Extents(NamedTuple):
    """An item without its buffers, and each buffer's position and size in the sent bytes, or None for no buffer."""

    item: Buffered
    places: tuple[tuple[int, int] | None, ...]


class Portion(NamedTuple):
    """Items in order, with a weight of ``weight`` bytes, and the log messages up to the last of them.

    The ``size`` bytes of their buffers are in ``data`` or, if that is None, at the beginning of a ``region``. The
    ``dropped`` regions won't be sent again.
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
    """Send items; their memory can be used again afterwards."""
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
    """Return the items of a portion; buffers are views of its bytes, and the caller may close the descriptor."""
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
    """The items with their places, the parts to copy to their places, and the total size in bytes."""

    items: tuple[object, ...]
    parts: list[Part]
    size: int


def _layout(items: Sequence[object], used: int | None = None) -> _Layout:
    """Return the layout of all buffers, one after another from the beginning, or after the ``used`` bytes of an arena.

    With an arena, buffers that lie in it stay there; without one, all buffers are copied.
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
