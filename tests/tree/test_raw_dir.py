"""``raw/``: Kafka's own files, byte for byte, and nothing that a link leads to."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import CorruptData, NotFound
from kfs.storage.open_files import FileChanged
from kfs.tree.raw_dir import RawDirectory, RawFile
from tests.corpus import corpus_names
from tests.logs import content_of, dense, directory_at, file_at, joined, log_name, names, open_tree, write_partition


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    return tmp_path


@pytest.mark.parametrize("name", corpus_names())
def test_every_file_of_a_corpus_is_there_byte_for_byte(name: str, corpus: Callable[[str], Path]) -> None:
    data = corpus(name) / "data"
    tree = open_tree(data)
    for topic in names(tree.root):
        for partition in names(directory_at(tree, topic)):
            path = f"{topic}/{partition}/raw"
            raw = tree.resolve(path)
            assert isinstance(raw, RawDirectory)
            source = Path(raw.partition.log.directory.path)
            assert names(directory_at(tree, path)) == sorted(one.name for one in source.iterdir() if one.is_file())
            for file in names(directory_at(tree, path)):
                expected = source / file
                attributes = tree.resolve(f"{path}/{file}").attributes()
                assert attributes.size == expected.stat().st_size
                assert attributes.mtime_ns == expected.stat().st_mtime_ns
                if attributes.size < 1 << 20:  # not all of the preallocated indexes
                    assert content_of(tree, f"{path}/{file}") == expected.read_bytes()


def test_links_directories_and_pipes_are_not_shown(root: Path) -> None:
    secret = root / "secret"
    secret.write_text("secret")
    directory = root / "t-0"
    (directory / "link.log").symlink_to(secret)
    (directory / "dangling").symlink_to("nowhere")
    (directory / "loop").symlink_to("loop")
    (directory / "below").mkdir()
    (directory / "below" / "file").write_text("x")
    os.mkfifo(directory / "pipe")
    tree = open_tree(root)
    assert names(directory_at(tree, "t/0/raw")) == [log_name(0, suffix) for suffix in (".index", ".log", ".timeindex")]
    for name in ("link.log", "dangling", "loop", "below", "below/file", "pipe", "..", ".", "../../secret", ""):
        with pytest.raises(NotFound):
            directory_at(tree, "t/0/raw").lookup(name)


def test_a_file_that_becomes_a_link_is_not_followed(root: Path) -> None:
    tree = open_tree(root)
    file = file_at(tree, f"t/0/raw/{log_name(0)}")
    whole = file.read(0, 1 << 20)
    assert len(whole) > 0
    (root / "secret").write_text("secret " * 100)
    os.replace(root / "t-0" / log_name(0), root / "moved")
    (root / "t-0" / log_name(0)).symlink_to(root / "secret")
    assert file.read(0, 1 << 20) == whole  # it is still open
    with pytest.raises((CorruptData, NotFound)):
        file_at(tree, f"t/0/raw/{log_name(0)}")


def test_a_symlink_in_the_place_of_a_log_is_not_read_through_raw(root: Path) -> None:
    (root / "elsewhere").write_bytes(joined(dense(10, 14)))
    (root / "t-0" / log_name(10)).symlink_to(root / "elsewhere")
    tree = open_tree(root)
    assert log_name(10) not in names(directory_at(tree, "t/0/raw"))


def test_any_part_can_be_read(root: Path) -> None:
    whole = (root / "t-0" / log_name(0)).read_bytes()
    file = file_at(open_tree(root), f"t/0/raw/{log_name(0)}")
    for offset in (0, 1, 50, len(whole) - 1, len(whole), len(whole) + 100):
        for size in (0, 1, 77, 1 << 40):
            assert file.read(offset, size) == whole[offset : offset + size]


def test_modes_are_those_of_the_source_without_writing(root: Path) -> None:
    path = root / "t-0" / "notes.txt"
    path.write_text("x")
    path.chmod(0o660)
    assert open_tree(root).resolve("t/0/raw/notes.txt").attributes().mode == stat.S_IFREG | 0o440


def test_a_log_that_grows_is_read_to_its_new_end(root: Path) -> None:
    path = root / "t-0" / log_name(0)
    file = file_at(open_tree(root), f"t/0/raw/{log_name(0)}")
    before = path.read_bytes()
    assert file.read(0, 1 << 20) == before
    with path.open("ab") as log:
        log.write(joined(dense(10, 14)))
    assert file.attributes().size == path.stat().st_size > len(before)
    assert file.read(0, 1 << 20) == path.read_bytes()


def test_another_file_that_is_written_to_is_another_one_then(root: Path) -> None:
    path = root / "t-0" / "notes.txt"
    path.write_text("one ")
    tree = open_tree(root)
    file = file_at(tree, "t/0/raw/notes.txt")
    assert file.read(0, 100) == b"one "
    with path.open("a") as notes:
        notes.write("two")
    for ask in (file.attributes, lambda: file.read(0, 100)):
        with pytest.raises(FileChanged):
            ask()
    again = file_at(tree, "t/0/raw/notes.txt")
    assert again.read(0, 100) == b"one two"
    assert isinstance(file, RawFile)
    assert again.attributes().node_id != file.node_id


def test_a_file_that_is_removed_is_gone(root: Path) -> None:
    tree = open_tree(root)
    file = file_at(tree, f"t/0/raw/{log_name(0, '.index')}")
    (root / "t-0" / log_name(0, ".index")).unlink()
    for ask in (lambda: file.read(0, 10), file.attributes):
        with pytest.raises(FileChanged):
            ask()
    with pytest.raises(NotFound):
        tree.resolve(f"t/0/raw/{log_name(0, '.index')}")


def test_files_that_come_and_go_leave_no_ids_behind(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    tree = open_tree(tmp_path)
    for number in range(1000):
        path = directory / log_name(number, ".snapshot")
        path.write_bytes(b"")
        assert content_of(tree, f"t/0/raw/{path.name}") == b""
        path.unlink()
    assert len(tree.context.ids._by_path) == len(tree.context.ids._paths) < 200
    kept = file_at(tree, f"t/0/raw/{log_name(0)}")
    assert tree.node(kept.attributes().node_id).attributes() == kept.attributes()


def test_an_unreadable_sector_is_an_error_and_no_invented_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "t-0" / "big").write_bytes(b"x" * 20_000)
    file = file_at(open_tree(root), "t/0/raw/big")
    pread = os.pread

    def failing(fd: int, length: int, position: int) -> bytes:
        if position < 12_288 and position + length > 8192:
            raise OSError(5, "Input/output error")
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", failing)
    assert file.read(0, 8192) == b"x" * 8192
    assert file.read(12_288, 20_000) == b"x" * (20_000 - 12_288)
    with pytest.raises(CorruptData, match="read failed at 8192"):
        file.read(8000, 4096)


def test_of_loose_files_only_those_that_were_named_are_shown(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    tree = open_tree(directory / log_name(10))
    assert names(directory_at(tree, "t/0/raw")) == [log_name(10)]
    assert content_of(tree, f"t/0/raw/{log_name(10)}") == (directory / log_name(10)).read_bytes()
