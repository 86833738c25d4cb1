"""Names in the tree: topics, and back, and segments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

ABOUT: str = ".kfs"
_PLAIN = re.compile(r"[a-zA-Z0-9._-]+\Z")
#: What a file's name may have, less what is put behind it.
_MOST_BYTES = 240
_KEPT_BYTES = 200
#: Percent signs that encode nothing: the name of what has an empty one, and what stands for the rest of a long one.
_EMPTY = "%"
_CUT = "%~"
_ENCODED = re.compile(rb"%([0-9A-F]{2})")


def tree_name(topic: str) -> str:
    """Return the name of a topic in the tree: its own, percent-encoded where Kafka would refuse it or we need it."""
    return _quoted(topic, os.fsencode(topic))


def _quoted(text: str, raw: bytes) -> str:
    if text in (ABOUT, ".", ".."):
        return text.replace(".", "%2E", 1) if text == ABOUT else text.replace(".", "%2E")
    if _PLAIN.match(text):
        return text
    return "".join(chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in raw)


def topic_name(name: str) -> str | None:
    """Return the topic whose name in the tree is ``name``, None where it is the name of none."""
    topic = os.fsdecode(_decoded(name))
    return topic if tree_name(topic) == name else None


def _decoded(name: str) -> bytes:
    return _ENCODED.sub(lambda match: bytes([int(match[1], 16)]), os.fsencode(name))


def file_name(text: str) -> str:
    """Return the name of a file for any text at all: as :func:`tree_name`, but an empty one and long ones have one too.

    Of a long one only the beginning is kept; a hash tells it from others.
    """
    if not text:
        return _EMPTY
    name = _quoted(text, text.encode())
    if len(name) <= _MOST_BYTES:
        return name
    import hashlib  # only here: hardly any name is that long

    return f"{name[:_KEPT_BYTES]}{_CUT}{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def group_name(group: str) -> str:
    """Return the name of a group's directory, which is none that a group's ``.json`` may have, nor another file."""
    name = file_name(group)
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}%2E{suffix}" if dot and suffix in ("json", "jsonl") else name


def group_of_name(name: str, groups: Iterable[str]) -> str | None:
    """Return the group whose name in the tree is ``name``, None if it is that of none; a cut one is of ``groups``."""
    return text_of_name(name, lambda: groups, group_name)


def text_of_name(
    name: str, texts: Callable[[], Iterable[str]], name_of: Callable[[str], str] = file_name
) -> str | None:
    """Return the text whose name is ``name``, None if it is that of none; for a cut one ``texts`` are gone through."""
    if _CUT in name:
        return next((text for text in texts() if name_of(text) == name), None)
    text = "" if name == _EMPTY else _decoded(name).decode(errors="replace")
    return text if name_of(text) == name else None


def segment_name(base_offset: int) -> str:
    """Return the name of a segment's file of lines."""
    return f"{base_offset:020d}.jsonl"


def segment_names(base_offset: int) -> tuple[str, str]:
    """Return all names that lead to a segment's file of lines."""
    return segment_name(base_offset), f"{base_offset}.jsonl"
