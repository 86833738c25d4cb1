"""Topic names as names in the tree, and back."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.tree.names import group_name, group_of_name, topic_name, tree_name

#: What a directory may be called, bytes that are no UTF-8 included.
directory_names = st.binary(min_size=1, max_size=20).filter(lambda name: b"/" not in name and b"\0" not in name)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"),
        ("a.b-c_D9", "a.b-c_D9"),
        (".kfs", "%2Ekfs"),
        (".kfs2", ".kfs2"),
        ("x.kfs", "x.kfs"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("%2Ekfs", "%252Ekfs"),
        ("ключ", "%D0%BA%D0%BB%D1%8E%D1%87"),
        ("a\nb", "a%0Ab"),
        (os.fsdecode(b"caf\xe9"), "caf%E9"),
    ],
)
def test_names_kafka_would_refuse_are_percent_encoded(topic: str, name: str) -> None:
    assert tree_name(topic) == name
    assert topic_name(name) == topic


@pytest.mark.parametrize(
    "name", [".kfs", ".", "..", "a b", "%2e", "%41", "%", "%4", "a%GG", "100%", "%2Ekfs2", "%61", "ключ", "a\nb"]
)
def test_names_that_no_topic_has_lead_to_none(name: str) -> None:
    assert topic_name(name) is None


@given(directory_names)
def test_every_name_has_one_form_and_leads_back(raw: bytes) -> None:
    topic = os.fsdecode(raw)
    name = tree_name(topic)
    assert name.isascii()
    assert "/" not in name
    assert name not in ("", ".", "..", ".kfs")
    assert topic_name(name) == topic


@given(st.text(max_size=12))
def test_a_name_is_that_of_one_topic_or_of_none(name: str) -> None:
    topic = topic_name(name)
    assert topic is None or tree_name(topic) == name


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("billing", "billing"),
        ("", "%"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        (".kfs", "%2Ekfs"),
        ("a/b c", "a%2Fb%20c"),
        ("łódź 🙂", "%C5%82%C3%B3d%C5%BA%20%F0%9F%99%82"),
        ("100%", "100%25"),
        ("a.json", "a%2Ejson"),
        (".json", "%2Ejson"),
        ("problems.jsonl", "problems%2Ejsonl"),
        ("a.json.json", "a.json%2Ejson"),
        ("json", "json"),
    ],
)
def test_any_group_has_a_name_that_is_no_files(group: str, name: str) -> None:
    assert group_name(group) == name
    assert group_of_name(name, []) == group


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a.json", "%41", "%2e", "%FF", "%%", "a%~b"])
def test_names_that_no_group_has_lead_to_none(name: str) -> None:
    assert group_of_name(name, ["a", "b"]) is None


@pytest.mark.parametrize("group", ["x" * 241, "x" * 32_767, "ź" * 100, "." * 300, "x" * 240 + ".json"])
def test_a_long_name_is_cut_and_told_from_others(group: str) -> None:
    name = group_name(group)
    assert len(name) + len(".next.json") <= 255
    assert name != group_name(group + "x")
    assert group_of_name(name, ["a", group, group + "x"]) == group


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text("./a%json~", max_size=300)))
def test_groups_have_different_names_that_lead_back(groups: list[str]) -> None:
    directories = {group_name(group): group for group in groups}
    assert len(directories) == len(set(groups))
    assert not {f"{name}.json" for name in directories} & set(directories)
    for name, group in directories.items():
        assert name.isascii()
        assert "/" not in name
        assert name not in ("", ".", "..", "problems.jsonl")
        assert len(name) <= 240
        assert group_of_name(name, groups) == group
