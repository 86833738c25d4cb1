"""``kfs ls``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import click

from kfs.cli.messages import shown
from kfs.cli.options import also_option
from kfs.cli.source import SourceOptions, source_options
from kfs.cli.stat import long_line
from kfs.errors import CorruptData, NotFound
from kfs.tree.node import Directory, Node, Symlink, settled


@click.command()
@click.argument("log_dir", type=click.Path(readable=False))
@click.argument("path", default="/")
@also_option
@source_options
@click.option(
    "-l",
    "--long",
    "is_long",
    is_flag=True,
    help="Also show mode, owner, size and time; a size may take a pass over the segment.",
)
def ls(log_dir: str, path: str, also: tuple[str, ...], source: SourceOptions, is_long: bool) -> None:
    """List PATH of the tree over LOG_DIR, without mounting it."""
    with source.opened(log_dir, *also) as tree:
        for line in _lines(path, tree.resolve(path), is_long):
            sys.stdout.write(line + "\n")


def _lines(path: str, node: Node, is_long: bool) -> Iterator[str]:
    if not isinstance(node, Directory):
        yield long_line(shown(path), node) if is_long else shown(path)
        return
    damage: CorruptData | None = None
    for entry in node.entries(with_attributes=is_long):
        name = shown(entry.name)
        if not is_long:
            yield name
            continue
        try:
            yield settled(partial(_long, node, entry.name))
        except NotFound:  # gone since it was listed
            continue
        except CorruptData as error:  # already reported; list the others anyway
            damage = error
            yield f"?????????? ? ? {'?':>12} {'?':<24} {name}"
    if damage is not None:
        raise damage


def _long(directory: Directory, name: str) -> str:
    child = directory.lookup(name)
    text = shown(name)
    return long_line(f"{text} -> {child.target()}" if isinstance(child, Symlink) else text, child)
