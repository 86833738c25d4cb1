"""What was found together with a record: the other records of its block, as long as the directory says the same."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.format.layout import MAGIC_V1
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import NumberedFiles
from kfs.tree.options import TreeOptions
from tests.logs import (
    batch,
    batches,
    content_of,
    dense,
    directory_at,
    file_at,
    joined,
    log_name,
    open_tree,
    records,
    set_high_watermark,
    set_log_start,
    wrapper_with_broken_message,
    write_log,
    write_partition,
)

pytestmark = pytest.mark.usefixtures("eager", "quiet")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """``t-0``: offsets 0 to 39 in two closed segments and an active one, a batch of five each."""
    data = tmp_path / "data"
    write_partition(data / "t-0", {0: dense(0, 19), 20: dense(20, 29), 30: dense(30, 39)})
    return data


def found_with(tree: KafkaTree, offset: int, path: str = "t/0/offset") -> NumberedFiles | None:
    directory = directory_at(tree, path)
    directory.find(f"{offset}.json")
    return directory.found_with(f"{offset}.json")


def state_of(tree: KafkaTree) -> object:
    files = found_with(tree, 22)
    assert files is not None
    return files.state


def test_the_neighbours_are_what_the_directory_says_of_them(root: Path) -> None:
    tree = open_tree(root)
    directory = directory_at(tree, "t/0/offset")
    files = found_with(tree, 23)
    assert files is not None
    contents = files.contents()
    assert contents is not None
    assert list(contents.offsets) == [20, 21, 22, 23, 24]
    for at, offset in enumerate(contents.offsets):
        content = contents.buffer[contents.starts[at] : contents.starts[at + 1]]
        assert content == content_of(tree, f"t/0/offset/{offset}.json")
        attributes = files.stamp.attributes(offset, len(content), contents.timestamps[at])
        assert attributes == directory.find(f"{offset}{files.suffix}")[1]
        assert attributes == tree.node(attributes.node_id).attributes()


def test_nothing_is_said_of_the_active_segment(root: Path) -> None:
    assert found_with(open_tree(root), 33) is None


def test_nothing_is_said_of_values_and_keys(root: Path) -> None:
    assert directory_at(open_tree(root), "t/0/value").found_with("3") is None


def test_nothing_is_said_of_names_that_no_record_has(root: Path) -> None:
    directory = directory_at(open_tree(root), "t/0/offset")
    assert [directory.found_with(name) for name in ("03.json", "x", "40.json", "3")] == [None] * 4


def test_nothing_is_said_of_what_is_not_kept(root: Path) -> None:
    assert found_with(open_tree(root, options=TreeOptions(rendered_bytes=100)), 3) is None


def test_contents_are_gone_when_the_cache_drops_them(root: Path) -> None:
    tree = open_tree(root)
    files = found_with(tree, 3)
    assert files is not None
    assert files.contents() is not None
    tree.context.rendered.clear()
    gc.collect()
    assert files.contents() is None


def test_nothing_is_said_of_a_block_that_is_shown_in_part(root: Path) -> None:
    set_log_start(root, "t", 0, 12)
    tree = open_tree(root)
    assert found_with(tree, 13) is None
    assert found_with(tree, 16) is not None
    assert found_with(tree, 11, ".kfs/deleted/t/0/offset") is None
    assert found_with(tree, 6, ".kfs/deleted/t/0/offset") is not None


def test_nothing_is_said_of_a_block_that_the_high_watermark_ends(root: Path) -> None:
    set_high_watermark(root, "t", 0, 23)
    tree = open_tree(root, until_high_watermark=True)
    assert found_with(tree, 22) is None
    assert found_with(tree, 3) is not None


def test_nothing_is_said_of_a_block_with_a_broken_record(tmp_path: Path) -> None:
    write_log(
        tmp_path / "t-0", 0, wrapper_with_broken_message(MAGIC_V1) + joined(batches(records(5, 9), magic=MAGIC_V1))
    )
    write_partition(tmp_path / "t-0", {10: []})
    tree = open_tree(tmp_path)
    assert found_with(tree, 1) is None
    assert found_with(tree, 6) is not None


def append(root: Path) -> None:
    with (root / "t-0" / log_name(30)).open("ab") as log:
        log.write(joined(dense(40, 44)))


def test_the_state_is_the_same_while_the_log_grows(root: Path) -> None:
    tree = open_tree(root)
    before = state_of(tree)
    append(root)
    assert file_at(tree, "t/0/offset/44.json")
    assert state_of(tree) == before


def raise_log_start(root: Path) -> None:
    set_log_start(root, "t", 0, 5)


def delete_segment(root: Path) -> None:
    for path in (root / "t-0").glob(log_name(0, ".*")):
        path.rename(f"{path}.deleted")


def replace_segment(root: Path) -> None:
    path = root / "t-0" / log_name(0)
    swap = path.with_suffix(".new")
    swap.write_bytes(joined([batch(records(0, 9))]))
    os.replace(swap, path)


def cut_to_the_segment_that_was_closed(root: Path) -> None:
    for path in (root / "t-0").glob(log_name(30, ".*")):
        path.unlink()


@pytest.mark.parametrize("change", [raise_log_start, delete_segment, replace_segment])
def test_the_state_is_another_once_something_that_was_shown_is_not(root: Path, change: Callable[[Path], None]) -> None:
    tree = open_tree(root)
    before = state_of(tree)
    change(root)
    assert state_of(tree) != before


def test_nothing_is_said_of_a_segment_that_becomes_the_active_one_again(root: Path) -> None:
    tree = open_tree(root)
    before = found_with(tree, 3)
    assert before is not None
    cut_to_the_segment_that_was_closed(root)
    assert found_with(tree, 22) is None
    after = found_with(tree, 3)
    assert after is not None
    assert after.state != before.state


def test_the_state_of_a_topic_made_again_is_another(root: Path) -> None:
    tree = open_tree(root)
    before = state_of(tree)
    for path in (root / "t-0").iterdir():
        path.unlink()
    (root / "t-0").rmdir()
    write_partition(root / "t-0", {0: dense(0, 19), 20: dense(20, 29), 30: dense(30, 39)})
    assert state_of(tree) != before
