"""The charts of the benchmarks of bulk reading and of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measurement import Measurement

#: The groups that are drawn, and what stands above each.
BULK_PANELS: Final = (("validate", "Every record validated, one CPU"), ("ndjson", "To lines of JSON, one CPU"))
SPARK_PANELS: Final = (
    ("spark", "sum(length(value)) in Spark, local[2]"),
    ("spark-parquet", "All columns and headers to Parquet, in Spark, local[2]"),
)
_OWN: Final = "#1f6f8b"
_LIMIT: Final = "#b7c9ce"
_OTHERS: Final = ("#e0a458", "#c1666b", "#8d6b94", "#6b8e5a")


def draw(measurements: Sequence[Measurement], file: Path, panels: Sequence[tuple[str, str]] = BULK_PANELS) -> None:
    """Draw bars for each codec: records a second, of CPU time unless medians of rounds were measured."""
    mpl.rcParams["svg.hashsalt"] = "kfs"  # the same picture of the same numbers
    found = [(title, [each for each in measurements if each.group == group]) for group, title in panels]
    filled = [each for each in found if each[1]]
    figure = Figure(figsize=(11, 4 * len(filled)), layout="constrained")
    for (axes,), (title, of_panel) in zip(figure.subplots(len(filled), 1, squeeze=False), filled, strict=True):
        _draw_panel(axes, of_panel, title)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _draw_panel(axes: Axes, measurements: Sequence[Measurement], title: str) -> None:
    logs = list(dict.fromkeys(each.log for each in measurements))
    contenders = list(dict.fromkeys(each.contender for each in measurements))
    others = iter(_OTHERS)
    width = 0.8 / max(len(contenders), 1)
    for number, contender in enumerate(contenders):
        color = _LIMIT if contender == "limit" else _OWN if contender == "kfs" else next(others)
        found = [each for each in measurements if each.contender == contender]
        positions = [logs.index(each.log) + (number + 0.5) * width - 0.4 for each in found]
        rates = [each.amount / (each.seconds if each.rounds else each.cpu_seconds) / 1e6 for each in found]
        bars = axes.bar(positions, rates, width, label=contender, color=color)
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    axes.set_xticks(range(len(logs)), logs)
    of_cpu = "" if any(each.rounds for each in measurements) else " of CPU time"
    axes.set_ylabel(f"million records a second{of_cpu}")
    axes.set_title(title)
    axes.legend(fontsize=8, loc="upper right", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
