"""Names in the tree: topics, and back, and segments."""

from __future__ import annotations

import os
import re

ABOUT: str = ".kfs"
_PLAIN = re.compile(r"[a-zA-Z0-9._-]+\Z")
_ENCODED = re.compile(rb"%([0-9A-F]{2})")


def tree_name(topic: str) -> str:
    """Return the name of a topic in the tree: its own, percent-encoded where Kafka would refuse it or we need it."""
    if topic in (ABOUT, ".", ".."):
        return topic.replace(".", "%2E", 1) if topic == ABOUT else topic.replace(".", "%2E")
    if _PLAIN.match(topic):
        return topic
    return "".join(chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02X}" for byte in os.fsencode(topic))


def topic_name(name: str) -> str | None:
    """Return the topic whose name in the tree is ``name``, None where it is the name of none."""
    topic = os.fsdecode(_ENCODED.sub(lambda match: bytes([int(match[1], 16)]), os.fsencode(name)))
    return topic if tree_name(topic) == name else None


def segment_name(base_offset: int) -> str:
    """Return the name of a segment's file of lines."""
    return f"{base_offset:020d}.jsonl"


def segment_names(base_offset: int) -> tuple[str, str]:
    """Return all names that lead to a segment's file of lines."""
    return segment_name(base_offset), f"{base_offset}.jsonl"
