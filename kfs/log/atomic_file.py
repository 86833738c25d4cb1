"""Replacing a small file as a whole, so that whoever looks sees the old or the new one (``CheckpointFile.write``)."""

from __future__ import annotations

import os


def write_atomically(path: str, content: bytes) -> None:
    """Write ``path``.tmp, bring it to the disk, give it its name, and bring that to the disk too."""
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Bring a directory's names to the disk."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
