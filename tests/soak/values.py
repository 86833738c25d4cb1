"""What a record of the soak says about itself, so that any reader can tell whether it stands where it belongs."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_MAGIC: Final = b"kfs-soak"
_FIELDS: Final = 7
_CHECKSUM_LENGTH: Final = 8
#: Every so many values aren't UTF-8, so that lines in base64 are read as well.
_BINARY_EVERY: Final = 9


class Fate(StrEnum):
    """What becomes of a record, decided before it is sent: outside of transactions it is ``PLAIN``."""

    PLAIN = "plain"
    COMMIT = "commit"
    ABORT = "abort"


class NotOurs(ValueError):
    """Bytes that no producer of the soak has sent: a wrong or mixed record."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """A record's identity: the ``generation`` counts the topics of that name, ``sequence`` the partition's records."""

    topic: str
    partition: int
    generation: int
    sequence: int
    timestamp: int
    fate: Fate

    def value(self, padding: int, rng: random.Random) -> bytes:
        """Return the record's value: the stamp, about ``padding`` bytes, and a checksum over all of it."""
        filler = rng.randbytes(padding // 2).hex().encode()
        if self.sequence % _BINARY_EVERY == 0:
            filler = b"\xff" + filler
        names = (self.topic, self.partition, self.generation, self.sequence, self.timestamp, self.fate)
        body = b"|".join((_MAGIC, *(str(each).encode() for each in names), filler, b""))
        return body + b"%08x" % zlib.crc32(body)

    @classmethod
    def parse(cls, value: bytes) -> Stamp:
        """Return the stamp of a value.

        Raises:
            NotOurs: it is not what a producer of the soak has made, byte for byte.
        """
        body, checksum = value[:-_CHECKSUM_LENGTH], value[-_CHECKSUM_LENGTH:]
        if b"%08x" % zlib.crc32(body) != checksum:
            raise NotOurs("the checksum doesn't fit")
        magic, *fields = body.split(b"|", _FIELDS)
        if magic != _MAGIC or len(fields) != _FIELDS:
            raise NotOurs("not a value of the soak")
        topic, *numbers, fate, _ = (field.decode("latin-1") for field in fields)
        partition, generation, sequence, timestamp = map(int, numbers)
        return cls(topic, partition, generation, sequence, timestamp, Fate(fate))


def key_bytes(topic: str, partition: int, generation: int, number: int) -> bytes | None:
    """Return the key with that number in a partition; -1 stands for null."""
    return None if number < 0 else f"{topic}/{partition}/{generation}/{number}".encode()
