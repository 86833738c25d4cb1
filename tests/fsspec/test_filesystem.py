"""The filesystem shows what the tree shows, refuses what writes, and speaks the errors of an operating system."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from glob import has_magic
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.fsspec import KafkaFileSystem
from kfs.tree.node import Directory, File, Symlink
from tests.corpus import corpus_names
from tests.every_node import every_node
from tests.fsspec.toy import ToyFileSystem
from tests.logs import batch, content_of, dense, log_name, open_tree, records, watch_reads, write_partition
from tests.mount.toy_tree import WEIRD_NAMES, Control, ToyTree, static_bytes
from tests.recorded_damage import DAMAGED

CorpusPath = Callable[[str], Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with ``t-0``: offsets 0 to 29 in two segments, and ``t-1``."""
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 19), 20: dense(20, 29)})
    write_partition(tmp_path / "data" / "t-1", {0: dense(0, 2)})
    return tmp_path / "data"


@pytest.fixture
def fs(root: Path) -> KafkaFileSystem:
    return KafkaFileSystem(str(root), skip_instance_cache=True)


@pytest.fixture
def toy(tmp_path: Path) -> ToyFileSystem:
    return ToyFileSystem(ToyTree(Control(tmp_path / "control")))


# --- the same as the tree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus_names())
def test_it_shows_what_the_tree_shows(name: str, corpus: CorpusPath) -> None:
    data = corpus(name) / "data"
    fs = KafkaFileSystem(data, skip_instance_cache=True)
    tree = open_tree(data)
    nodes = {listed.path: listed for listed in every_node(tree)}
    files = {path for path, listed in nodes.items() if not isinstance(listed.node, Directory)}
    assert fs.find("") == sorted(files)
    described = fs.find("", withdirs=True, detail=True)
    assert described.keys() == nodes.keys()
    for path, listed in nodes.items():
        info = described[path]
        assert (info["type"] == "directory") == isinstance(listed.node, Directory)
        assert info["islink"] == isinstance(listed.node, Symlink)
        if listed.entry.attributes is not None and not info["islink"]:
            assert (info["size"], info["mode"]) == (listed.entry.attributes.size, listed.entry.mode)


@pytest.mark.parametrize("name", ["b_txn", "c_clean", "f_mixed", "e_meta"])
def test_its_files_hold_what_the_tree_holds(name: str, corpus: CorpusPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.8e9)  # some files say how long ago something was
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_000_000_000)
    data = corpus(name) / "data"
    fs = KafkaFileSystem(data, skip_instance_cache=True)
    tree = open_tree(data)
    for listed in every_node(tree):
        if isinstance(listed.node, File):
            content = content_of(tree, listed.path)
            assert fs.cat_file(listed.path) == content
            assert fs.size(listed.path) == len(content)
            with fs.open(listed.path) as file:
                assert file.read() == content


def test_what_is_not_listed_is_there_by_name(fs: KafkaFileSystem, root: Path) -> None:
    assert fs.cat("t/0/value/7") == b"value 7"
    assert "t/0/value" not in fs.ls("t/0", detail=False)
    assert len(fs.ls("t/0/value")) == 30
    assert "t/0/value" in KafkaFileSystem(root, views=True).ls("t/0", detail=False)
    assert json.loads(fs.cat("t/0/at/2023-11-14T22:13:27Z.json"))["offset"] == 7


@given(start=st.none() | st.integers(-300, 300), end=st.none() | st.integers(-300, 300))
def test_any_range_of_bytes(start: int | None, end: int | None, fs_of_examples: KafkaFileSystem) -> None:
    path = "t/0/offset/7.json"
    assert fs_of_examples.cat_file(path, start, end) == fs_of_examples.cat_file(path)[start:end]


