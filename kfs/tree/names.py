"""Names in the tree: of topics, and back, and of segments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

ABOUT: str = ".kfs"
_PLAIN = re.compile(r"[a-zA-Z0-9._-]+\Z")
#: The most bytes of a file's name, without a suffix.
_MOST_BYTES = 240
_KEPT_BYTES = 200
#: Percent signs that encode nothing: the name of an empty text, and the placeholder for the rest of a long one.
_EMPTY = "%"
_CUT = "%~"
_ENCODED = re.compile(rb"%([0-9A-F]{2})")


def tree_name(topic: str) -> str:
    """Return a topic's name in the tree: its own, percent-encoded if Kafka would refuse it or we need it."""
    return _quoted(topic, os.fsencode(topic))


def _quoted(text: str, raw: bytes) -> str:
    if text in (ABOUT, ".", ".."):
        return text.replace(".", "%2E", 1) if text == ABOUT else text.replace(".", "%2E")
    if _PLAIN.match(text):
        return text
    return "".join(chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in raw)


def topic_name(name: str) -> str | None:
    """Return the topic with this name in the tree, or None."""
    topic = os.fsdecode(_decoded(name))
    return topic if tree_name(topic) == name else None


def _decoded(name: str) -> bytes:
    return _ENCODED.sub(lambda match: bytes([int(match[1], 16)]), os.fsencode(name))


def file_name(text: str) -> str:
    """Return a file name for any text: as :func:`tree_name`, but for empty and long ones, too.

    Of a long one only the beginning is kept, with a hash of the rest.
    """
    if not text:
        return _EMPTY
    name = _quoted(text, text.encode())
    if len(name) <= _MOST_BYTES:
        return name
    import hashlib  # imported here: hardly any name is that long

    return f"{name[:_KEPT_BYTES]}{_CUT}{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def group_name(group: str) -> str:
    """Return the name of a group's directory, which differs from every group's ``.json`` file and any other file."""
    name = file_name(group)
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}%2E{suffix}" if dot and suffix in ("json", "jsonl") else name


def group_of_name(name: str, groups: Iterable[str]) -> str | None:
    """Return the group with this name in the tree, or None; a shortened name is looked for in ``groups``."""
    return text_of_name(name, lambda: groups, group_name)


def text_of_name(
    name: str, texts: Callable[[], Iterable[str]], name_of: Callable[[str], str] = file_name
) -> str | None:
    """Return the text with this name, or None; for a shortened name, goes through ``texts``."""
    if _CUT in name:
        return next((text for text in texts() if name_of(text) == name), None)
    text = "" if name == _EMPTY else _decoded(name).decode(errors="replace")
    return text if name_of(text) == name else None


def segment_name(base_offset: int) -> str:
    """Return the name of a segment's file of lines."""
    return f"{base_offset:020d}.jsonl"


def segment_names(base_offset: int) -> tuple[str, str]:
    """Return all names of a segment's file of lines."""
    return segment_name(base_offset), f"{base_offset}.jsonl"
