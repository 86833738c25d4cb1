"""The text of segments: exact size, any part of it at any time, and damage that shows only where it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData, NotFound
from kfs.format.codecs import Codec
from kfs.log.problem import DamagePolicy
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from kfs.tree.options import TreeOptions
from tests.log.damages import Damage, damaged, joined_parts, local_damage
from tests.log.some_logs import some_batches, some_segments
from tests.logs import (
    Batch,
    batch,
    batches,
    bytes_read,
    content_of,
    dense,
    directory_at,
    file_at,
    joined,
    log_name,
    names,
    open_tree,
    positions,
    record,
    set_log_start,
    watch_reads,
    wrapper_with_broken_message,
    write_log,
    write_partition,
)

LONG = b"long " * 2000  # ten kilobytes


def lines_of(tree: KafkaTree, path: str = "t/0") -> bytes:
    """Return the content of every file in ``offset/``, one after another."""
    return b"".join(content_of(tree, f"{path}/offset/{name}") for name in names(directory_at(tree, f"{path}/offset")))


def long_segment(count: int, first: int = 0) -> list[Batch]:
    """Return batches whose text is long enough for many chunks."""
    return [batch([record(first + at, b"%d " % at + LONG)]) for at in range(count)]


def assert_reads_as(file: File, whole: bytes, ranges: Sequence[tuple[int, int]]) -> None:
    assert file.attributes().size == len(whole)
    for offset, size in ranges:
        assert file.read(offset, size) == whole[offset : offset + size]


# --- whole and in parts ---------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(segments=some_segments(), data=st.data())
def test_the_text_is_that_of_the_files_and_can_be_read_anywhere(
    tmp_path_factory: pytest.TempPathFactory, segments: dict[int, list[Batch]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("root")
    write_partition(root / "t-0", segments)
    tree = open_tree(root)
    whole = lines_of(tree)
    ranges = data.draw(st.lists(st.tuples(st.integers(0, len(whole) + 5), st.integers(0, 3000)), max_size=6))
    assert_reads_as(file_at(open_tree(root), "t/0/records.jsonl"), whole, [*ranges, (0, len(whole) + 10)])
    text = b"".join(content_of(tree, f"t/0/segment/{name}") for name in names(directory_at(tree, "t/0/segment")))
    assert text == whole


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_text_of_many_chunks_can_be_read_anywhere_in_any_order(magic: int, tmp_path: Path) -> None:
    content = [one for at in range(60) for one in batches([record(at, b"%d " % at + LONG)], magic=magic)]
    write_partition(tmp_path / "t-0", {0: content, 60: dense(60, 64)})
    tree = open_tree(tmp_path)
    whole = b"".join(content_of(tree, f"t/0/offset/{at}.json") for at in range(60))
    assert len(whole) > 8 * 65536
    file = file_at(tree, "t/0/segment/0.jsonl")
    starts = [0, 1, 65535, 65536, 65537, 300_000, len(whole) - 1, len(whole), 200_000, 5]
    assert_reads_as(file, whole, [(start, size) for start in starts for size in (1, 4096, 131_072, 1 << 20)])


def test_a_block_much_longer_than_a_chunk_is_read_in_parts(tmp_path: Path) -> None:
    one = batch([record(at, LONG) for at in range(50)], codec=Codec.ZSTD)
    write_partition(tmp_path / "t-0", {0: [one, *dense(50, 54)]})
    tree = open_tree(tmp_path)
    whole = lines_of(tree)
    assert_reads_as(file_at(tree, "t/0/segment/0.jsonl"), whole, [(at, 70_000) for at in range(0, len(whole), 70_000)])


def test_reading_a_little_in_the_middle_renders_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_partition(tmp_path / "t-0", {0: long_segment(300), 300: dense(300, 304)})
    tree = open_tree(tmp_path)
    file = file_at(tree, "t/0/segment/0.jsonl")
    size = file.attributes().size
    reads = watch_reads(monkeypatch)
    assert len(file.read(size // 2, 4096)) == 4096
    assert bytes_read(reads) < 800_000


def test_a_segment_has_its_name_and_its_bare_number(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {7: dense(7, 9), 10: dense(10, 12)})
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, "t/0/segment")) == [log_name(7, ".jsonl"), log_name(10, ".jsonl")]
    for name in (log_name(7, ".jsonl"), "7.jsonl"):
        assert content_of(tree, f"t/0/segment/{name}") == b"".join(
            content_of(tree, f"t/0/offset/{at}.json") for at in range(7, 10)
        )
    for name in ("07.jsonl", "7", "00000000000000000007", "8.jsonl", "-7.jsonl", "7.json", f"0{log_name(7, '.jsonl')}"):
        with pytest.raises(NotFound):
            tree.resolve(f"t/0/segment/{name}")


def test_a_listing_does_not_ask_for_the_sizes_of_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_partition(tmp_path / "t-0", {0: long_segment(100), 100: long_segment(100, 100)})
    tree = open_tree(tmp_path)
    directory = directory_at(tree, "t/0/segment")
    reads = watch_reads(monkeypatch)
    entries = list(directory.entries())
    assert [entry.attributes for entry in entries] == [None, None]
    assert bytes_read(reads) < 700_000  # the end of the log had to be found
    sizes = [file_at(tree, f"t/0/segment/{entry.name}").attributes() for entry in entries]
    assert [one.node_id for one in sizes] == [entry.node_id for entry in entries]
    assert [one.mode for one in sizes] == [entry.mode for entry in entries]


def test_a_text_is_cut_at_the_log_start_offset(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    set_log_start(tmp_path, "t", 0, 3)
    tree = open_tree(tmp_path)
    assert content_of(tree, "t/0/segment/0.jsonl").count(b"\n") == 7
    assert content_of(tree, ".kfs/deleted/t/0/segment/0.jsonl").count(b"\n") == 3
    set_log_start(tmp_path, "t", 0, 10)
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, "t/0/segment")) == [log_name(10, ".jsonl")]
    assert content_of(tree, ".kfs/deleted/t/0/segment/0.jsonl").count(b"\n") == 10


# --- growth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_text_of_an_active_segment_grows_with_it(magic: int, tmp_path: Path, eager: None) -> None:
    content = [one for at in range(40) for one in batches([record(at, LONG)], magic=magic)]
    path = write_log(tmp_path / "t-0", 0, b"")
    tree = open_tree(tmp_path)
    segment, whole_log = (file_at(tree, f"t/0/{name}") for name in ("segment/0.jsonl", "records.jsonl"))
    expected = b""
    for one in content:
        with path.open("ab") as log:
            log.write(one.data[:50])
        assert segment.attributes().size == len(expected)
        with path.open("ab") as log:
            log.write(one.data[50:])
        expected += content_of(tree, f"t/0/offset/{one.last_offset}.json")
        for file in (segment, whole_log):
            assert_reads_as(file, expected, [(len(expected) - 100, 5000), (len(expected) // 2, 5000), (0, 10)])
    assert content_of(tree, "t/0/segment/0.jsonl") == expected


def test_an_active_segment_that_is_rolled_keeps_its_text(tmp_path: Path, eager: None) -> None:
    write_partition(tmp_path / "t-0", {0: long_segment(20)})
    tree = open_tree(tmp_path)
    whole = content_of(tree, "t/0/segment/0.jsonl")
    write_partition(tmp_path / "t-0", {20: dense(20, 24)})
    assert content_of(tree, "t/0/segment/0.jsonl") == whole
    assert names(directory_at(tree, "t/0/segment")) == [log_name(0, ".jsonl"), log_name(20, ".jsonl")]
    assert content_of(tree, "t/0/records.jsonl") == lines_of(tree)


def test_the_text_of_a_segment_that_was_replaced_is_another(tmp_path: Path, eager: None) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    tree = open_tree(tmp_path)
    old = tree.resolve("t/0/segment/0.jsonl").attributes()
    beside = write_log(tmp_path / "beside", 0, joined([batch([record(3, b"compacted")])]))
    os.replace(beside, directory / log_name(0))
    new = file_at(tree, "t/0/segment/0.jsonl")
    assert new.read(0, 1000) == content_of(tree, "t/0/offset/3.json")
    assert new.attributes().node_id != old.node_id
    assert content_of(tree, "t/0/records.jsonl") == lines_of(tree)


def test_an_open_text_of_a_deleted_segment_can_be_read_to_its_end(tmp_path: Path, eager: None) -> None:
    directory = write_partition(tmp_path / "t-0", {0: long_segment(30), 30: dense(30, 39)})
    tree = open_tree(tmp_path)
    file = file_at(tree, "t/0/segment/0.jsonl")
    whole = file.read(0, 1 << 30)
    assert file.read(0, 10) == whole[:10]
    for path in directory.glob(log_name(0, ".*")):
        path.unlink()
    assert [file.read(at, 100_000) for at in range(0, len(whole), 100_000)] == [
        whole[at : at + 100_000] for at in range(0, len(whole), 100_000)
    ]
    with pytest.raises(NotFound):
        tree.resolve("t/0/segment/0.jsonl")


# --- damage ---------------------------------------------------------------------------------------------------------


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("broken", [0, 7, 29])
def test_damage_is_an_empty_line_and_an_error_where_it_is_read(broken: int, tmp_path: Path) -> None:
    content = long_segment(30)
    directory = write_partition(tmp_path / "t-0", {0: content, 30: dense(30, 34)})
    lines = [content_of(open_tree(tmp_path), f"t/0/offset/{at}.json") for at in range(30)]
    flip(directory / log_name(0), positions(content)[broken] + 100)
    tree = open_tree(tmp_path)
    expected = b"".join(b"\n" if at == broken else line for at, line in enumerate(lines))
    fault = sum(map(len, lines[:broken]))
    file = file_at(tree, "t/0/segment/0.jsonl")
    assert file.attributes().size == len(expected)
    for offset in range(0, len(expected), 4096):
        if offset <= fault < offset + 4096:
            with pytest.raises(CorruptData) as caught:
                file.read(offset, 4096)
            assert caught.value.position == positions(content)[broken]
        else:
            assert file.read(offset, 4096) == expected[offset : offset + 4096]
    with pytest.raises(CorruptData):
        file_at(tree, "t/0/records.jsonl").read(fault, 1)
    skipping = open_tree(tmp_path, options=TreeOptions(on_damage=DamagePolicy.SKIP))
    assert content_of(skipping, "t/0/segment/0.jsonl") == b"".join(lines[:broken] + lines[broken + 1 :])


@settings(max_examples=40)
@pytest.mark.usefixtures("quiet")
@given(content=some_batches(0), done=st.lists(local_damage, min_size=1, max_size=3), closed=st.booleans())
def test_whatever_the_damage_text_and_files_agree(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], done: list[Damage], closed: bool
) -> None:
    root = tmp_path_factory.mktemp("root")
    write_log(root / "t-0", 0, joined_parts(damaged(content, done)))
    if closed:
        end = content[-1].last_offset + 1
        write_log(root / "t-0", end, joined(dense(end, end + 4)))
    skipping = open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP))
    whole = lines_of_readable(skipping)
    assert content_of(skipping, "t/0/records.jsonl") == whole
    showing = file_at(open_tree(root), "t/0/records.jsonl")
    size = showing.attributes().size
    text = read_around_faults(showing, 0, size)
    assert len(text) == size
    assert [line for line in text.splitlines() if line] == whole.splitlines()


def test_junk_that_loses_nothing_is_no_empty_line_when_it_is_read_again(tmp_path: Path) -> None:
    content = [batch([record(offset)], magic=0) for offset in range(10)]
    moved = (1 << 56).to_bytes(8, "big") + content[1].data[8:]
    write_log(tmp_path / "t-0", 0, b"\0" + content[0].data + moved + joined(content[2:]))
    write_log(tmp_path / "t-0", 10, joined(dense(10, 14)))
    first, _, *_ = lines_of_readable(open_tree(tmp_path)).splitlines(keepends=True)
    file = file_at(open_tree(tmp_path), "t/0/segment/0.jsonl")
    for _ in range(2):
        with pytest.raises(CorruptData):
            file.read(0, file.attributes().size)
        assert file.read(0, len(first)) == first


def read_around_faults(file: File, offset: int, size: int) -> bytes:
    """Read a range, with a newline for each byte that can't be read."""
    try:
        return file.read(offset, size)
    except CorruptData:
        half = size // 2
        if half == 0:
            return b"\n"
        return read_around_faults(file, offset, half) + read_around_faults(file, offset + half, size - half)


