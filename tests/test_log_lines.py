"""Log lines: for people, for journald, as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from kfs.log_lines import LogFormat, formatter_of, is_journal


def record(
    level: int, message: str, *, failed: bool = False, fields: dict[str, object] | None = None
) -> logging.LogRecord:
    information = None
    if failed:
        try:
            raise ZeroDivisionError("a\nb")
        except ZeroDivisionError:
            information = sys.exc_info()
    made = logging.LogRecord("kfs.mount", level, __file__, 1, "%s", (message,), information)
    made.created = 1_606_446_771.2056
    if fields is not None:
        made.__dict__["fields"] = fields
    return made


def test_json_has_the_fields_that_are_known() -> None:
    fields = {"topic": "t", "partition": 3, "position": 12, "reason": "torn", "message": "never this", "file": b"\xff"}
    line = formatter_of(LogFormat.JSON).format(record(logging.WARNING, "what\nhappened \x1b \udcff", fields=fields))
    assert "\n" not in line
    assert line.isascii()
    assert json.loads(line) == {
        "time": "2020-11-27T03:12:51.205Z",
        "level": "WARNING",
        "logger": "kfs.mount",
        "message": "what\nhappened \x1b \udcff",
        "topic": "t",
        "partition": 3,
        "position": 12,
        "reason": "torn",
        "file": "b'\\xff'",
    }


def test_json_has_the_traceback_on_the_same_line() -> None:
    line = formatter_of(LogFormat.JSON).format(record(logging.ERROR, "a bug", failed=True))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ZeroDivisionError: a\nb")


def test_text_has_time_and_level() -> None:
    line = formatter_of(LogFormat.TEXT).format(record(logging.INFO, "rolled"))
    assert line.endswith(" INFO kfs.mount: rolled")
    assert line.startswith("2020-11-2")


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3), (logging.CRITICAL, 2), (35, 4)],
)
def test_journald_gets_the_priority_of_each_line(level: int, priority: int) -> None:
    text = formatter_of(LogFormat.TEXT, is_journal=True).format(record(level, "first", failed=True))
    first, *others = text.split("\n")
    assert first == f"<{priority}>kfs.mount: first"
    assert len(others) > 3
    assert all(line.startswith(f"<{priority}>") for line in others)


def test_the_journal_is_known_by_its_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = os.fstat(2)
    for value, expected in (
        (f"{status.st_dev}:{status.st_ino}", True),
        (f"{status.st_dev}:{status.st_ino + 1}", False),
        (f"{status.st_dev + 1}:{status.st_ino}", False),
        ("", False),
    ):
        monkeypatch.setenv("JOURNAL_STREAM", value)
        assert is_journal() is expected
    monkeypatch.delenv("JOURNAL_STREAM")
    assert not is_journal()
