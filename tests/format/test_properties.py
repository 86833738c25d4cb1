"""``meta.properties`` is read as Kafka's ``MetaProperties`` reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.layout import MAX_INT32
from kfs.format.properties import (
    MAX_PROPERTIES_BYTES,
    MetaProperties,
    encode_meta_properties,
    encode_properties,
    parse_meta_properties,
    parse_properties,
)
from kfs.format.uuid import Uuid, parse_uuid
from tests.corpus import corpus_names
from tests.format.refusal import refused_at

node_ids = st.integers(0, MAX_INT32)
texts = st.text(st.characters(exclude_categories=["Cs"]))
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
metas = st.builds(MetaProperties, st.just(0), st.none() | node_ids, st.none() | texts, st.none() | uuids) | st.builds(
    MetaProperties, st.just(1), node_ids, texts, st.none() | uuids
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f_0.9.0.1", MetaProperties(0, 1, None)),
        ("f_0.10.2.2", MetaProperties(0, 1, None)),
        ("f_2.8.2_formats", MetaProperties(0, 1, "bjNOmbKQQqWJEu7EKLdRCw")),
        ("f_mixed", MetaProperties(0, 1, "m2E1OPNuQASYKE4aBpn3Zw")),
        ("a_v2", MetaProperties(1, 1, "c9P-qWxVqY1j_TjPg1PijQ", parse_uuid(b"NdNbgcMuW1FoqOWMY48qjQ"))),
        ("b_txn", MetaProperties(1, 1, "jqoSKCDigBe69tpGuxx2gw", parse_uuid(b"wG_Q8bT3g9cBO5Az8zbKYA"))),
        ("g_running", MetaProperties(1, 1, "Lqay2_mrja8KhrcOGxa9Vw", parse_uuid(b"AUhraovZvEaMVInswZVqIw"))),
    ],
)
def test_brokers_of_every_age(name: str, expected: MetaProperties, corpus: Callable[[str], Path]) -> None:
    assert parse_meta_properties((corpus(name) / "data" / "meta.properties").read_bytes()) == expected


@pytest.mark.parametrize("name", corpus_names())
def test_every_real_file_is_understood(name: str, corpus: Callable[[str], Path]) -> None:
    for file in [*corpus(name).rglob("meta.properties"), *corpus(name).rglob("server.properties")]:
        assert parse_properties(file.read_bytes())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b", {"a": "b"}),
        (b"a b", {"a": "b"}),
        (b"  a \t=\f b c ", {"a": "b c "}),
        (b"a==b", {"a": "=b"}),
        (b"a", {"a": ""}),
        (b"=b", {"": "b"}),
        (b"# a=b", {}),
        (b"  ! a=b", {}),
        (b"a=b#c", {"a": "b#c"}),
        (b"a\\=\\:\\ b=c", {"a=: b": "c"}),
        (b"a=\\tb\\q\\\\", {"a": "\tbq\\"}),
        (b"a=\\u00e9\\u4E2D\\ud83d\\ude00", {"a": "\u00e9\u4e2d\U0001f600"}),
        (b"a=\\ud83d", {"a": "\ufffd"}),
        (b"a=\xe9", {"a": "\u00e9"}),
        (b"a=b\r\na=c\r\n", {"a": "c"}),
        (b"", {}),
        (b"\n\n \n", {}),
    ],
)
def test_the_properties_format(line: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(line) == expected


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"a=b\nc=d\\\n", 4, "is continued"),
        (b"a=b\nc=\\u12\n", 4, "without four digits"),
    ],
)
def test_what_is_not_understood_is_refused(data: bytes, position: int, message: str) -> None:
    with pytest.raises(CorruptData, match=message) as raised:
        parse_properties(data)
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version=2\nnode.id=1\ncluster.id=x\n", "version 2, expected 0 or 1"),
        (b"version=one\n", "version is 'one'"),
        (b"version=1\ncluster.id=x\n", "without node.id"),
        (b"version=1\nbroker.id=1\ncluster.id=x\n", "without node.id"),
        (b"version=1\nnode.id=1\n", "without cluster.id"),
        (b"version=1\nnode.id=-1\ncluster.id=x\n", "node.id is '-1'"),
        (b"broker.id=2147483648\n", "broker.id is '2147483648'"),
        (b"directory.id=short\n", "'short' is not an id"),
        (b"directory.id=\\ud83d\n", "is not an id"),
    ],
)
def test_a_wrong_identity_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptData, match=message):
        parse_meta_properties(data)


def test_a_file_without_a_version_is_of_version_0() -> None:
    assert parse_meta_properties(b"broker.id=3\n") == MetaProperties(0, 3, None)


def test_hostile_lines_take_no_time() -> None:
    for line in (b"=" * 60_000, b" " * 60_000 + b"\\", b"a" * 60_000 + b"\\", b"\\" * 60_001, b"a " * 30_000 + b"\\"):
        assert refused_at(parse_properties, line) in (None, 0)
    with pytest.raises(LimitExceeded):
        parse_properties(b"#" * (MAX_PROPERTIES_BYTES + 1))


@given(st.dictionaries(texts, texts))
def test_properties_written_are_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties)) == properties


@given(metas)
def test_an_identity_written_is_read_back(meta: MetaProperties) -> None:
    assert parse_meta_properties(encode_meta_properties(meta)) == meta


keys = st.sampled_from([b"version", b"broker.id", b"node.id", b"cluster.id", b"directory.id"])
assignments = st.tuples(keys, st.binary(max_size=24)).map(b"=".join)


@given(st.binary() | st.lists(assignments).map(b"\n".join))
def test_garbage_raises_nothing_but_corrupt_data(data: bytes) -> None:
    assert 0 <= (refused_at(parse_meta_properties, data) or 0) <= len(data)
