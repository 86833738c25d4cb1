"""Messages between this process and one that works for it: pickled, large ones in memory that both share.

Only processes that kfs itself has started are at the other end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kfs.errors import Shortage
from kfs.log.problem import Problem
from kfs.render.arrow_gather import Buffers, Gathered, place_of
from kfs.scan.shared import Borrower, Lender, Part

_HEADER: Final = struct.Struct("=Q")  # bytes of the message
#: What Arrow recommends for the beginning of a buffer.
_ALIGNMENT: Final = 64
#: Less than that is sent as it is: a file and a mapping for it would cost more.
_INLINE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows whose buffers lie somewhere in the bytes that are sent: each from a position on, so many bytes, or None."""

    rows: int
    buffers: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows and problems in their order.

    The rows' bytes, ``size`` of them, are ``data`` or, where that is None, at the beginning of a ``region``. Regions
    that are ``dropped`` won't be sent again.
    """

    items: tuple[Extent | Problem, ...]
    size: int
    data: bytes | None
    region: int
    dropped: tuple[int, ...]


class Channel:
    """One end of a socket; for one thread at a time.

    Both ways an end that is gone raises :class:`EOFError` or :class:`ConnectionError`.
    """

    def __init__(self, of: socket.socket) -> None:
        self._socket = of

    def has_message(self, seconds: float) -> bool:
        """Whether something can be received, or the other end is gone, within some seconds; of any descriptor."""
        waiting = select.poll()  # select.select takes none from 1024 on
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def send(self, message: object, descriptor: int | None = None) -> None:
        """Send an object, with a descriptor or without."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        data = _HEADER.pack(len(data)) + data
        sent = 0
        if descriptor is not None:
            sent = socket.send_fds(self._socket, [data], [descriptor])
        self._socket.sendall(memoryview(data)[sent:])

    def receive(self) -> tuple[Any, int | None]:
        """Return an object, and the descriptor that came with it if any, for the caller to close."""
        header, descriptors, flags, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        if flags & socket.MSG_CTRUNC:
            raise Shortage("no descriptor is left for what a worker process sends (ulimit -n)")
        descriptor = descriptors[0] if descriptors else None
        try:
            header += self._read(_HEADER.size - len(header))
            data = self._read(*_HEADER.unpack(header))
            return pickle.loads(data), descriptor  # noqa: S301 - from a process of our own
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            got = self._socket.recv_into(rest)
            if not got:
                raise EOFError
            rest = rest[got:]
        return bytes(data)

    def close(self) -> None:
        """Close this end."""
        with contextlib.suppress(OSError):
            self._socket.close()


def send_portion(channel: Channel, lender: Lender, items: Sequence[Gathered | Problem]) -> int:
    """Send what was gathered, and return how many bytes that takes; what it is made of is free afterwards."""
    layout = _layout(items)
    if layout.size < _INLINE_BYTES:
        data = bytearray(layout.size)
        for at, part in layout.parts:
            data[at : at + part.nbytes] = part
        channel.send(Portion(layout.extents, layout.size, bytes(data), -1, lender.take_dropped()))
    else:
        is_in_room = False
        if lender.room is not None:
            whole = _layout(items, lender.room.used)
            is_in_room = lender.holds(whole.size)
            layout = whole if is_in_room else layout
        with lender.filled(layout.parts, layout.size, in_room=is_in_room) as region:
            message = Portion(layout.extents, layout.size, None, region.number, lender.take_dropped())
            channel.send(message, None if region.is_known else region.descriptor)
    lender.begin()
    return layout.size


def rows_of(portion: Portion, borrower: Borrower, descriptor: int | None) -> list[Gathered | Problem]:
    """Return what a portion has; the rows' buffers are views of its bytes."""
    borrower.dropped(portion.dropped)
    if portion.data is None:
        whole = borrower.borrowed(portion.region, portion.size, descriptor)
    else:
        whole = memoryview(portion.data)
    found: list[Gathered | Problem] = []
    for item in portion.items:
        if isinstance(item, Problem):
            found.append(item)
        else:
            buffers: Buffers = [None if at is None else whole[at[0] : at[0] + at[1]] for at in item.buffers]
            found.append(Gathered(item.rows, buffers))
    return found


class _Layout(NamedTuple):
    """Where in how many bytes everything lies, and what has to be copied there."""

    extents: tuple[Extent | Problem, ...]
    parts: list[Part]
    size: int


def _layout(items: Sequence[Gathered | Problem], used: int | None = None) -> _Layout:
    """Return where all lies that has to be copied: one behind the other, from the beginning or behind a ``used`` room.

    With a room, what lies there stays there.
    """
    extents: list[Extent | Problem] = []
    parts: list[Part] = []
    end = used or 0
    for item in items:
        if isinstance(item, Problem):
            extents.append(item)
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
        extents.append(Extent(item.rows, tuple(places)))
    return _Layout(tuple(extents), parts, end)
