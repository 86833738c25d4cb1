"""docs/KAFKA_TOOLS.md: each command of kfs that it names can be called so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kfs.cli.main import main

PAGE = (Path(__file__).parent.parent / "docs" / "KAFKA_TOOLS.md").read_text()
ROWS = re.findall(r"^\| `k.*? \| (.*) \|$", PAGE, re.MULTILINE)
COMMANDS = [command for row in ROWS for command in re.findall(r"`(kfs .*?)`", row)]


def test_every_row_names_a_command() -> None:
    assert len(ROWS) == PAGE.count("\n| `k") > 30
    assert all("`kfs " in row for row in ROWS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_called_so(command: str) -> None:
    _, *words = shlex.split(command.replace("\\|", "|").partition(" | ")[0])
    found: click.Command = main
    while isinstance(found, click.Group):
        name, *words = words
        chosen = found.get_command(click.Context(found), name)
        assert chosen is not None, name
        found = chosen
    found.make_context(found.name, words)
