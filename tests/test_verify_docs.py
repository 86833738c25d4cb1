"""docs/VERIFY.md names every kind of finding, with the severity that it has."""

from __future__ import annotations

import re
from pathlib import Path

from kfs.verify.finding import FindingKind

PAGE = Path(__file__).parent.parent / "docs" / "VERIFY.md"


def test_the_page_names_every_kind_once_with_its_severity() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len({kind for kind, _ in rows})
    assert dict(rows) == {kind.value: kind.severity.value for kind in FindingKind}
