"""``kfs cat``."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Iterator
from typing import Final

import click

from kfs.cli.source import SourceOptions, source_options
from kfs.errors import CorruptData, IsADirectory, NotFound
from kfs.tree.node import Directory, File, Node, Symlink, Tree

_CHUNK: Final = 1024 * 1024
_PAGE: Final = 4096
_MOST_LINKS: Final = 8


@click.command()
@click.argument("log_dir", type=click.Path(readable=False))
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@source_options
def cat(log_dir: str, paths: tuple[str, ...], source: SourceOptions) -> None:
    """Print files of the tree over LOG_DIR, without mounting it.

    \b
      kfs cat /var/lib/kafka/data launch_info/0/offset/368776.json
      kfs cat /var/lib/kafka/data launch_info/0/records.jsonl | jq .value
    """
    with source.opened(log_dir) as tree:
        try:
            for path in paths:
                _print(_followed(tree, path), path)
        except BrokenPipeError:
            _leave_quietly()


def _followed(tree: Tree, path: str) -> Node:
    """Return the node at ``path``, symlinks at its end followed."""
    for _ in range(_MOST_LINKS):
        node = tree.resolve(path)
        if not isinstance(node, Symlink):
            return node
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), node.target()))
    raise NotFound(f"{path}: too many links")


def _print(node: Node, path: str) -> None:
    if isinstance(node, Directory):
        raise IsADirectory(f"{path} is a directory")
    assert isinstance(node, File)
    try:
        for data in _chunks(node):
            sys.stdout.buffer.write(data)
    finally:
        sys.stdout.buffer.flush()


def _chunks(file: File) -> Iterator[bytes]:
    """Yield the bytes of a file; of a damaged one all that come before the page that can't be read, as on a mount."""
    position, size, most = 0, file.attributes().size, _CHUNK
    while position < size:
        try:
            data = file.read(position, min(most, size - position))
        except CorruptData:
            if most == _PAGE:
                raise
            most = _PAGE
            continue
        if not data:
            return
        yield data
        position += len(data)


def _leave_quietly() -> None:
    """Whoever read us has had enough: nothing more to say, not even when Python flushes at exit."""
    sys.stdout = None
