"""A connection that breaks at the worst moment: between a request and its answer."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from enum import Enum
from typing import Final, Self

_CHUNK: Final = 1 << 20


class Cut(Enum):
    """What becomes of the request that is waited for."""

    REQUEST = "the server never gets it"
    ANSWER = "the server gets it, and its answer is lost"


class Proxy:
    """Listens on ``port`` and passes everything on to a server, but cuts the connection once when told to."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._marker: bytes | None = None
        self._cut = Cut.REQUEST
        #: How often it was cut.
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, marker: bytes, cut: Cut) -> None:
        """Cut the connection on which a request comes that has ``marker`` in it, once."""
        self._marker, self._cut = marker, cut

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            lost = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, lost), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, lost), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        try:
            while data := client.recv(_CHUNK):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    self.cuts += 1
                    if self._cut is Cut.REQUEST:
                        break
                    lost.set()
                    server.sendall(data)
                    return  # it is cut when the server has answered, not before: it may be slow to get it
                server.sendall(data)
        except OSError:
            pass
        _close(client, server)

    @staticmethod
    def _answers(client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        try:
            while (data := server.recv(_CHUNK)) and not lost.is_set():
                client.sendall(data)
        except OSError:
            pass
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
