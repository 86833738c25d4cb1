"""A ZooKeeper server of its own: the jars that it needs at least, from Maven Central."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.maven_jars import fetched_jars
from tests.ports import free_ports
from tests.requirements import need_jars, need_java
from tests.servers.kept_classes import QUICK_START
from tests.servers.server import Server

#: ZooKeeper 3.9.4; without TLS and its admin server it needs no more than that.
JARS: Final = Path(__file__).with_name("zookeeper.sha256")
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"


class ZooKeeperServer(Server):
    """A server that is an ensemble by itself."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, free_ports(1)[0])
        self._java = need_java()
        self._jars = need_jars("ZooKeeper", lambda: fetched_jars(JARS))
        settings = {
            "dataDir": directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "tickTime": 500,
        }
        lines = (f"{name}={value}\n" for name, value in settings.items())
        (directory / "zoo.cfg").write_text("".join(lines))

    @property
    def url(self) -> str:
        """Its URL."""
        return f"zookeeper://127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        """See :attr:`Server.command`."""
        options = ["-Xmx128m", *QUICK_START]
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        # It waits for no disk: it is killed, not cut from power, and the kernel has what it wrote.
        options.append("-Dzookeeper.forceSync=no")
        return [self._java, *options, "-cp", f"{self._jars}/*", _MAIN, str(self.directory / "zoo.cfg")]

    @property
    def greeting(self) -> tuple[bytes, bytes]:
        """See :attr:`Server.greeting`."""
        return b"ruok", b"imok"
