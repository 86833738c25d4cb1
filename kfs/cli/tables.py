"""Tables on standard output: aligned on a terminal; elsewhere lines of fields with tabs between, for cut and awk."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from kfs.cli.messages import shown


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; nothing in a field can drive a terminal, and no field holds a tab or a line end."""
    cells = ([shown(cell) for cell in row] for row in rows)
    if not sys.stdout.isatty():
        sys.stdout.writelines("\t".join(row) + "\n" for row in (columns, *cells))
        return
    # Only here: it is large, and most have no use for it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
