"""Messages between a parent and a worker: pickled objects, each with an optional descriptor.

The other end is always a process or thread that kfs itself has started.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import struct
from typing import Any, Final

from kfs.errors import Shortage

_HEADER: Final = struct.Struct("=Q")  # bytes of the message


class OtherEndGone(Exception):
    """The other end of a channel is closed; for a worker this means that it isn't needed any more."""


class Channel:
    """One end of a socket, for one thread at a time.

    Both :meth:`send` and :meth:`receive` raise :class:`OtherEndGone` if the other end is closed.
    """

    def __init__(self, of: socket.socket) -> None:
        self._socket = of

    def fileno(self) -> int:
        """Return the descriptor, to wait for messages with ``poll``; -1 if the channel is closed."""
        return self._socket.fileno()

    def has_message(self, seconds: float) -> bool:
        """Wait up to some seconds; return whether there is a message, or the other end is closed."""
        waiting = select.poll()  # select.select refuses descriptors from 1024 on
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def send(self, message: object, descriptor: int | None = None) -> None:
        """Send an object, and optionally a descriptor."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        data = _HEADER.pack(len(data)) + data
        sent = 0
        try:
            if descriptor is not None:
                sent = socket.send_fds(self._socket, [data], [descriptor])
            self._socket.sendall(memoryview(data)[sent:])
        except ConnectionError:
            raise OtherEndGone from None

    def receive(self) -> tuple[Any, int | None]:
        """Return an object, and the descriptor that came with it, if any, which the caller must close."""
        try:
            header, descriptors, flags, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        except ConnectionError:
            raise OtherEndGone from None
        if flags & socket.MSG_CTRUNC:
            raise Shortage("out of file descriptors: can't receive from another process (raise ulimit -n)")
        descriptor = descriptors[0] if descriptors else None
        try:
            header += self._read(_HEADER.size - len(header))
            data = self._read(*_HEADER.unpack(header))
            return pickle.loads(data), descriptor  # noqa: S301 - from a process of our own
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except ConnectionError:
                raise OtherEndGone from None
            if not got:
                raise OtherEndGone
            rest = rest[got:]
        return data

    def close(self) -> None:
        """Close this end."""
        with contextlib.suppress(OSError):
            self._socket.close()
