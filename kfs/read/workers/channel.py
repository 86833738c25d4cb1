"""Messages between this process and one that works for it: pickled, each with a descriptor or without.

Only what kfs itself has started is at the other end.
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
    """The other end of a channel is gone; so a worker learns that it isn't needed any more."""


class Channel:
    """One end of a socket; for one thread at a time.

    Both ways an end that is gone raises :class:`OtherEndGone`.
    """

    def __init__(self, of: socket.socket) -> None:
        self._socket = of

    def fileno(self) -> int:
        """Return the descriptor, to wait for messages on; -1 when it is closed."""
        return self._socket.fileno()

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
        try:
            if descriptor is not None:
                sent = socket.send_fds(self._socket, [data], [descriptor])
            self._socket.sendall(memoryview(data)[sent:])
        except ConnectionError:
            raise OtherEndGone from None

    def receive(self) -> tuple[Any, int | None]:
        """Return an object, and the descriptor that came with it if any, for the caller to close."""
        try:
            header, descriptors, flags, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        except ConnectionError:
            raise OtherEndGone from None
        if flags & socket.MSG_CTRUNC:
            raise Shortage("no descriptor is left for what another process sends (ulimit -n)")
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
