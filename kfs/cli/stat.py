"""``kfs stat``."""

from __future__ import annotations

import json
import stat as modes

import click

from kfs.cli.options import also_option
from kfs.cli.source import SourceOptions, source_options
from kfs.render.timestamps import iso_time
from kfs.tree.node import Node, settled


@click.command()
@click.argument("log_dir", type=click.Path(readable=False))
@click.argument("path")
@also_option
@source_options
def stat(log_dir: str, path: str, also: tuple[str, ...], source: SourceOptions) -> None:
    """Show the size, times and owner of PATH of the tree over LOG_DIR, as JSON."""
    with source.opened(log_dir, *also) as tree:
        attributes = settled(lambda: tree.resolve(path).attributes())
    fields = {
        "path": path,
        "mode": modes.filemode(attributes.mode),
        "size": attributes.size,
        "mtime": iso_time(attributes.mtime_ns // 1_000_000),
        "uid": attributes.uid,
        "gid": attributes.gid,
        "inode": attributes.node_id,
    }
    click.echo(json.dumps(fields))


def long_line(name: str, node: Node) -> str:
    """Return a line as ``ls -l`` would print it."""
    attributes = node.attributes()
    time = iso_time(attributes.mtime_ns // 1_000_000) or "-"
    return f"{modes.filemode(attributes.mode)} {attributes.uid} {attributes.gid} {attributes.size:>12} {time} {name}"
