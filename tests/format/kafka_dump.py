"""What Kafka's own dump tool printed for the files of a corpus (``dump*/``), to compare kfs with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FIELD = re.compile(r"(\w+): (\S+)")
_DUMPED_FILE = re.compile(r"Dumping (data/\S+)")


@dataclass(frozen=True, slots=True)
class Dump:
    """A file, and the fields of every line that Kafka printed for it, or None where it found the file corrupt."""

    file: Path
    lines: list[dict[str, str]] | None


def dumps(corpus: Path, suffix: str) -> Iterator[Dump]:
    """Yield what Kafka printed for the files of a corpus whose names end in ``suffix``."""
    for text in sorted(corpus.rglob(f"dump*/**/*{suffix}.txt")):
        first, *lines = text.read_text().splitlines()
        dumped = _DUMPED_FILE.fullmatch(first)
        assert dumped, text
        root = next(parent.parent for parent in text.parents if parent.name.startswith("dump"))
        corrupt = any("Exception" in line or "failed" in line for line in lines)
        yield Dump(root / dumped[1], None if corrupt else [dict(_FIELD.findall(line)) for line in lines])