def lines_of_readable(tree: KafkaTree) -> bytes:
    """Return the content of those files in ``offset/`` that can be read."""
    lines = []
    for entry in directory_at(tree, "t/0/offset").entries():
        if entry.attributes is not None:
            lines.append(content_of(tree, f"t/0/offset/{entry.name}"))
        else:
            with pytest.raises(CorruptData):
                tree.resolve(f"t/0/offset/{entry.name}")
    return b"".join(lines)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_broken_message_in_an_intact_wrapper_is_one_empty_line(magic: int, tmp_path: Path) -> None:
    # The CRC of the wrapper is right, that of the third message inside isn't: a broken client wrote it so.
    wrapper = wrapper_with_broken_message(magic)
    write_log(tmp_path / "t-0", 0, wrapper)
    tree = open_tree(tmp_path)
    directory = directory_at(tree, "t/0/offset")
    assert names(directory) == [f"{at}.json" for at in range(5)]
    lines = [content_of(tree, f"t/0/offset/{at}.json") for at in (0, 1, 3, 4)]
    with pytest.raises(CorruptData, match="stored CRC"):
        tree.resolve("t/0/offset/2.json")
    file = file_at(tree, "t/0/segment/0.jsonl")
    fault = len(lines[0]) + len(lines[1])
    assert file.attributes().size == sum(map(len, lines)) + 1
    assert file.read(0, fault) + file.read(fault + 1, 10_000) == b"".join(lines)
    with pytest.raises(CorruptData):
        file.read(fault, 1)
    skipping = open_tree(tmp_path, options=TreeOptions(on_damage=DamagePolicy.SKIP))
    assert content_of(skipping, "t/0/segment/0.jsonl") == b"".join(lines)
    problems = content_of(tree, "t/0/meta/problems.jsonl").splitlines()
    assert len([problem for problem in problems if b"offset 2: stored CRC" in problem]) == 1
