"""Commands that must succeed, or must fail."""

from __future__ import annotations

from pathlib import Path

from tests.system.kafka_mount import kfs


def printed(*arguments: str | Path) -> bytes:
    """Return what a command prints that must succeed in silence."""
    done = kfs(*arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def refused(*arguments: str | Path) -> str:
    """Return the reason with which a command fails that must print nothing."""
    done = kfs(*arguments)
    assert (done.returncode, done.stdout) == (1, b"")
    return done.stderr.decode()
