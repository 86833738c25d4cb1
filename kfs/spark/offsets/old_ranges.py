"""Offsets of older jobs: one value per application, a list of ``{topic, partition, fromOffset, untilOffset}``.

Some wrote JSON, some Python's ``str`` of the list (also Python 2's ``u'...'`` and ``10L``). The text is untrusted: only
the tokens of such a list reach :func:`ast.literal_eval`.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final

from kfs.errors import CorruptStore
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets.document import range_of
from kfs.spark.offsets.progress import ConsumedRange

#: Enough for about ten thousand partitions.
MAX_OLD_VALUE_BYTES: Final = 1024 * 1024
_TOKEN: Final = re.compile(
    r"""\s+ | [\[\](){},:] | u?'[^'\\\n]*' | u?"[^"\\\n]*" | (-?[0-9]{1,20})L? | None""", re.VERBOSE
)
#: The depth of a list of flat objects; deeper nesting is something else.
_DEEPEST: Final = 3
_SHOWN: Final = 40


def parse_old_ranges(content: bytes, place: str) -> tuple[ConsumedRange, ...]:
    """Return the ranges in such a value; ``place`` is for messages.

    Numbers may be strings; unknown fields are ignored.

    Raises:
        CorruptStore: it is something else, or has two ranges of one partition.
    """
    if len(content) > MAX_OLD_VALUE_BYTES:
        raise CorruptStore(place, f"more than {MAX_OLD_VALUE_BYTES:,} bytes: not a list of ranges")
    try:
        value = _parsed(content.decode())
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError) as error:
        start = content[:_SHOWN].decode("utf-8", "backslashreplace")
        raise CorruptStore(place, f"not a list of ranges, as JSON or as Python writes it: {start!r}: {error}") from None
    if not isinstance(value, list | tuple):
        raise CorruptStore(place, f"a list of ranges was expected, and a {type(value).__name__} is there")
    ranges: dict[TopicPartition, ConsumedRange] = {}
    for number, fields in enumerate(value, 1):
        try:
            found = range_of(_with_numbers(fields))
        except ValueError as error:
            raise CorruptStore(place, f"range {number} of {len(value)}: {error}") from None
        if ranges.setdefault(found.topic_partition, found) != found:
            raise CorruptStore(place, f"two ranges of {found.topic_partition}: can't tell which of them counts")
    return tuple(ranges.values())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return ast.literal_eval(_checked(text))


def _checked(text: str) -> str:
    """Return ``text`` without Python 2's ``L``, if it is made of brackets, names in quotes and whole numbers."""
    parts = []
    depth = position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"unexpected {text[position : position + _SHOWN]!r} at character {position}")
        depth += (token[0] in "[({") - (token[0] in "])}")
        if depth > _DEEPEST:
            raise ValueError(f"nested too deeply at character {position}")
        parts.append(token[1] or token[0])
        position = token.end()
    return "".join(parts).strip()


def _with_numbers(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {
        name: int(value) if name != "topic" and isinstance(value, str) and re.fullmatch("[0-9]{1,19}", value) else value
        for name, value in fields.items()
    }
