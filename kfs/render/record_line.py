"""Parses a line of JSON into a record; an error message names the invalid field."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any, Final

from kfs.format.record import Header, Record, TimestampType

_TYPE_BY_LABEL: Final = {kind.label: kind for kind in TimestampType}
_MISSING: Final = object()
_MOST_SHOWN: Final = 40
_TEXT: Final = "text"
_TEXT_OR_NULL: Final = "text or null"


def parse_line(line: bytes | str) -> tuple[str, int, Record]:
    """Return the topic, partition and record of a line from :class:`~kfs.render.record_json.RecordJson`.

    Raises:
        ValueError: the line is invalid; the message has the field, its value and what was expected.
    """
    fields = _object(line)
    record = Record(
        _integer(fields, "offset"),
        _integer(fields, "timestamp"),
        _bytes(fields, "key", "keyEncoding"),
        _bytes(fields, "value", "valueEncoding"),
        _headers(fields),
        _timestamp_type(fields),
    )
    return _text(fields, "topic"), _integer(fields, "partition"), record


def _object(line: bytes | str) -> dict[str, Any]:
    try:
        text = line if isinstance(line, str) else line.decode()
        fields = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 from byte {error.start + 1} on") from None
    except JSONDecodeError as error:
        is_cut = error.pos >= len(text.rstrip())
        raise ValueError("truncated JSON" if is_cut else f"not JSON from character {error.pos + 1} on") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except ValueError:  # sys.set_int_max_str_digits
        raise ValueError("JSON with a number of too many digits") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{_shown(fields)}, expected the object of a record")
    return fields


def _integer(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, _MISSING)
    if type(value) is not int:  # isinstance would accept True
        raise _unexpected(name, value, "an integer")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, _MISSING)
    if not isinstance(value, str):
        raise _unexpected(name, value, _TEXT)
    return value


def _timestamp_type(fields: Mapping[str, Any]) -> TimestampType:
    value = fields.get("timestampType", _MISSING)
    found = _TYPE_BY_LABEL.get(value) if isinstance(value, str) else None
    if found is None:
        raise _unexpected("timestampType", value, f"one of {', '.join(_TYPE_BY_LABEL)}")
    return found


def _bytes(fields: Mapping[str, Any], name: str, encoding_name: str, place: str = "") -> bytes | None:
    """Return the bytes of a field, None for null; ``place`` precedes field names in messages."""
    text = fields.get(name, _MISSING)
    if text is None:
        return None
    if not isinstance(text, str):
        raise _unexpected(place + name, text, _TEXT_OR_NULL)
    encoding = fields.get(encoding_name)
    if encoding is None:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            surrogate = f"half of a surrogate pair as its character {error.start + 1}"
            raise ValueError(f"field {place}{name} has {surrogate}, expected text") from None
    if encoding != "base64":
        raise _unexpected(place + encoding_name, encoding, '"base64" or nothing')
    try:
        return b64decode(text, validate=True)
    except ValueError:
        reason = f"expected base64, as {encoding_name} says"
        raise ValueError(f"field {place}{name} is {_shown(text)}, {reason}") from None


def _headers(fields: Mapping[str, Any]) -> tuple[Header, ...]:
    headers = fields.get("headers", _MISSING)
    if not isinstance(headers, list):
        raise _unexpected("headers", headers, "a list")
    return tuple(_header(header, f"headers[{index}]") for index, header in enumerate(headers)) if headers else ()


def _header(header: Any, name: str) -> Header:
    if not isinstance(header, dict):
        raise _unexpected(name, header, "an object")
    place = f"{name}."
    key = _bytes(header, "key", "keyEncoding", place)
    if key is None:
        raise _unexpected(f"{place}key", None, _TEXT)
    return key, _bytes(header, "value", "encoding", place)


def _unexpected(name: str, value: object, expected: str) -> ValueError:
    if value is _MISSING:
        return ValueError(f"field {name} is missing, expected {expected}")
    return ValueError(f"field {name} is {_shown(value)}, expected {expected}")


def _shown(value: object) -> str:
    """Return a JSON value for a message: truncated, or for a list or object only its kind."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