@pytest.fixture(scope="session")
def fs_of_examples(tmp_path_factory: pytest.TempPathFactory) -> KafkaFileSystem:
    root = tmp_path_factory.mktemp("examples")
    write_partition(root / "t-0", {0: dense(0, 19), 20: dense(20, 29)})
    write_partition(root / "orders-1", {0: dense(0, 12)})
    write_partition(root / "orders-11", {0: dense(0, 2)})
    return KafkaFileSystem(root, skip_instance_cache=True)


parts = ["*", "t", "orders", "0", "1", "1*", "?", "offset", "off*", "[12].json", "*.json", "?.j*", "seg*"]
patterns = st.lists(st.sampled_from(parts), min_size=1, max_size=4).map("/".join)


@settings(max_examples=100)
@given(pattern=patterns, slash=st.sampled_from(["", "/"]), withdirs=st.booleans(), detail=st.booleans())
def test_a_pattern_finds_what_fsspec_would_find(
    pattern: str, slash: str, withdirs: bool, detail: bool, fs_of_examples: KafkaFileSystem
) -> None:
    fs = fs_of_examples
    every = AbstractFileSystem.glob(fs, pattern + slash, detail=True)
    wants_directories = withdirs or not has_magic(pattern)  # what is named is found, whatever it is
    expected = {path: info for path, info in every.items() if wants_directories or info["type"] != "directory"}
    found = fs.glob(pattern + slash, withdirs=withdirs, detail=detail)
    assert found == (expected if detail else list(expected))
    assert list(found) == sorted(found)


