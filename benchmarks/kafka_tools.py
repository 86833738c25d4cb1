"""Kafka's own readers: the jars from Maven Central, ``DumpLogSegments``, and a loop over ``FileRecords``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from benchmarks.kafka_jars import kafka_jars
from benchmarks.rounds import Sample, timed_process

_SOURCES: Final = Path(__file__).with_name("java")
_LOOP: Final = "ReadRecords"
_DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"


class KafkaTools:
    """Kafka's classes, ready to run."""

    def __init__(self, cache: Path) -> None:
        """Fetch the jars into ``cache`` unless they are there, and compile what is written in Java here."""
        self._classes = cache / "classes"
        self._jars = kafka_jars(cache)
        sources = map(str, _SOURCES.glob("*.java"))
        command = ["javac", "-cp", self._class_path, "-d", str(self._classes), *sources]
        subprocess.run(command, check=True)

    @staticmethod
    def are_at_hand() -> bool:
        """Whether there is a JDK."""
        return all(shutil.which(name) is not None for name in ("java", "javac"))

    @property
    def _class_path(self) -> str:
        return os.pathsep.join([str(self._classes), f"{self._jars}/*"])

    def command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that runs a class as Kafka's scripts do."""
        logging = f"-Dlog4j2.configurationFile={_SOURCES / 'log4j2.properties'}"
        return ["java", "-Xmx512m", logging, "-cp", self._class_path, main_class, *arguments]

    def dump_log(self, segments: Sequence[Path], records: int, option: str = "--print-data-log") -> Sample:
        """Have ``kafka-dump-log`` print every record, or with another option look at it, as a process of its own.

        It is given ``.log`` files only: an index that it doesn't like, it changes.
        """
        files = ",".join(map(str, segments))
        return timed_process(self.command(_DUMP, option, "--files", files), records)

    def dump_index(self, index: Path, entries: int) -> Sample:
        """Have ``kafka-dump-log`` print an index, which had better be a copy, with its log and indexes beside it."""
        return timed_process(self.command(_DUMP, "--files", str(index)), entries)


class JavaLoop:
    """A process that validates every record of segments, again and again, and so is warm after the first times."""

    def __init__(self, tools: KafkaTools) -> None:
        self._process = subprocess.Popen(
            tools.command(_LOOP), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, segments: Sequence[Path]) -> Sample:
        """Validate once; raise :class:`RuntimeError` where Java failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("".join(f"{segment}\n" for segment in segments) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        if len(answer) != 3:
            raise RuntimeError(f"the Java loop ended with status {self._process.wait()}")
        nanoseconds, cpu_nanoseconds, records = map(int, answer)
        return Sample(records, nanoseconds / 1e9, cpu_nanoseconds / 1e9)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
