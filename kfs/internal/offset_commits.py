"""Committed offsets, replayed as in ``OffsetMetadataManager.java``: the newest per group, topic and partition.

A million commits may have only a few thousand keys. So only the newest value of each key is kept, undecoded, and
decoded on demand. A transactional commit is pending until its producer's marker. When it is committed, it counts unless
a plain commit follows it in the log. A tombstone also removes pending commits of its key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from kfs.format.java_text import java_text
from kfs.internal.topics import GROUP_KINDS

#: An undecoded commit: the offset of its record, and its value.
RawCommit: TypeAlias = tuple[int, bytes]

#: A commit in an open transaction: the producer id, the canonical key, and the commit.
PendingCommit: TypeAlias = tuple[int, bytes, RawCommit]

_LEGACY_OFFSET_COMMIT: Final = b"\x00\x00"
_OFFSET_COMMIT: Final = b"\x00\x01"
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_GROUP_AT: Final = 4  # after the type and the length of the group


def canonical_key(key: bytes) -> bytes:
    """Return the canonical key of a commit, from the key of its record of type 0 or 1.

    Keys for the same group, topic and partition usually have the same bytes. They differ if one has the older type,
    trailing bytes, or bytes that aren't UTF-8.

    Raises:
        Malformed: it isn't the key of a commit.
    """
    renamed = _OFFSET_COMMIT + key[2:]
    if _is_canonical(renamed):
        return renamed
    fields = GROUP_KINDS.decode_key(key).fields
    group, topic, partition = str(fields["group"]).encode(), str(fields["topic"]).encode(), fields["partition"]
    assert isinstance(partition, int)
    try:
        encoded = _LENGTH.pack(len(group)), group, _LENGTH.pack(len(topic)), topic, _PARTITION.pack(partition)
    except struct.error:  # replacement of invalid UTF-8 made it too long: it equals no other key
        return renamed
    return _OFFSET_COMMIT + b"".join(encoded)


def _is_canonical(key: bytes) -> bool:
    topic_at = _GROUP_AT + int.from_bytes(key[2:4], "big")
    end = topic_at + 2 + int.from_bytes(key[topic_at : topic_at + 2], "big") + _PARTITION.size
    if end != len(key) or key[2] & 0x80 or key[topic_at] & 0x80:  # a negative length is invalid
        return False
    if key.isascii():
        return True
    try:
        key[_GROUP_AT:topic_at].decode()
        key[topic_at + 2 : -_PARTITION.size].decode()
    except UnicodeDecodeError:
        return False
    return True


def is_offset_commit(key: bytes) -> bool:
    """Whether the key of a record is that of a commit."""
    return key[:2] in (_LEGACY_OFFSET_COMMIT, _OFFSET_COMMIT)


def group_of(key: bytes) -> str:
    """Return the group in a canonical key."""
    return java_text(key[_GROUP_AT : _GROUP_AT + int.from_bytes(key[2:4], "big")])


class OffsetCommits:
    """The commits of one partition of ``__consumer_offsets``, by canonical key."""

    def __init__(self) -> None:
        self.committed: dict[bytes, RawCommit] = {}
        self._keys_of: dict[str, set[bytes]] = {}
        self._pending: dict[int, dict[bytes, RawCommit]] = {}
        #: The newest tombstone of each key, kept while transactions are open, because it removes their pending commits.
        self._deleted_at: dict[bytes, int] = {}
        self._pending_of: dict[str, list[PendingCommit]] | None = None

    def commit(self, key: bytes, commit: RawCommit) -> None:
        """Store a plain commit."""
        if key not in self.committed:
            self._keys_of.setdefault(group_of(key), set()).add(key)
        self.committed[key] = commit

    def commit_in_transaction(self, producer_id: int, key: bytes, commit: RawCommit) -> None:
        """Store a commit as pending until the producer's transaction ends."""
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = self._pending[producer_id] = {}
        pending[key] = commit
        self._pending_of = None

    def delete(self, key: bytes, record_offset: int) -> None:
        """Delete a key's commit and its pending commits."""
        if self.committed.pop(key, None) is not None:
            group = group_of(key)
            keys = self._keys_of[group]
            keys.discard(key)
            if not keys:
                del self._keys_of[group]
        if self._pending:
            self._deleted_at[key] = record_offset
            self._pending_of = None

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Apply or drop the pending commits of a producer."""
        pending = self._pending.pop(producer_id, None)
        if pending is None:
            return
        self._pending_of = None
        if is_committed:
            for key, commit in self._alive(pending):
                newest = self.committed.get(key)
                if newest is None or commit[0] > newest[0]:
                    self.commit(key, commit)
        if not self._pending:
            self._deleted_at.clear()

    def _alive(self, pending: dict[bytes, RawCommit]) -> Iterator[tuple[bytes, RawCommit]]:
        deleted_at = self._deleted_at
        for key, commit in pending.items():
            if not deleted_at or commit[0] > deleted_at.get(key, -1):
                yield key, commit

    # -- the current commits

    def groups(self) -> set[str]:
        """Return the groups with commits, including pending ones."""
        return {*self._keys_of, *self._pending_by_group()}

    def of_group(self, group: str) -> Iterator[tuple[bytes, RawCommit]]:
        """Yield the commits of a group, each with its canonical key."""
        for key in self._keys_of.get(group, ()):
            yield key, self.committed[key]

    def pending_of_group(self, group: str) -> list[PendingCommit]:
        """Return the pending commits of a group."""
        return self._pending_by_group().get(group, [])

    def _pending_by_group(self) -> dict[str, list[PendingCommit]]:
        if self._pending_of is None:
            by_group: dict[str, list[PendingCommit]] = {}
            for producer_id, pending in self._pending.items():
                for key, commit in self._alive(pending):
                    by_group.setdefault(group_of(key), []).append((producer_id, key, commit))
            self._pending_of = by_group
        return self._pending_of
