"""Topic names as names in the tree, and back."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.tree.names import topic_name, tree_name

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
