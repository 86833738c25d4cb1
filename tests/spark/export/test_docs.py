"""docs/EXPORT.md leaves out no option, neither of the command nor of the function."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kfs.cli.export import export
from kfs.spark.exporting.files import directory_of, file_name
from kfs.spark.exporting.options import FILE_FORMATS
from kfs.spark.exporting.with_spark import export_once

PAGE = (Path(__file__).parents[3] / "docs" / "EXPORT.md").read_text()


def test_every_option_is_there_and_none_that_is_not() -> None:
    table = PAGE[PAGE.index("| `kfs export LOG_DIR... DATASET`") : PAGE.index("Exit code 1 means")]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    documented = {name for cell in cells for name in re.findall(r"`(--[a-z-]+)", cell)}
    assert documented == {name for parameter in export.params for name in parameter.opts if name.startswith("--")}


def test_every_argument_of_the_function_is_there() -> None:
    names = list(inspect.signature(export_once).parameters)[3:]
    listed = PAGE[PAGE.index("It takes the same options:") : PAGE.index("## The dataset")]
    assert re.findall(r"`([a-z_]+)`", listed) == names


def test_files_are_named_as_it_says() -> None:
    assert f"{directory_of('orders', 18593)}/{file_name(0, 353, 462)}" in PAGE
    assert f"{directory_of('orders', None)}/" in PAGE


def test_every_format_is_there() -> None:
    assert all(f"`{name}`" in PAGE for name in FILE_FORMATS)
