"""What is imported, and when: ``import kfs`` costs nothing, and nobody waits for what isn't used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import kfs

#: What kfs can do without, or only some of it needs.
OPTIONAL: Final = frozenset(
    "click duckdb fsspec fuse mfusepy numpy pandas platformdirs polars pyarrow pyspark rich".split()  # noqa: SIM905
)


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


def test_every_name_is_there_and_found_by_dir() -> None:
    assert set(kfs.__all__) <= set(dir(kfs))
    for name in kfs.__all__:
        assert getattr(kfs, name) is not None
    assert not hasattr(kfs, "opne")
