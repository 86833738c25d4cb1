"""``.kfs/transactions``: transactional ids as files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs.errors import NotFound
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory, File
from kfs.tree.options import TreeOptions
from tests.cli.running import printed
from tests.every_node import every_node
from tests.internal.some_states import STATE_TOPIC, in_partitions, key_of, value_of, write_state, write_states
from tests.logs import (
    content_of,
    dense,
    directory_at,
    names,
    object_at,
    open_tree,
    set_log_start,
    watch_reads,
    write_partition,
)

Corpus = Callable[[str], Path]
IDS = ".kfs/transactions"
#: Names that no file may have, that lead elsewhere, or that are those of other files here.
HOSTILE = {
    "/": "%2F",
    "..": "%2E%2E",
    ".": "%2E",
    "": "%",
    ".kfs": "%2Ekfs",
    "../../etc/passwd": "..%2F..%2Fetc%2Fpasswd",
    "problems.jsonl": "problems.jsonl",
    "a.json": "a.json",
    "%2F": "%252F",
    "%": "%25",
    "a b\n\x1b[31m": "a%20b%0A%1B%5B31m",
    "łódź 🙂": "%C5%82%C3%B3d%C5%BA%20%F0%9F%99%82",
    "\u202egpj": "%E2%80%AEgpj",
}


def lines_at(tree: KafkaTree, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content_of(tree, f"{IDS}/{name}").splitlines()]


def at_one_time(known: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of an id without what changes while one looks."""
    duration = known.pop("durationMs")
    assert (duration is None) == (known["startTimestamp"] == -1)
    return known


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "d_groups"])
def test_there_is_a_file_of_each_id_that_says_what_the_command_says(name: str, corpus: Corpus) -> None:
    said = map(json.loads, printed("txn", "--ids", "--json", corpus(name) / "data").splitlines())
    expected = {each["transactionalId"]: at_one_time(each) for each in said}
    tree = open_tree(corpus(name) / "data")
    assert names(directory_at(tree, IDS)) == [*(f"{each}.json" for each in sorted(expected)), "problems.jsonl"]
    assert {each: at_one_time(object_at(tree, f"{IDS}/{each}.json")) for each in expected} == expected
    assert content_of(tree, f"{IDS}/problems.jsonl") == b""
    assert len(expected) >= 1


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_a_partitions_file_says_what_the_command_says(name: str, corpus: Corpus) -> None:
    tree = open_tree(corpus(name) / "data")
    for topic in ("ledger", "payments"):
        printed_rows = printed("txn", "--json", "--all", "--topic", topic, corpus(name) / "data").splitlines()
        rows = list(map(json.loads, printed_rows))
        for partition in {row["partition"] for row in rows}:
            found = json.loads(content_of(tree, f"{topic}/{partition}/meta/transactions.json"))
            own = [row for row in rows if row["partition"] == partition]
            told = [*found["aborted"]["latest"], *found["committed"]["latest"], *found["open"]]
            columns = ("state", "producerId", "startOffset")
            assert sorted([each[column] for column in columns] for each in told) == sorted(
                [row[column] for column in columns] for row in own
            )
            assert {found["lastStableOffset"]} == {row["lastStableOffset"] for row in own}


def test_any_id_has_a_name_that_leads_to_it_and_nowhere_else(tmp_path: Path) -> None:
    long = ["x" * 240, "x" * 241, "x" * 30_000, "x" * 30_000 + "y", "ź" * 100, "/" * 5000]
    every = [*HOSTILE, *long]
    write_states(tmp_path, 3, {each: value_of(producerId=number) for number, each in enumerate(every)})
    tree = open_tree(tmp_path)
    listed = names(directory_at(tree, IDS))
    assert set(listed) >= {f"{name}.json" for name in HOSTILE.values()}
    assert len(set(listed)) == len(listed) == len(every) + 1
    assert all(len(name.encode()) <= 255 and "/" not in name for name in listed)
    found = {}
    for name in listed:
        if name != "problems.jsonl":
            known = object_at(tree, f"{IDS}/{name}")
            found[known["transactionalId"]] = known["producerId"]
    assert found == {each: number for number, each in enumerate(every)}
    assert content_of(tree, f"{IDS}/problems.jsonl") == b""


@pytest.mark.parametrize(
    "name", ["nobody.json", "a", "a.JSON", "%61.json", "a.json.json", "%.json", "..", "a/b", "%2f.json", "%FF.json"]
)
def test_what_is_not_there_is_not_found(tmp_path: Path, name: str) -> None:
    write_states(tmp_path, 1, {"a": value_of(), "/": value_of()})
    with pytest.raises(NotFound):
        open_tree(tmp_path).resolve(f"{IDS}/{name}")


