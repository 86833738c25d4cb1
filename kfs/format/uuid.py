"""Kafka's topic and directory ids (``Uuid.java``): 16 bytes, written as 22 characters of unpadded base64url."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.text_lines import shown

UUID_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Uuid:
    """An id; ``str`` returns Kafka's form, which may contain ``-`` anywhere."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != UUID_SIZE:
            raise ValueError(f"a Uuid has {UUID_SIZE} bytes, not {len(self.raw)}")

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.raw).rstrip(b"=").decode("ascii")


ZERO_UUID: Final = Uuid(bytes(UUID_SIZE))


def parse_uuid(text: bytes, position: int = 0) -> Uuid:
    """Parse an id; errors have ``position``."""
    try:
        uuid = Uuid(base64.b64decode(text + b"==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise CorruptData(f"{shown(text)} is not an id of 22 base64url characters", position) from error
    # Python also accepts `+` and `/`, padding, and extra bits in the last character.
    if str(uuid).encode("ascii") != text:
        raise CorruptData(f"{shown(text)} is not how the id {uuid} is written", position)
    return uuid
