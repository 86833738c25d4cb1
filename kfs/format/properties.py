r"""``meta.properties``, which identifies a log root, and the part of Java's ``.properties`` format that it needs.

The parser accepts what ``Properties.store`` writes: comments, ``key=value``, backslash escapes. It also accepts some
manual edits: blanks around the ``=``, and a ``:`` instead. As in Java the bytes are ISO 8859-1, an unknown escape is
the character itself, and the later of two lines for one key counts. Continued lines are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT32
from kfs.format.text_lines import TextLine, parse_number, shown, split_lines
from kfs.format.uuid import Uuid, parse_uuid

MAX_PROPERTIES_BYTES: Final = 64 * 1024

_BLANK: Final = " \t\f"
# Possessive quantifiers prevent backtracking. Only a lone backslash at the end doesn't match.
_PROPERTY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+[=:]?+[ \t\f]*+((?:[^\\]|\\.)*+)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r"[^!-~]|[\\=:#!]")
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log root (``MetaProperties.java``); in version 0 (ZooKeeper) all other fields are optional."""

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: Uuid | None = None


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parse a ``meta.properties``."""
    properties = parse_properties(data)
    version = parse_number(properties.get("version", "0").encode(), MAX_INT32, "version", 0)
    if version > 1:
        raise CorruptData(f"meta.properties of version {version}, expected 0 or 1")
    node_id = properties.get(_node_id_key(version))
    cluster_id = properties.get("cluster.id")
    if version == 1 and (node_id is None or cluster_id is None):
        raise CorruptData(f"meta.properties of version 1 without {'node.id' if node_id is None else 'cluster.id'}")
    directory_id = properties.get("directory.id")
    return MetaProperties(
        version,
        None if node_id is None else parse_number(node_id.encode(), MAX_INT32, _node_id_key(version), 0),
        cluster_id,
        None if directory_id is None else parse_uuid(directory_id.encode()),
    )


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Encode a ``meta.properties``."""
    properties = {
        "version": meta.version,
        _node_id_key(meta.version): meta.node_id,
        "cluster.id": meta.cluster_id,
        "directory.id": meta.directory_id,
    }
    return encode_properties({key: str(value) for key, value in properties.items() if value is not None})


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the keys and values of a ``.properties`` file."""
    properties = {}
    for line in split_lines(data, MAX_PROPERTIES_BYTES):
        text = line.text.decode("iso-8859-1").lstrip(_BLANK)
        if text and text[0] not in "#!":
            match = _PROPERTY.fullmatch(text)
            if match is None:
                raise CorruptData(f"the line {shown(line.text)} is continued, expected key=value", line.position)
            properties[_unescape(match[1], line)] = _unescape(match[2], line)
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode a ``.properties`` file, in the order of ``properties``."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items()).encode("ascii")


def _node_id_key(version: int) -> str:
    return "broker.id" if version == 0 else "node.id"


def _unescape(text: str, line: TextLine) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise CorruptData(f"the line {shown(line.text)} has \\u without four digits", line.position)
        return _CONTROLS.get(escape[2], escape[2])

    # Two \u escapes may be a surrogate pair; a single surrogate is replaced.
    return _ESCAPE.sub(character, text).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _escape(text: str) -> str:
    def escaped(character: re.Match[str]) -> str:
        if character[0].isascii() and character[0].isprintable():
            return "\\" + character[0]
        units = character[0].encode("utf-16-be")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

    return _TO_ESCAPE.sub(escaped, text)
