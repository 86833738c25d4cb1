"""Records of the coordinators' topics: groups, transactions, share groups (``CoordinatorRecordSerde.java``).

The key begins with the type of the record, an int16. The value begins with its version, another int16. A null value
deletes the entry of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.flexible import FlexibleReader
from kfs.internal.schema import Decoded, Malformed, Message

_KEY_VERSION: Final = 0  # the type takes its place, and no key schema has ever changed
_TYPE_SIZE: Final = 2


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A record type: its number, Kafka's name (``CoordinatorRecordType``), and the schemas of key and value."""

    id: int
    name: str
    key: Message
    value: Message


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A decoded record; a value of None deletes the entry."""

    kind: RecordKind
    key: Decoded
    value: Decoded | None


class UnknownRecordType(Malformed):
    """A record type that this version doesn't know; ``type_id`` is its number."""

    def __init__(self, type_id: int) -> None:
        reason = f"Found an unknown record type {type_id}"
        super().__init__(reason, 0, None, reason)
        self.type_id = type_id


class RecordKinds(Mapping[int, RecordKind]):
    """The kinds of records of a topic, by number."""

    def __init__(self, kinds: Iterable[RecordKind]) -> None:
        self._by_id = {kind.id: kind for kind in kinds}

    def __getitem__(self, type_id: int) -> RecordKind:
        return self._by_id[type_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord:
        """Decode a record of the topic.

        Raises:
            UnknownRecordType: the key has none of these types.
            Malformed: key or value don't match their type and version.
        """
        decoded_key = self.decode_key(key)
        kind = self.kind_of(key)
        return CoordinatorRecord(kind, decoded_key, None if value is None else self.decode_value(kind, value))

    def kind_of(self, key: bytes) -> RecordKind:
        """Return the kind of a record, by its key.

        Raises:
            UnknownRecordType: it has none of these types.
            Malformed: the key is too short.
        """
        type_id = _read_version(FlexibleReader(key), "key")
        kind = self._by_id.get(type_id)
        if kind is None:
            raise UnknownRecordType(type_id)
        return kind

    def decode_key(self, key: bytes) -> Decoded:
        """Decode the key of a record; the errors are those of :meth:`decode`."""
        kind = self.kind_of(key)
        return _decode(kind.key, FlexibleReader(key, _TYPE_SIZE), _KEY_VERSION, kind.id, "key")

    def decode_value(self, kind: RecordKind, value: bytes) -> Decoded:
        """Decode the value of a record of that kind; the errors are those of :meth:`decode`."""
        reader = FlexibleReader(value)
        version = _read_version(reader, "value")
        if version not in kind.value.versions:
            reason = f"Found an unknown record version {version} for {kind.id} type"
            raise Malformed(reason, 0, None, reason)
        return _decode(kind.value, reader, version, version, "value")


def _read_version(reader: FlexibleReader, what: str) -> int:
    try:
        return reader.read_int16()
    except CorruptData as error:
        raise Malformed(error.reason, 0, None, f"Could not read version from {what}'s buffer.") from None


def _decode(schema: Message, reader: FlexibleReader, version: int, shown_version: int, what: str) -> Decoded:
    try:
        return schema.decode(reader, version)
    except Malformed as error:
        kafka = f"Could not read record with version {shown_version} from {what}'s buffer due to: {error.kafka}."
        raise Malformed(error.reason, error.position, None, kafka) from None
