"""Reading the small files: what can't be parsed is a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kfs.errors import CorruptData
from kfs.storage.open_files import FileChanged
from kfs.storage.side_file import read_side_file
from kfs.storage.status import size_at
from kfs.verify.finding import FindingKind, Findings

Parsed = TypeVar("Parsed")


def parse_file(path: str, parse: Callable[[bytes], Parsed], kind: FindingKind, findings: Findings) -> Parsed | None:
    """Return the content of a file; None where there is none, or none that can be read or parsed, which is said."""
    try:
        return read_side_file(path, parse)
    except FileChanged as error:
        findings.add(FindingKind.READ_ERROR, path, error.reason)
        return None
    except CorruptData as error:
        end = max(error.position, size_at(path))
        findings.add(kind, path, error.reason, bytes=(error.position, end))
        return None
