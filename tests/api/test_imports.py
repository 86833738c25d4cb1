"""What is imported, and when: ``import kfs`` costs nothing, and nobody waits for what isn't used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import kfs
from kfs.compiled import IMPLEMENTATION_VARIABLE

#: What takes records elsewhere, for those who ask for that.
ENGINES: Final = frozenset({"duckdb", "fsspec", "numpy", "pandas", "polars", "pyarrow", "pyspark"})
#: What kfs can do without, or only some of it needs.
OPTIONAL: Final = ENGINES | {"click", "fuse", "mfusepy", "platformdirs", "rich"}


def imported_by(code: str, directory: Path) -> set[str]:
    """Return the names of the modules that a new process has imported once it has run the code."""
    program = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_kfs_imports_nothing_else(demo: Path) -> None:
    modules = imported_by("import kfs", demo)
    assert {name for name in modules if name.split(".")[0] not in sys.stdlib_module_names} == {"kfs"}


def test_reading_records_imports_nothing_that_it_can_do_without(demo: Path) -> None:
    modules = imported_by(
        """
import kfs
with kfs.open("data") as data:
    for log in data.logs():
        records = list(log)
        if records:
            assert log[records[-1].offset] == log.tail(1)[0]
            records[0].json()
""",
        demo,
    )
    assert not {name.split(".")[0] for name in modules} & OPTIONAL
    assert not {name for name in modules if name.startswith(("kfs.cli", "kfs.mount", "kfs.tree", "multiprocessing"))}


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["cat", "data", "orders"], ["cat", "--help"], ["ls", "data"]]
)
def test_commands_import_no_engine(arguments: list[str], demo: Path) -> None:
    modules = imported_by(
        f"""
import contextlib, os
from kfs.cli.main import main
with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.suppress(SystemExit):
    main({arguments!r})
""",
        demo,
    )
    assert "click" in modules
    assert not {name.split(".")[0] for name in modules} & ENGINES


@pytest.mark.parametrize("implementation", ["", "python"])
@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        (["cat", "data", "launch_info/0/offset/368776.json"], 95),
        (["cat", "data", "orders/0", "--last", "1"], 86),
        (["ls", "data"], 91),
        (["--version"], 24),
    ],
)
def test_a_short_command_imports_no_more_than_it_needs(
    arguments: list[str], most: int, implementation: str, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(IMPLEMENTATION_VARIABLE, implementation)
    modules = imported_by(
        f"""
import contextlib, os
from kfs.cli.main import main
with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.suppress(SystemExit):
    main({arguments!r})
""",
        demo,
    )
    of_kfs = {name for name in modules if name.split(".")[0] == "kfs"}
    assert "kfs.cli.main" in of_kfs
    assert len(of_kfs) <= most, sorted(of_kfs)
    rarely_needed = ("kfs.log.healing", "kfs.log.resync", "kfs.read.isolation.", "kfs.read.workers")
    assert not [name for name in of_kfs if f"{name}.".startswith(rarely_needed)]


def test_listing_the_commands_imports_none_of_them(demo: Path) -> None:
    modules = imported_by(
        """
import contextlib, os
from kfs.cli.main import main
with contextlib.redirect_stdout(open(os.devnull, "w")), contextlib.suppress(SystemExit):
    main(["--help"])
commands = {item.value for item in main.shell_complete(main.make_context("kfs", [], resilient_parsing=True), "")}
assert {"cat", "import", "verify"} <= commands, commands
""",
        demo,
    )
    assert {name for name in modules if name.startswith("kfs.")} == {
        *("kfs.cli", "kfs.cli.main", "kfs.cli.messages", "kfs.errors", "kfs.storage", "kfs.storage.descriptors")
    }


def test_a_scan_imports_pyarrow_when_it_is_read_and_no_engine_ever(demo: Path) -> None:
    making = "import kfs\nscan = kfs.open('data')['orders'].scan(jobs=1)"
    assert not {name.split(".")[0] for name in imported_by(making, demo)} & ENGINES
    reading = f"{making}\nassert sum(batch.num_rows for batch in scan) == 2100"
    imported = {name.split(".")[0] for name in imported_by(reading, demo)}
    assert imported & ENGINES <= {"pyarrow", "numpy"}  # which pyarrow imports where it is there
    assert "pyarrow" in imported


def test_a_scan_without_pyarrow_says_what_to_install(demo: Path) -> None:
    imported_by(
        """
sys.modules["pyarrow"] = None
import kfs
scan = kfs.open("data")["orders"].scan()
for use in (iter(scan).__next__, scan.to_reader, scan.to_table, scan.__arrow_c_stream__, lambda: scan.schema):
    try:
        use()
    except ModuleNotFoundError as error:
        assert 'pip install "kfs[arrow]"' in str(error)
    else:
        raise AssertionError(use)
""",
        demo,
    )


def test_every_name_is_there_and_found_by_dir() -> None:
    assert set(kfs.__all__) <= set(dir(kfs))
    for name in kfs.__all__:
        assert getattr(kfs, name) is not None
    assert not hasattr(kfs, "opne")
