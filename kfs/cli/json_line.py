"""Formats results as lines of JSON, with field names in the style of Kafka's own JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def json_line(result: DataclassInstance, **more: Any) -> str:
    """Return a dataclass, with ``more`` fields, as one line of JSON; ``log_end_offset`` becomes ``logEndOffset``."""
    return json.dumps({**_named(asdict(result)), **more}, separators=(",", ":"))


def _named(value: Any) -> Any:
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, dict):
        return {_camel_case(name): _named(item) for name, item in value.items()}
    return [_named(item) for item in value] if isinstance(value, list | tuple) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
