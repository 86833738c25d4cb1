"""Prints tables on standard output: aligned on a terminal, elsewhere with tabs between fields, for cut and awk."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, TypeAlias

from kfs.cli.messages import shown

#: The placeholder for a missing value, as in Kafka's own tools.
NOTHING: Final = "-"
#: The cells of a row, None where there is nothing.
Row: TypeAlias = Sequence[str | int | None]
_WIDEST: Final = 100_000  # columns
#: The maximum width of a cell on a terminal: otherwise, one group name of 30,000 characters would pad every row. A
#: topic name may have 249 characters.
_WIDEST_CELL: Final = 249


def cell_text(cell: str | int | None) -> str:
    """Return the text of a cell."""
    return NOTHING if cell is None else str(cell)


def print_table(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a table, with tabs, line ends and other control characters in fields escaped.

    On a terminal, columns without entries are left out, and cells wider than 249 columns are cut. Elsewhere, each row
    is written in full as soon as it arrives.
    """
    cells = ([shown(cell_text(cell)) for cell in row] for row in rows)
    if not sys.stdout.isatty():
        sys.stdout.writelines("\t".join(row) + "\n" for row in chain([columns], cells))
        return
    # Only here: rich is large, and a pipe doesn't need it.
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
    # Print the full width and let the terminal wrap lines: folded cells can't be read or copied.
    console = Console(width=_WIDEST, highlight=False)
    console.width = max(1, Measurement.get(console, console.options, drawn).maximum)
    console.print(drawn)
