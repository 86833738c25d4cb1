"""Where exports are killed: a log, a dataset and a store, and what has to be there in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from kfs.spark.offsets import WritableStore, open_writable_store
from tests.servers.redis_server import RedisServer
from tests.servers.server import Server
from tests.servers.zookeeper_server import ZooKeeperServer
from tests.spark.export.running import GROUP, KFS, GrowingLog, RunningExport, rows_in

SERVERS: dict[str, type[RedisServer | ZooKeeperServer]] = {"redis": RedisServer, "zookeeper": ZooKeeperServer}
STORES = ("sqlite", *SERVERS)


class Place:
    """A log, a dataset, and a store on a server of its own, or in a file."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory = directory
        self.dataset = directory / "dataset"
        self.server: Server | None = None
        self.url = f"sqlite://{directory}/progress.db"
        if kind in SERVERS:
            (directory / "server").mkdir()
            server = SERVERS[kind](directory / "server").start()
            self.server, self.url = server, server.url
        self.store: WritableStore = open_writable_store(self.url, patience=60)
        self._glance: WritableStore = open_writable_store(self.url, patience=0)
        self._started: list[RunningExport] = []

    def start(self, command: Sequence[str] = KFS, descriptors: Sequence[int] = ()) -> RunningExport:
        """Start an export, by another command where that is wanted, which has these descriptors."""
        log = self.directory / f"spark-{len(self._started)}.log"
        export = RunningExport(self.directory / "data", self.dataset, self.url, self._glance, log, command, descriptors)
        self._started.append(export)
        return export

    def close(self) -> None:
        """Leave nothing running."""
        for export in self._started:
            export.kill()
        self.store.close()
        self._glance.close()
        if self.server is not None:
            self.server.stop()

    def outlive(self, kills: Iterable[object]) -> None:
        """Have a log grow while ``kills``, one after another, start an export and kill it; in the end all is there."""
        seen: Counter[tuple[int, int, bytes]] = Counter()
        with GrowingLog(self.directory / "data", self.dataset) as log:
            for number, _ in enumerate(kills):
                there = rows_in(self.dataset)
                assert seen <= there  # nothing that could be read was taken back
                assert max(there.values(), default=1) == 1
                seen = there
                if number == 1:
                    log.add(2)
            log.stop()
        export = self.start()
        export.until_exported(len(log.expected))
        assert export.finish()[0] == 0
        self.check(log)

    def check(self, log: GrowingLog) -> None:
        """Every record is there once, nothing is left over, and the positions say so."""
        assert rows_in(self.dataset) == Counter(log.expected)
        assert [path for path in (self.dataset / "_kfs" / "staging").rglob("*") if path.is_file()] == []
        progress = self.store.load(GROUP)
        ends: Counter[int] = Counter(partition for partition, _, _ in log.expected)
        assert {each.partition: offset for each, offset in progress.positions.items()} == ends
        assert (progress.batch, progress.writer) == (None, None)
