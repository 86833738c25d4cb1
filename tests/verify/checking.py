"""Running the checks and looking at what they find."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kfs.format.decoders import BlockDecoder
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES, Storage
from kfs.verify.finding import Finding, FindingKind
from kfs.verify.job import reports_of
from kfs.verify.segment import check_segment
from kfs.verify.verification import Verification


def verified(*paths: Path, jobs: int = 1) -> list[Finding]:
    """Return everything that is found in log directories, partition directories or files."""
    verification = Verification([str(path) for path in paths], Storage())
    return list(verification.run(reports_of(verification.tasks(), jobs, DEFAULT_MAX_BATCH_BYTES)))


def verified_by(decoder: BlockDecoder, *paths: Path) -> list[Finding]:
    """Return what is found with one decoder."""
    storage = Storage(decoder=decoder)
    verification = Verification([str(path) for path in paths], storage)
    return list(verification.run(check_segment(task, storage) for task in verification.tasks()))


def complaints(findings: Iterable[Finding]) -> list[Finding]:
    """Return those that are more than information."""
    return [finding for finding in findings if finding.is_complaint]


def kinds(findings: Iterable[Finding]) -> set[FindingKind]:
    """Return of which kinds they are."""
    return {finding.kind for finding in findings}


def found_in(findings: Iterable[Finding], name: str) -> list[tuple[FindingKind, tuple[int, int] | None]]:
    """Return kind and bytes of what is found in the files of that name."""
    return [(finding.kind, finding.bytes) for finding in findings if os.path.basename(finding.file) == name]


def one(findings: Iterable[Finding], kind: FindingKind) -> Finding:
    """Return the only finding of a kind."""
    (finding,) = [finding for finding in findings if finding.kind is kind]
    return finding
