"""``kfs cat`` and ``kfs.open`` over the broker's log directory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from tests.soak.checks import Checker, Sight
from tests.soak.journal import Part
from tests.soak.mounts import limited
from tests.system.kafka_mount import KFS

_SECONDS: Final = 90
_CAT: Final = "kfs cat"
_API: Final = "kfs.open"


class Command:
    """What reads the log directory without a mount; ``running`` is where it enters its process."""

    def __init__(
        self, data: Path, checker: Checker, rng: random.Random, running: dict[str, int], descriptors: int
    ) -> None:
        self._data = data
        self._checker = checker
        self._rng = rng
        self._running = running
        self._descriptors = descriptors


class Cat(Command):
    """Runs ``kfs cat`` of a partition, one after another."""

    def run(self) -> None:
        """Print the records of a partition, and check them."""
        part = self._checker.journal.pick(self._rng)
        sight = _sight(_CAT, "kfs cat", part, self._rng.randrange(3) == 0)
        self._checker.findings.read("kfs cat", _CAT)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            level = "read_committed" if sight.committed else "read_uncommitted"
            options = ["--jobs", str(self._rng.choice((1, 2))), "--isolation", level]
            command = [KFS, "cat", *options, str(self._data), sight.path]
            limit = limited(self._descriptors)
            with subprocess.Popen(command, stdout=output, stderr=errors, preexec_fn=limit) as process:
                self._running[_CAT] = process.pid
                try:
                    process.wait(_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    self._checker.findings.add("no end", _CAT, **sight.place)
                    return
                finally:
                    del self._running[_CAT]
            output.seek(0)
            errors.seek(0)
            self._judge(sight, process.returncode, output.read(), errors.read().decode())

    def _judge(self, sight: Sight, code: int, output: bytes, errors: str) -> None:
        for line in output.splitlines():
            self._checker.line(sight, line)
        if code or errors:
            if self._checker.lasting_part(sight) is None:
                self._checker.findings.note("complains of a topic that is gone", _CAT)
                return
            self._checker.findings.add("complains", _CAT, **sight.place, code=code, errors=errors[:600])
        else:
            self._checker.complete(sight, None, None)


class Api(Command):
    """A process with ``kfs.open`` that stays open for the whole run and does what is asked of it."""

    def start(self) -> None:
        """Start the process."""
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.api_process", str(self._data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=limited(self._descriptors),
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        self._running[_API] = self._process.pid

    def run(self) -> None:
        """Read or scan a partition, and check the records."""
        part = self._checker.journal.pick(self._rng)
        how = self._rng.choice(("read", "read", "scan"))
        sight = _sight(_API, f"kfs.open {how}", part, self._rng.randrange(3) == 0)
        self._checker.findings.read(sight.kind, _API)
        level = "read_committed" if sight.committed else "read_uncommitted"
        question = {"how": how, "topic": part.topic, "partition": part.partition, "isolation": level}
        rows, error = self._ask(question)
        for row in rows:
            self._row(sight, row)
        if error is None:
            self._checker.complete(sight, None, None)
        elif self._checker.lasting_part(sight) is None:
            self._checker.findings.note("complains of a topic that is gone", _API)
        else:
            self._checker.findings.add("complains", _API, **sight.place, errors=error[:600])

    def _row(self, sight: Sight, row: list[Any]) -> None:
        offset, timestamp, key, value = row
        if sight.offsets and offset <= sight.offsets[-1]:
            self._checker.findings.add("offsets go back", _API, **sight.place, offset=offset)
        sight.offsets.append(offset)
        self._checker.record(sight, offset, _bytes(key), _bytes(value), timestamp)

    def _ask(self, question: dict[str, Any]) -> tuple[list[list[Any]], str | None]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(_SECONDS, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not answer:
            raise RuntimeError(f"the process of kfs.open ended: {self._process.wait()}, {question}")
        found = json.loads(answer)
        return found["rows"], found["error"]

    def stop(self) -> None:
        """End the process."""
        self._running.pop(_API, None)
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _sight(where: str, kind: str, part: Part, committed: bool) -> Sight:
    return Sight(where, kind, f"{part.topic}/{part.partition}", part.topic, part.partition, committed)
