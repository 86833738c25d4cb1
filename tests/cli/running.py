"""Commands that must succeed, or must fail."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.system.kafka_mount import KFS, kfs


def printed(*arguments: str | Path) -> bytes:
    """Return what a command prints that must succeed in silence."""
    done = kfs(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def found(*arguments: str | Path) -> bytes:
    """Return what a search prints that could search everything."""
    done = kfs(*arguments)
    assert done.returncode == (0 if done.stdout else 3)
    assert re.fullmatch(rb"kfs: searched .* records? found\n", done.stderr)
    return done.stdout


def refused(*arguments: str | Path) -> str:
    """Return the reason with which a command fails that must print nothing."""
    done = kfs(*arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    return done.stderr.decode()


def leave_early(*arguments: str | Path) -> None:
    """Read the first bytes of what a command prints and go; it must end soon, and in silence."""
    with subprocess.Popen([KFS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) in (0, 1)
