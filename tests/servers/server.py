"""What the servers have in common: started, asked whether they are up, stopped, killed, started again."""

from __future__ import annotations

import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self

_SECONDS_TO_START: Final = 60
_SECONDS_TO_STOP: Final = 30
_SECONDS_TO_ANSWER: Final = 2


class Server(ABC):
    """A server that keeps all it has below ``directory`` and listens on ``port`` of this machine."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @property
    @abstractmethod
    def greeting(self) -> tuple[bytes, bytes]:
        """What is sent to it, and what it answers when it is up."""

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + _SECONDS_TO_START
        while not self._answers():
            log_text = (self.directory / "log").read_text()[-4000:]
            assert self._process.poll() is None, f"the server did not start:\n{log_text}"
            assert time.monotonic() < until, f"the server is not up yet:\n{log_text}"
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        question, answer = self.greeting
        try:
            with socket.create_connection(("127.0.0.1", self.port), _SECONDS_TO_ANSWER) as connection:
                connection.sendall(question)
                return connection.recv(100).startswith(answer)
        except OSError:
            return False

    def stop(self) -> None:
        """Have it stop."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_SECONDS_TO_STOP)
            finally:
                self.kill()

    def kill(self) -> None:
        """Kill it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_SECONDS_TO_STOP)
            self._process = None
