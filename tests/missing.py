"""What was not tested, for the end of a run; and nothing may be where everything is there.

A plugin of pytest. With ``KFS_REQUIRE_ALL=1`` in the environment each test that would be skipped fails.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from typing import Final, TypeVar

import pytest
from _pytest.terminal import TerminalReporter

REQUIRE_ALL: Final = "KFS_REQUIRE_ALL"

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what is skipped where everything is required."""
    return _required((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a module whose tests aren't even collected."""
    return _required((yield))


def _required(report: _Report) -> _Report:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get(REQUIRE_ALL) == "1":
        report.outcome = "failed"
        report.longrepr = f"{REQUIRE_ALL} is set, but this is not tested: {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name each reason for which something was not tested, once."""
    tests: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", ()):
        (modules if isinstance(report, pytest.CollectReport) else tests)[_reason(report)] += 1
    for reason in sorted({*tests, *modules}):
        counts = [_count(tests[reason], "test"), _count(modules[reason], "whole module")]
        terminalreporter.write_line(f"not tested: {reason}: {' and '.join(filter(None, counts))}", yellow=True)


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'' if number == 1 else 's'}" if number else ""


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):  # the file, the line, and what pytest makes of the reason
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
