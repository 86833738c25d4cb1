"""Reading small files, with a finding for one that can't be parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kfs.errors import CorruptData
from kfs.storage.open_files import FileChanged, FileReplaced
from kfs.storage.side_file import read_side_file
from kfs.storage.status import is_there, size_at
from kfs.verify.finding import FindingKind, Findings, Severity

Parsed = TypeVar("Parsed")


def parse_file(path: str, parse: Callable[[bytes], Parsed], kind: FindingKind, findings: Findings) -> Parsed | None:
    """Return a file's parsed content; None if there is no file, or, with a finding, if it can't be read or parsed."""
    try:
        return read_side_file(path, parse)
    except FileChanged as error:
        findings.add(FindingKind.READ_ERROR, path, error.reason)
        return None
    except CorruptData as error:
        end = max(error.position, size_at(path))
        findings.add(kind, path, error.reason, bytes=(error.position, end))
        return None


def severity_of(error: CorruptData, path: str) -> Severity | None:
    """Return the severity of a read error: ``INFO`` if the file was replaced or deleted, else None for the default.

    A running broker may have deleted or compacted the file meanwhile.
    """
    return Severity.INFO if isinstance(error, FileReplaced) or not is_there(path) else None
