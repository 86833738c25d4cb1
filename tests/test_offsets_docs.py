"""docs/OFFSETS.md: what it shows is what happens, and it leaves out no option, field or column."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kfs.cli.offsets import offsets
from tests.system.kafka_mount import KFS

PAGE = (Path(__file__).parent.parent / "docs" / "OFFSETS.md").read_text()
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_what_is_shown_is_what_happens(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(KFS).parent}{os.pathsep}{os.environ['PATH']}"}
    commands = 0
    for kind, content in _BLOCK.findall(PAGE):
        if kind == "python":
            subprocess.run([sys.executable, "-c", content], cwd=tmp_path, check=True)
            continue
        for command, output in _COMMAND.findall(content):
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr, done.stdout) == (0, "", output), command
            commands += 1
    assert commands == PAGE.count("\n$ ") > 5


@pytest.mark.parametrize("command", sorted(offsets.commands))
def test_every_command_is_there_with_its_options(command: str) -> None:
    assert f"`kfs offsets {command} " in PAGE
    for parameter in offsets.commands[command].params:
        for name in parameter.opts:
            if name.startswith("-"):
                assert name in PAGE
