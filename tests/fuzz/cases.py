"""From a number to a case: bytes that begin with a batch, sealed so that only its content can be found out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from random import Random
from typing import Final

from crc32c import crc32c

from kfs.format.codecs import Codec, compress
from kfs.format.layout import (
    BATCH_CRC_OFFSET,
    BATCH_CRC_START,
    BATCH_OVERHEAD,
    CODEC_MASK,
    LEGACY_CRC_OFFSET,
    LEGACY_CRC_START,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V1,
    MAGIC_V2,
    MAX_INT64,
)
from kfs.format.record import Record
from kfs.format.varint import encode_varint, encode_varlong
from tests.fuzz.mutations import INT32S, INT64S, TEXTS, VARINTS, mutate, splice
from tests.fuzz.seeds import Seed

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
#: The fields of a v2 header behind its magic: where they are and what they hold.
_FIELDS: Final = ((21, _INT16), (23, _INT32), (27, _INT64), (35, _INT64), (57, _INT32), (57, _INT32), (0, _INT64))
_LARGE: Final = 70_000  # beyond what a renderer makes room for unasked


def sealed(data: bytes | bytearray, *, with_length: bool = True) -> bytes:
    """Return the batch or message with its length and its CRC right again, as far as it is long enough to have any."""
    changed = bytearray(data)
    if len(changed) <= MAGIC_OFFSET:
        return bytes(changed)
    if with_length:
        _INT32.pack_into(changed, 8, len(changed) - LOG_OVERHEAD)
    if changed[MAGIC_OFFSET] != MAGIC_V2:
        _UINT32.pack_into(changed, LEGACY_CRC_OFFSET, zlib.crc32(memoryview(changed)[LEGACY_CRC_START:]))
    elif len(changed) > BATCH_CRC_START:
        _UINT32.pack_into(changed, BATCH_CRC_OFFSET, crc32c(memoryview(changed)[BATCH_CRC_START:]))
    return bytes(changed)


def _sealed_messages(payload: bytes) -> bytes:
    """Return messages that follow one another with right CRCs, up to where they stop doing so."""
    parts, at = [], 0
    while len(payload) - at > MAGIC_OFFSET:
        size = LOG_OVERHEAD + int(_INT32.unpack_from(payload, at + 8)[0])
        if not LEGACY_CRC_START < size <= len(payload) - at:
            break
        parts.append(sealed(payload[at : at + size], with_length=False))
        at += size
    return b"".join((*parts, payload[at:]))


class CaseMaker:
    """Makes cases of seeds; the same number makes the same case."""

    def __init__(self, seeds: Sequence[Seed], seed: int) -> None:
        self.seeds = seeds
        self.batches = [one for one in seeds if one.header.magic == MAGIC_V2]
        self.with_records = [one for one in self.batches if one.records]
        self.seed = seed

    def case(self, number: int) -> bytes:
        """Return the bytes of a case: a batch, or several behind one another."""
        random = Random(self.seed << 40 | number)
        kind = random.random()
        if kind < 0.35:
            return self._with_payload(random, random.choice(self.seeds))
        if kind < 0.65:
            return self._rewritten(random, random.choice(self.with_records))
        if kind < 0.85:
            return self._outside(random, random.choice(self.seeds))
        return self._log(random)

    def _outside(self, random: Random, seed: Seed) -> bytes:
        """Mutate a batch as it is on the disk: its header, and compressed bytes as they are."""
        data = bytearray(seed.data)
        if seed.header.magic == MAGIC_V2 and random.random() < 0.5:
            _spoil_header(random, data)
            return sealed(data)
        first = LEGACY_CRC_START if random.random() < 0.5 else min(BATCH_OVERHEAD, len(data))
        return sealed(data[:first] + mutate(random, bytes(data[first:])))

    def _with_payload(self, random: Random, seed: Seed) -> bytes:
        """Mutate what is inside, and compress that, perhaps by another codec."""
        # A message with a wrong length is refused with all others in its wrapper: rarer, or nothing else is tried.
        is_at_spots = seed.header.magic == MAGIC_V2 or random.random() < 0.3
        payload = mutate(random, seed.payload, seed.spots if is_at_spots else ())
        if random.random() < 0.1:
            payload = splice(random, payload, random.choice(self.seeds).payload)
        if seed.header.magic != MAGIC_V2 and random.random() < 0.7:
            payload = _sealed_messages(payload)
        if seed.header.magic == MAGIC_V2:
            return _batch(random, seed, payload)
        return payload if seed.codec is Codec.NONE else _wrapper(random, seed, payload)

    def _rewritten(self, random: Random, seed: Seed) -> bytes:
        """Write real records anew, most of what is said of them true: so that the next thing is looked at, too."""
        honesty = random.choice((1.0, 0.99, 0.95))
        start = random.randrange(len(seed.records))
        records = seed.records[start : start + random.randint(1, 6)]
        writer = _RecordWriter(random, honesty)
        base = records[0]
        payload = b"".join(writer.record(one, base) for one in records)
        data = bytearray(_batch(random, seed, payload))
        _INT32.pack_into(data, 23, records[-1].offset - base.offset)
        _INT32.pack_into(data, 57, len(records))
        if random.random() > honesty:
            _spoil_header(random, data)
        return sealed(data)

    def _log(self, random: Random) -> bytes:
        """Put several batches behind one another, or messages, each offset after the one before it."""
        magic = random.choice((0, 1, MAGIC_V2, MAGIC_V2, MAGIC_V2))
        offset = random.choice((0, 0, 7, 2**31 - 2, 2**40, MAX_INT64 - 5, MAX_INT64))
        alike = [one for one in self.seeds if one.header.magic == magic]
        parts = []
        for _ in range(random.randint(2, 6)):
            seed = random.choice(alike)
            choice = random.random()
            data = bytearray(seed.data)
            if choice < 0.2:
                data = bytearray(self._with_payload(random, seed))
            elif choice < 0.4 and magic == MAGIC_V2:
                data = bytearray(self._rewritten(random, random.choice(self.with_records)))
            span = seed.header.last_offset - seed.header.base_offset
            if len(data) >= 8:
                _INT64.pack_into(data, 0, min(max(offset, 0), MAX_INT64))
            offset += span + 1 if random.random() < 0.95 else random.choice((0, -1, 1, 5))
            parts.append(bytes(data))
        log = b"".join(parts)
        return mutate(random, log) if random.random() < 0.2 else log


class _RecordWriter:
    """Writes records of v2, and lies now and then."""

    def __init__(self, random: Random, honesty: float) -> None:
        self.random = random
        self.honesty = honesty

    def record(self, record: Record, base: Record) -> bytes:
        body = b"".join(
            (
                b"\0",
                self._long(record.timestamp - base.timestamp),
                self._int(record.offset - base.offset),
                self._field(record.key),
                self._field(record.value),
                self._int(len(record.headers)),
                *(self._field(key) + self._field(value) for key, value in record.headers),
            )
        )
        return self._int(len(body)) + body

    def _lies(self) -> bool:
        return self.random.random() > self.honesty

    def _int(self, number: int) -> bytes:
        if not self._lies():
            return encode_varint(number)
        random = self.random
        return random.choice(VARINTS) if random.random() < 0.5 else encode_varint(number + random.choice((-1, 1)))

    def _long(self, number: int) -> bytes:
        return encode_varlong(self.random.choice(INT64S)) if self._lies() else encode_varlong(number)

    def _field(self, data: bytes | None) -> bytes:
        random = self.random
        if random.random() < 0.1:
            data = random.choice((None, b"", random.choice(TEXTS), random.choice(TEXTS) * 5, random.randbytes(9)))
            if random.random() < 0.02:
                data = (b"large " * _LARGE)[:_LARGE] + random.choice(TEXTS)
        return self._int(-1) if data is None else self._int(len(data)) + data


def _batch(random: Random, seed: Seed, payload: bytes) -> bytes:
    """Return a v2 batch like ``seed`` with that payload."""
    codec = seed.codec if random.random() < 0.8 else random.choice(list(Codec))
    header = bytearray(seed.data[:BATCH_OVERHEAD])
    header[22] = header[22] & ~CODEC_MASK | codec
    return sealed(header + compress(codec, payload, magic=MAGIC_V2))


def _wrapper(random: Random, seed: Seed, payload: bytes) -> bytes:
    """Return a compressed message like ``seed`` around those messages."""
    codec, header = seed.codec, seed.header
    if random.random() < 0.2:
        codec = random.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    value = compress(codec, payload, magic=header.magic)
    offset = header.base_offset if random.random() < 0.7 else random.choice((0, 0, 1, 2**31, MAX_INT64))
    timestamp = _INT64.pack(header.base_timestamp) if header.magic == MAGIC_V1 else b""
    key = b"" if random.random() < 0.9 else b"key"
    attributes = header.attributes & ~CODEC_MASK | codec
    lengths = (_INT32.pack(len(key) or -1), key, _INT32.pack(len(value)))
    return sealed(
        b"".join((_INT64.pack(offset), bytes(8), bytes((header.magic, attributes)), timestamp, *lengths, value))
    )


def _spoil_header(random: Random, data: bytearray) -> None:
    """Change a field or two of a v2 header."""
    for _ in range(random.randint(1, 2)):
        at, field = random.choice(_FIELDS)
        number = int(field.unpack_from(data, at)[0])
        if field is _INT16:
            number ^= 1 << random.randrange(8)
        elif random.random() < 0.5:
            number += random.choice((-1, 1))
        else:
            number = random.choice(INT32S if field is _INT32 else INT64S)
        bits = 8 * field.size
        field.pack_into(data, at, (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))
