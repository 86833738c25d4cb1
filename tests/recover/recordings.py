"""Recorded recoveries: what Kafka 4.3.1 left of a log directory that it was started on, and that directory again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kfs.broker_log.log_config import LogConfig
from kfs.recover.kafka_mode import KafkaMode

CorpusPath = Callable[[str], Path]
#: ``log.index.interval.bytes`` and ``log.index.size.max.bytes`` of every recording's server.properties.
CONFIG = LogConfig(index_interval_bytes=400, segment_index_bytes=4096)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recovery: ``left`` is the directory of what the broker left, within the corpus."""

    corpus: str
    left: str
    had_clean_shutdown: bool = False

    def result(self, corpus: CorpusPath) -> Path:
        """Return the log directory that the broker left."""
        return corpus(self.corpus) / self.left / "data"

    def fatal(self, corpus: CorpusPath) -> set[str]:
        """Return the partitions on which the broker would not start; they were made whole before the recording."""
        names = (path.stem for path in (corpus(self.corpus) / "fatal").glob(f"{self.left}-broken-*"))
        return {match[0] for match in map(re.compile(r"broken-\d+").search, names) if match}

    def source(self, corpus: CorpusPath, root: Path, *, whole: bool = True) -> Path:
        """Copy the log directory that the broker was started on; ``whole`` replaces what kept it from starting."""
        source = root / "source"
        before = corpus(self.corpus) / "before"
        shutil.copytree(corpus(self.corpus) / "data", source)
        if self.had_clean_shutdown:
            for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
                shutil.copy2(before / name, source / name)
        for name in self.fatal(corpus) if whole else ():
            shutil.rmtree(source / name)
            shutil.copytree(before / name, source / name)
        return source

    def mode(self, corpus: CorpusPath) -> KafkaMode:
        """Return the broker's configuration and the time, in milliseconds, of the first line of its log (in UTC)."""
        log = (corpus(self.corpus) / self.left / "server-log.txt").read_text()
        started = datetime.strptime(log[1:24], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
        return KafkaMode(config=CONFIG, clock=lambda: int(started.timestamp() * 1000))


UNCLEAN = Recording("g_damage", "recovered-unclean")
CLEAN_MARKER = Recording("g_damage", "recovered-clean-marker", had_clean_shutdown=True)
KILLED = Recording("g_kill9", "recovered")
RECORDINGS = {"unclean": UNCLEAN, "clean-marker": CLEAN_MARKER, "kill9": KILLED}
