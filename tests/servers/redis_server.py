"""A Redis server (``redis-server`` of the machine) that has on the disk what it acknowledged."""

from __future__ import annotations

from pathlib import Path

from tests.ports import free_ports
from tests.requirements import need_redis
from tests.servers.server import Server


class RedisServer(Server):
    """A Redis server; ``settings`` go before those it would have."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, free_ports(1)[0])
        self._program = need_redis()
        self._settings = {"appendonly": "yes", "appendfsync": "always", "save": ""} | settings

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def command(self) -> list[str]:
        """See :attr:`Server.command`."""
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        for name, value in self._settings.items():
            # Some take several words; the empty value is one, too.
            own += [f"--{name}", *(value.split() or [""])]
        return [self._program, *own]

    @property
    def greeting(self) -> tuple[bytes, bytes]:
        """See :attr:`Server.greeting`; one that wants a password first is up, too."""
        return b"PING\r\n", b"-NOAUTH" if "requirepass" in self._settings else b"+PONG"
