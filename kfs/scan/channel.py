"""Messages between this process and one that works for it: pickled, large ones in memory that both share.

Only processes that kfs itself has started are at the other end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kfs.log.problem import Problem
from kfs.render.arrow_gather import Buffers, Gathered
from kfs.scan.shared import Borrower, Lender

_HEADER: Final = struct.Struct("=Q")  # bytes of the message
#: What Arrow recommends for the beginning of a buffer.
_ALIGNMENT: Final = 64
_PADDING: Final = bytes(_ALIGNMENT)
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

    The rows' bytes, ``size`` of them, are ``data`` or, where that is None, at the beginning of a ``region``.
    """

    items: tuple[Extent | Problem, ...]
    size: int
    data: bytes | None
    region: int


class Channel:
    """One end of a socket; for one thread at a time.

    Both ways an end that is gone raises :class:`EOFError` or :class:`ConnectionError`.
    """

    def __init__(self, of: socket.socket) -> None:
        self._socket = of

    @property
    def socket(self) -> socket.socket:
        """The socket, to wait for."""
        return self._socket

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
        header, descriptors, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
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
    """Send what was gathered, and return how many bytes it has; what it is made of is free afterwards."""
    extents, parts, size = _laid_out(items)
    if size < _INLINE_BYTES:
        channel.send(Portion(extents, size, b"".join(parts), -1))
    else:
        with lender.filled(parts, size) as region:
            message = Portion(extents, size, None, region.number)
            channel.send(message, None if region.descriptor < 0 else region.descriptor)
    return size


def rows_of(portion: Portion, borrower: Borrower, descriptor: int | None) -> list[Gathered | Problem]:
    """Return what a portion has; the rows' buffers are views of its bytes."""
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


def _laid_out(
    items: Sequence[Gathered | Problem],
) -> tuple[tuple[Extent | Problem, ...], list[memoryview | bytes], int]:
    """Return where what lies when all is written one after the other, the parts to write, and their size."""
    extents: list[Extent | Problem] = []
    parts: list[memoryview | bytes] = []
    at = 0
    for item in items:
        if isinstance(item, Problem):
            extents.append(item)
            continue
        places: list[tuple[int, int] | None] = []
        for buffer in item.buffers:
            if buffer is None:
                places.append(None)
                continue
            places.append((at, buffer.nbytes))
            parts.append(buffer)
            at += buffer.nbytes
            missing = -at % _ALIGNMENT
            if missing:
                parts.append(_PADDING[:missing])
                at += missing
        extents.append(Extent(item.rows, tuple(places)))
    return tuple(extents), parts, at