def test_a_pattern_lists_only_where_it_leads(fs: KafkaFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = watch_reads(monkeypatch)
    assert fs.glob("*/*/segment/*.jsonl") == [
        f"t/0/segment/{0:020d}.jsonl",
        f"t/0/segment/{20:020d}.jsonl",
        f"t/1/segment/{0:020d}.jsonl",
    ]
    assert not [read for read in reads if read.path.endswith(f"t-0/{log_name(0)}")]
    assert fs.glob("t/*/value/2") == ["t/0/value/2", "t/1/value/2"]
    assert fs.glob("nothing/*/x") == []


def test_a_million_names_are_listed(toy: ToyFileSystem) -> None:
    listed = toy.ls("million", detail=False)
    assert (len(listed), listed[-1]) == (1_000_000, "million/999999.json")


def test_sizes_that_cost_a_pass_are_left_out_of_a_listing(fs: KafkaFileSystem) -> None:
    first, second = fs.ls("t/0/segment")
    assert first["size"] is second["size"] is None
    sizes = [fs.size(info["name"]) for info in (first, second)]
    assert sizes == [len(fs.cat(info["name"])) for info in (first, second)]
    assert fs.du("t/0/segment") == sum(sizes)


# --- links ----------------------------------------------------------------------------------------------------------


def test_links_are_files_that_say_where_they_lead(fs: KafkaFileSystem) -> None:
    info = fs.info("t/0/first.json")
    assert (info["type"], info["islink"], info["destination"]) == ("file", True, "offset/0.json")
    assert info["size"] == fs.info("t/0/offset/0.json")["size"] == len(fs.cat("t/0/first.json"))
    assert info in fs.ls("t/0")
    assert fs.isfile("t/0/first.json")
    assert fs.cat("t/0/time/2023-11-14/22/3.json") == fs.cat("t/0/offset/3.json")


def test_a_link_that_leads_nowhere_hides_nothing(toy: ToyFileSystem) -> None:
    by_name = {info["name"]: info for info in toy.ls("")}
    assert by_name["link"]["size"] == len(toy.cat("link")) == 6
    assert (by_name["dangling"]["type"], by_name["dangling"]["islink"]) == ("other", True)
    assert not toy.exists("dangling")


def test_any_name_is_found(toy: ToyFileSystem) -> None:
    assert toy.ls("names", detail=False) == [f"names/{name}" for name in WEIRD_NAMES]
    for name in WEIRD_NAMES:
        assert toy.cat_file(f"names/{name}") == os.fsencode(name)


# --- open files -----------------------------------------------------------------------------------------------------


def test_an_open_file_is_read_like_any_other(toy: ToyFileSystem) -> None:
    content = static_bytes(3 * 1024 * 1024 + 123)
    with toy.open("static/big.bin", block_size=1000) as file:
        assert file.read(10) == content[:10]
        assert file.seek(1_000_003) == 1_000_003
        assert file.read(5000) == content[1_000_003:1_005_003]
        assert file.seek(-7, os.SEEK_END) == len(content) - 7
        assert file.read() == content[-7:]
        assert file.read() == b""
        assert file.seek(-20, os.SEEK_CUR) == len(content) - 20
        assert file.tell() == len(content) - 20
        assert file.size == file.details["size"] == len(content)
        assert (file.path, file.name, file.mode) == ("static/big.bin", "static/big.bin", "rb")
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
        assert file.seek(10**12) == 10**12
        assert file.read(1) == b""
        with pytest.raises(OSError, match="seek"):
            file.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        file.read()
    with toy.open("static/a.txt", "r") as text:
        assert list(text) == ["alpha\n"]


def test_lines_of_a_segment_are_those_of_its_records(fs: KafkaFileSystem) -> None:
    with fs.open("t/0/records.jsonl", "rt") as file:
        assert [json.loads(line)["offset"] for line in file] == list(range(30))


def test_all_that_is_before_damage_is_read_and_then_it_fails(toy: ToyFileSystem) -> None:
    whole = static_bytes(1 << 20)
    with toy.open("damaged/partly") as file:
        assert file.read(602_112) == whole[:602_112]
        with pytest.raises(OSError, match="a page is damaged") as caught:
            file.read(1)
        assert caught.value.errno == errno.EIO
        file.seek(602_113)
        assert file.read() == whole[602_113:]
        file.seek(0)
        with pytest.raises(OSError, match="damaged"):
            file.read()
    with pytest.raises(OSError, match="damaged"):
        toy.cat_file("damaged/partly")
    assert toy.cat_file("damaged/partly", 602_113) == whole[602_113:]


def test_a_growing_log_is_read_as_it_is_now(fs: KafkaFileSystem, root: Path, eager: None) -> None:
    assert not fs.exists("t/0/offset/30.json")
    with (root / "t-0" / log_name(20)).open("ab") as file:
        file.write(batch(records(30, 31)).data)
    assert fs.exists("t/0/offset/30.json")
    assert "t/0/offset/31.json" in fs.ls("t/0/offset", detail=False)
    assert fs.cat("t/0/records.jsonl").count(b"\n") == 32


# --- questions ------------------------------------------------------------------------------------------------------


def test_what_is_there_and_what_kind_it_is(fs: KafkaFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fs.exists("")
    assert fs.isdir("")
    assert fs.exists("kfs://t/0")
    assert fs.isdir("/t//0/")
    assert not fs.isfile("t")
    assert not fs.exists("t/9")
    assert not fs.exists("t/0/offset/30.json")
    reads = watch_reads(monkeypatch)
    assert fs.isfile(f"t/0/segment/{0:020d}.jsonl")
    assert not [read for read in reads if read.path.endswith(log_name(0))]
    assert fs.info("kfs:///t/0/")["name"] == "t/0"


def test_times_are_those_of_records(fs: KafkaFileSystem) -> None:
    time = datetime(2023, 11, 14, 22, 13, 27, tzinfo=UTC)
    assert fs.modified("t/0/offset/7.json") == fs.created("t/0/offset/7.json") == time


def test_a_key_changes_with_the_file_only(fs: KafkaFileSystem, root: Path, eager: None) -> None:
    other = KafkaFileSystem(str(root), skip_instance_cache=True)
    _ = other.ls("t/1/offset")  # finds other segments first, and numbers them otherwise
    for path in ("t/0/offset/7.json", "t/0/records.jsonl"):
        assert fs.ukey(path) == other.ukey(path)
        assert fs.checksum(path) == other.checksum(path)
    assert fs.ukey("t/0/offset/7.json") != fs.ukey("t/0/offset/8.json")
    before = fs.ukey("t/0/records.jsonl")
    with (root / "t-0" / log_name(20)).open("ab") as file:
        file.write(dense(30, 31)[0].data)
    assert fs.ukey("t/0/records.jsonl") != before


# --- errors ---------------------------------------------------------------------------------------------------------


def test_errors_are_the_operating_systems(fs: KafkaFileSystem, corpus: CorpusPath) -> None:
    for ask in (fs.info, fs.ls, fs.cat_file, fs.open, fs.modified):
        with pytest.raises(FileNotFoundError, match=r"no record at offset 99.*'t/0/offset/99\.json'"):
            ask("t/0/offset/99.json")
        with pytest.raises(NotADirectoryError):
            ask("t/0/offset/7.json/x")
    for ask in (fs.cat_file, fs.open):
        with pytest.raises(IsADirectoryError):
            ask("t/0")
    damaged = KafkaFileSystem(corpus(DAMAGED) / "data", skip_instance_cache=True)
    with pytest.raises(OSError, match=r"position 989: record batch with stored CRC") as caught:
        damaged.cat("broken/1/offset/99.json")
    assert caught.value.errno == errno.EIO
    skipping = KafkaFileSystem(corpus(DAMAGED) / "data", on_damage="skip", skip_instance_cache=True)
    assert skipping.cat("broken/1/records.jsonl").count(b"\n") > 90


@pytest.mark.parametrize(
    "write",
    [
        lambda fs: fs.mkdir("t/9"),
        lambda fs: fs.makedirs("t/9/x", exist_ok=True),
        lambda fs: fs.rmdir("t/0"),
        lambda fs: fs.rm("t/0", recursive=True),
        lambda fs: fs.rm_file("t/0/offset/0.json"),
        lambda fs: fs.delete("t/0/offset/0.json"),
        lambda fs: fs.mv("t/0/offset/0.json", "t/0/offset/99.json"),
        lambda fs: fs.rename("t/0/offset/0.json", "t/0/offset/99.json"),
        lambda fs: fs.cp_file("t/0/offset/0.json", "t/0/offset/99.json"),
        lambda fs: fs.copy("t/0/offset/0.json", "t/0/offset/99.json"),
        lambda fs: fs.touch("t/0/offset/99.json"),
        lambda fs: fs.pipe("t/0/offset/99.json", b"x"),
        lambda fs: fs.pipe_file("t/0/offset/99.json", b"x"),
        lambda fs: fs.write_text("t/0/offset/99.json", "x"),
        lambda fs: fs.write_bytes("t/0/offset/99.json", b"x"),
        lambda fs: fs.put(__file__, "t/0/offset/99.json"),
        lambda fs: fs.put_file(__file__, "t/0/offset/99.json"),
        lambda fs: fs.upload(__file__, "t/0/offset/99.json"),
        lambda fs: fs.open("t/0/offset/0.json", "wb"),
        lambda fs: fs.open("t/0/offset/0.json", "ab"),
        lambda fs: fs.open("t/0/offset/0.json", "r+b"),
        lambda fs: fs.open("t/0/offset/99.json", "x"),
    ],
)
def test_nothing_is_ever_written(write: Callable[[KafkaFileSystem], object], fs: KafkaFileSystem) -> None:
    with pytest.raises(OSError, match="Read-only") as caught:
        write(fs)
    assert caught.value.errno == errno.EROFS


# --- URLs and options -----------------------------------------------------------------------------------------------


def test_fsspec_finds_it_by_its_name(root: Path) -> None:
    assert fsspec.get_filesystem_class("kfs") is KafkaFileSystem
    with fsspec.open("kfs://t/0/offset/7.json", log_dirs=str(root)) as file:
        line = file.read()
    with fsspec.open(f"kfs://t/0/offset/7.json::file://{root}") as file:
        assert file.read() == line
    with fsspec.open(f"kfs://t/0/offset/7.json::{root}", "rt") as file:
        assert json.loads(file.read())["offset"] == 7
    files = fsspec.open_files(f"kfs://t/*/segment/*.jsonl::file://{root}")
    assert len(files) == 3
    fs, path = fsspec.url_to_fs(f"kfs://t/0::file://{root}", topics="x*")
    assert (path, fs.ls("")) == ("t/0", [])
    assert fs.unstrip_protocol("t/0") == "kfs://t/0"


def test_several_log_directories_are_one(root: Path, tmp_path: Path) -> None:
    write_partition(tmp_path / "more" / "t-2", {0: dense(0, 4)})
    fs = fsspec.filesystem("kfs", log_dirs=[root, tmp_path / "more"])
    assert fs.ls("t", detail=False) == ["t/0", "t/1", "t/2"]


def test_an_isolation_level_is_that_of_all_that_is_read(corpus: CorpusPath) -> None:
    root = corpus("b_txn") / "data"
    consumed = json.loads((corpus("b_txn") / "consumed.json").read_text())
    for level in ("read_uncommitted", "read_committed"):
        fs = KafkaFileSystem(root, isolation=level, skip_instance_cache=True)
        with fs.open("payments/0/records.jsonl", "rt") as file:
            found = [json.loads(line)["offset"] for line in file]
        ranges = consumed[level]["payments-0"]
        assert found == [offset for first, last in ranges for offset in range(first, last + 1)]


def test_options_that_make_no_sense_are_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="log_dirs"):
        fsspec.filesystem("kfs")
    with pytest.raises(ValueError, match="local files, not memory"):
        fsspec.open(f"kfs://t/0/offset/7.json::memory://{root}").open()
    with pytest.raises(ValueError, match="'fail' or 'skip'"):
        KafkaFileSystem(root, on_damage="ignore")
    with pytest.raises(ValueError, match="read_sometimes"):
        KafkaFileSystem(root, isolation="read_sometimes")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        KafkaFileSystem(tmp_path / "nowhere")


def test_it_is_pickled_by_its_options(root: Path) -> None:
    fs = fsspec.filesystem("kfs", log_dirs=str(root), views=True)
    again = pickle.loads(pickle.dumps(fs))
    assert again is fs
    assert fsspec.filesystem("kfs", log_dirs=str(root), views=True) is fs
    opened = pickle.loads(pickle.dumps(fsspec.open("kfs://t/0/offset/7.json", log_dirs=str(root))))
    with opened as file:
        assert json.loads(file.read())["offset"] == 7
    assert AbstractFileSystem.from_json(fs.to_json()) is fs


def _lines_in(fs: KafkaFileSystem, path: str) -> int:
    return fs.cat(path).count(b"\n")  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_it(method: str, fs: KafkaFileSystem) -> None:
    assert fs.cat("t/0/offset/0.json")
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(_lines_in, [(fs, "t/0/records.jsonl")] * 4) == [30] * 4


def test_threads_share_it(fs: KafkaFileSystem) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(fs.cat("t/0/records.jsonl"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [fs.cat("t/0/records.jsonl")] * 8


def test_one_state_of_a_log_that_goes_on(root: Path) -> None:
    fs = KafkaFileSystem(root, until_now=True, skip_instance_cache=True)
    names = fs.ls("", detail=False)
    partition = Path(root) / "new-0"
    write_partition(partition, {0: dense(0, 3)})
    assert fs.ls("", detail=False) == names
    with pytest.raises(ValueError, match="exclude each other"):
        KafkaFileSystem(root, until_now=True, until_high_watermark=True, skip_instance_cache=True)
