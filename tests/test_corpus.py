"""The corpora come out of their archives whole, and a change to one is noticed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus import CorpusStore, Manifest, compare, corpus_names, load_manifest, save_manifest, take_manifest

PREALLOCATED = 10 * 1024 * 1024


@pytest.mark.parametrize("name", corpus_names())
def test_every_corpus_holds_a_log_root_and_what_is_expected_of_it(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    assert (root / "README.txt").is_file()
    assert (root / "data").is_dir()
    assert (root / "expected.jsonl").stat().st_size > 0
    assert (root / "batches.jsonl").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("g_running", "."),
        ("g_kill9", "."),
        ("g_kill9", "recovered"),
        ("g_damage", "."),
        ("g_damage", "recovered-clean-marker"),
        ("g_damage", "recovered-unclean"),
    ],
)
def test_files_come_out_with_the_size_and_content_recorded_for_them(
    name: str, below: str, corpus: Callable[[str], Path]
) -> None:
    directory = corpus(name) / below
    recorded = {line["file"]: line for line in map(json.loads, (directory / "files.jsonl").read_text().splitlines())}
    extracted = {path: state for path, state in take_manifest(directory / "data").items() if stat.S_ISREG(state.mode)}
    for path, state in extracted.items():
        assert (state.size, state.sha256) == (recorded[path]["size"], recorded[path]["sha256"]), path
    # Where the broker's own topics were left out of an archive, its README.txt says so.
    assert {path for path in recorded if path not in extracted and not path.startswith("__")} == set()


def test_preallocated_indexes_take_no_space(corpus: Callable[[str], Path]) -> None:
    indexes = [path for path in corpus("g_running").rglob("*index") if path.stat().st_size > PREALLOCATED // 2]
    assert len(indexes) == 20
    for index in indexes:
        assert index.stat().st_blocks * 512 < 64 * 1024


def test_two_stores_over_one_directory_extract_once(tmp_path: Path) -> None:
    first = CorpusStore(tmp_path).path("e_meta")
    inode = first.stat().st_ino
    second = CorpusStore(tmp_path).path("e_meta")
    assert second == first
    assert second.stat().st_ino == inode


def test_an_extraction_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    root = CorpusStore(tmp_path).path("e_meta")
    (tmp_path / "e_meta.manifest.json").unlink()
    (root / "README.txt").unlink()
    assert (CorpusStore(tmp_path).path("e_meta") / "README.txt").is_file()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small log root to be changed."""
    root = tmp_path / "tree"
    (root / "topic-0").mkdir(parents=True)
    (root / "topic-0" / "00000000000000000000.log").write_bytes(b"some bytes")
    (root / "link").symlink_to("topic-0")
    return root


LOG = "topic-0/00000000000000000000.log"


def overwrite_in_place(root: Path) -> None:
    log = root / LOG
    times = log.stat().st_atime_ns, log.stat().st_mtime_ns
    log.write_bytes(b"other byte")
    os.utime(log, ns=times)


def append(root: Path) -> None:
    with (root / LOG).open("ab") as log:
        log.write(b"x")


def touch(root: Path) -> None:
    os.utime(root / LOG, ns=(0, 1))


def create_and_remove(root: Path) -> None:
    (root / "topic-0" / "new").touch()
    (root / "topic-0" / "new").unlink()


def repoint_link(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (overwrite_in_place, f"{LOG}: changed sha256"),
        (append, f"{LOG}: changed size, mtime_ns, sha256"),
        (touch, f"{LOG}: changed mtime_ns"),
        (lambda root: (root / LOG).chmod(0o600), f"{LOG}: changed mode"),
        (lambda root: (root / LOG).unlink(), f"{LOG}: removed"),
        (lambda root: (root / "topic-0" / "new").touch(), "topic-0/new: added"),
        (create_and_remove, "topic-0: changed mtime_ns"),
        (repoint_link, "link: changed size, mtime_ns, sha256"),
    ],
)
def test_any_change_is_noticed(change: Callable[[Path], None], expected: str, tree: Path) -> None:
    before = take_manifest(tree)
    assert compare(before, take_manifest(tree)) == []
    change(tree)
    assert expected in compare(before, take_manifest(tree))


def test_a_manifest_survives_being_saved(tree: Path, tmp_path: Path) -> None:
    manifest: Manifest = take_manifest(tree)
    save_manifest(manifest, tmp_path / "manifest.json")
    assert load_manifest(tmp_path / "manifest.json") == manifest


def test_a_store_reports_a_changed_corpus(tmp_path: Path) -> None:
    store = CorpusStore(tmp_path)
    root = store.path("e_meta")
    assert store.changes() == []
    (root / "data" / "meta.properties").write_text("broker.id=7\n")
    assert store.changes() == ["e_meta/data/meta.properties: changed size, mtime_ns, sha256"]


BAD_TEST = """
from tests.conftest import _corpora_stay_untouched, corpus, corpus_store

def test_writes_to_its_source(corpus):
    (corpus("e_meta") / "data" / "meta.properties").touch()
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_whose_tests_write_to_a_source_fails(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text(BAD_TEST)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", workers, f"--basetemp={tmp_path / 'run'}", "test_bad.py"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "source directories were changed" in run.stdout
    assert "e_meta/data/meta.properties: changed mtime_ns" in run.stdout
    assert "1 passed, 1 error in" in run.stdout
