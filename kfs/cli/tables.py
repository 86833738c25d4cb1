"""Tables on standard output: aligned on a terminal; elsewhere lines of fields with tabs between, for cut and awk."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from kfs.cli.messages import shown

#: What stands for what isn't there, as in Kafka's own tools.
NOTHING: Final = "-"
_WIDEST: Final = 100_000  # columns
#: What has more columns on a terminal is cut: one group of 30,000 characters would pad every row. A topic may have 249.
_WIDEST_CELL: Final = 249


def cell_text(cell: str | int | None) -> str:
    """Return a cell as it is printed."""
    return NOTHING if cell is None else str(cell)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | int | None]]) -> None:
    """Print a table; nothing in a field can drive a terminal, and no field holds a tab or a line end.

    On a terminal columns without any entry are left out, and cells of more than 249 columns cut; elsewhere each row is
    written as it comes, and whole.
    """
    cells = ([shown(cell_text(cell)) for cell in row] for row in rows)
    if not sys.stdout.isatty():
        sys.stdout.writelines("\t".join(row) + "\n" for row in chain([columns], cells))
        return
    # Only here: it is large, and a pipe has no use for it.
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    all_rows = list(cells)
    used = [at for at in range(len(columns)) if not all_rows or any(row[at] != NOTHING for row in all_rows)]
    drawn = Table(*(columns[at] for at in used), box=None, pad_edge=False)
    for row in all_rows:
        texts = [Text(row[at]) for at in used]
        for text in texts:
            text.truncate(_WIDEST_CELL, overflow="ellipsis")
        drawn.add_row(*texts)
    # As wide as it is, and wrapped by the terminal: cells folded could not be read, nor copied.
    console = Console(width=_WIDEST, highlight=False)
    console.width = max(1, Measurement.get(console, console.options, drawn).maximum)
    console.print(drawn)
