"""docs/DATA_ENGINEERS.md: the errors, options and files that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import kfs.errors
from kfs.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "DATA_ENGINEERS.md").read_text()

#: An error in the table of what goes wrong, as it is shown: its class, and what it says.
ERRORS = re.findall(r"`([A-Z]\w+): ([^`]*)`", PAGE.split("## What goes wrong")[1])


def test_errors_are_those_of_kfs() -> None:
    ours = [name for name, _ in ERRORS if name not in ("SocketException", "ModuleNotFoundError")]
    assert len(ours) >= 8
    for name in ours:
        assert issubclass(getattr(kfs.errors, name), kfs.errors.KfsError)


def test_what_they_say_is_what_is_raised() -> None:
    source = "".join(path.read_text() for path in Path(kfs.errors.__file__).parent.rglob("*.py"))
    source = re.sub(r'"\n\s*f?"', "", source)  # a sentence may go over lines
    for name, sentence in ERRORS:
        if hasattr(kfs.errors, name):
            for words in re.split(r"\.\.\.|\bFILE\b|\bHOST\b|\bN\b|'x'", sentence):
                assert words.strip(" :,();") in source, words


@pytest.mark.parametrize("command", ["export", "mount", "offsets copy", "cat"])
def test_options_are_those_of_the_commands(command: str) -> None:
    named = set(re.findall(rf"`kfs {command}\b[^`]*?(--[a-z-]+)", PAGE))
    if command == "export":
        named |= set(re.findall(r"`(--(?:on-damage|accept|isolation|follow|store)[a-z-]*)", PAGE))
    shown = CliRunner().invoke(main, [*command.split(), "--help"]).output
    assert command == "offsets copy" or named
    for option in named:
        assert option in shown


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", PAGE)
    assert len(links) > 8
    for path, heading in links:
        text = (DOCS / path).read_text()
        headings = {re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-") for line in text.splitlines()}
        assert not heading or heading in headings
