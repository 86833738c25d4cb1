"""Tables on standard output: drawn on a terminal, elsewhere fields separated by tabs under a line of their names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click

from kfs.cli.messages import shown

#: What stands for what isn't there, as in Kafka's own tools.
NOTHING: Final = "-"
_WIDEST: Final = 100_000  # columns


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of cells under ``columns``; those that are empty in every row are left out on a terminal."""
    if not sys.stdout.isatty():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(map(shown, row)))
        return
    # Only here: it is large, and a pipe has no use for it.
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    all_rows = [[shown(cell) for cell in row] for row in rows]
    used = [at for at in range(len(columns)) if any(row[at] != NOTHING for row in all_rows)]
    drawn = Table(*(columns[at] for at in used), box=None, pad_edge=False)
    for cells in all_rows:
        drawn.add_row(*(Text(cells[at]) for at in used))
    # As wide as it is, and wrapped by the terminal: cells cut or folded could not be read, nor copied.
    console = Console(width=_WIDEST)
    console.width = Measurement.get(console, console.options, drawn).maximum
    console.print(drawn)
