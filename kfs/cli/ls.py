"""``kfs ls``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from kfs.cli.source import SourceOptions, source_options
from kfs.cli.stat import long_line, shown
from kfs.tree.node import Directory, Node, Symlink


@click.command()
@click.argument("log_dir", type=click.Path())
@click.argument("path", default="/")
@source_options
@click.option(
    "-l", "--long", "is_long", is_flag=True, help="Mode, owner, size and time as well; sizes may cost a pass."
)
def ls(log_dir: str, path: str, source: SourceOptions, is_long: bool) -> None:
    """List PATH of the tree over LOG_DIR, without mounting it."""
    tree = source.open([log_dir])
    try:
        for line in _lines(path, tree.resolve(path), is_long):
            sys.stdout.write(line + "\n")
    finally:
        tree.close()


def _lines(path: str, node: Node, is_long: bool) -> Iterator[str]:
    if not isinstance(node, Directory):
        yield long_line(path, node) if is_long else shown(path)
        return
    for entry in node.entries(with_attributes=is_long):
        child = node.lookup(entry.name) if is_long else None
        name = shown(entry.name)
        if child is None:
            yield name
        else:
            yield long_line(f"{name} -> {child.target()}" if isinstance(child, Symlink) else name, child)