def test_an_id_says_where_markers_are_to_be_written_still(tmp_path: Path) -> None:
    write_states(tmp_path, 1, {"a": value_of(transactionPartitions=in_partitions(("u", [0]), ("t", [1, 0])))})
    known = object_at(open_tree(tmp_path), f"{IDS}/a.json")
    assert known["partitions"] == [{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}]
    assert (known["coordinator"], known["offset"], known["state"]) == (0, 0, "Ongoing")


@pytest.mark.usefixtures("quiet")
def test_what_cannot_be_read_is_listed_with_its_bytes(tmp_path: Path) -> None:
    entries = [
        (key_of("a"), value_of()),
        (key_of("b"), b"\x00\x63new"),
        (b"\x00\x07", b"\xff"),
        (key_of("c"), value_of()),
    ]
    directory = write_state(tmp_path, 0, [*entries, (key_of("d"), value_of())])
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(data)
    set_log_start(tmp_path, STATE_TOPIC, 0, 1)
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, IDS)) == ["c.json", "problems.jsonl"]
    damage, share, beginning, version, kind = lines_at(tree, "problems.jsonl")
    assert (damage["file"], "CRC" in damage["reason"]) == (str(path), True)
    assert "it is unknown how many partitions __transaction_state has" in share["reason"]
    assert (beginning["file"], beginning["reason"][:19]) == (str(directory), "begins at offset 1:")
    assert (version["offset"], version["key"], version["value"]) == (1, "AAAAAWI=", "AGNuZXc=")
    assert "99" in version["reason"]
    assert (version["file"], version["topic"], version["partition"]) == (str(path), STATE_TOPIC, 0)
    assert (kind["offset"], kind["key"], kind["value"]) == (2, "AAc=", "/w==")
    assert "unknown record type 7" in kind["reason"]


def test_nothing_of_it_is_read_before_somebody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_states(tmp_path, 2, {"a": value_of()})
    reads = watch_reads(monkeypatch)
    tree = open_tree(tmp_path, options=TreeOptions(views=True))
    about = directory_at(tree, ".kfs")
    assert "transactions" in names(about)
    node = about.lookup("transactions")
    node.attributes()
    assert reads == []
    assert isinstance(node, Directory)
    assert "a.json" in names(node)
    assert reads


@pytest.mark.usefixtures("eager")
def test_it_follows_the_log(tmp_path: Path) -> None:
    entries = [(key_of("a"), value_of()), (key_of("b"), value_of()), (key_of("a"), value_of(transactionStatus=5))]
    whole = write_state(tmp_path / "more", 0, [*entries, (key_of("b"), None)])
    path = write_state(tmp_path / "data", 0, entries[:1]) / f"{0:020d}.log"
    data = (whole / path.name).read_bytes()
    tree = open_tree(tmp_path / "data")
    assert names(directory_at(tree, IDS)) == ["a.json", "problems.jsonl"]
    assert object_at(tree, f"{IDS}/a.json")["state"] == "Ongoing"
    path.write_bytes(data[: data.index((3).to_bytes(8, "big"))])
    assert names(directory_at(tree, IDS)) == ["a.json", "b.json", "problems.jsonl"]
    assert object_at(tree, f"{IDS}/a.json")["state"] == "CompleteAbort"
    path.write_bytes(data)
    assert names(directory_at(tree, IDS)) == ["a.json", "problems.jsonl"]
    with pytest.raises(NotFound):
        tree.resolve(f"{IDS}/b.json")
    shutil.rmtree(path.parent)
    assert names(directory_at(tree, IDS)) == ["problems.jsonl"]


def test_without_the_topic_it_is_empty_but_for_its_problems(tmp_path: Path) -> None:
    write_partition(tmp_path / "orders-0", {0: dense(0, 9)})
    tree = open_tree(tmp_path)
    assert names(directory_at(tree, IDS)) == ["problems.jsonl"]
    assert content_of(tree, f"{IDS}/problems.jsonl") == b""


def test_every_node_has_attributes_and_an_id_that_leads_back(tmp_path: Path) -> None:
    write_states(tmp_path, 2, {each: value_of() for each in ("a", "/", "x" * 300, "")})
    tree = open_tree(tmp_path, options=TreeOptions(views=True))
    found = [listed.path for listed in every_node(tree, IDS)]
    assert len(found) == 5
    for path in found:
        node = tree.resolve(path)
        attributes = node.attributes()
        assert tree.path(attributes.node_id) == path
        assert isinstance(node, File)
        assert attributes.size == len(content_of(tree, path))
