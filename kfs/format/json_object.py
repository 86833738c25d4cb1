"""JSON in the small files that brokers keep next to their logs."""

from __future__ import annotations

import json
from typing import Any

from kfs.errors import CorruptData


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        CorruptData: it isn't JSON, or isn't an object.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CorruptData("not an object")
    return content
