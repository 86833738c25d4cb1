"""Positions in an SQLite file: the embedded default, for jobs whose driver stays on one machine.

The journal is a write-ahead log with ``synchronous=FULL``: a commit is on disk before it is acknowledged, with one
``fsync``, and readers never block the job. (``NORMAL``, usual with a write-ahead log, syncs at checkpoints only: a
power failure could undo an acknowledged commit, and files renamed since would count twice.) The write-ahead log needs
shared memory, so the file has to be on a local disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from kfs.errors import CorruptStore, NotFound, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets.document import MAX_DOCUMENT_BYTES, decode_document, encode_document
from kfs.spark.offsets.progress import Progress, check_position
from kfs.spark.offsets.store import DEFAULT_PATIENCE, Stored, Unreadable, WritableStore

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS kfs_groups (name TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS kfs_positions (group_name TEXT NOT NULL, topic TEXT NOT NULL, "
    "partition INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (group_name, topic, partition)) WITHOUT ROWID",
)
_BUSY_SECONDS: Final = 5.0
_UNREACHABLE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_CORRUPT: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_MISMATCH")

#: A group's state, and its topics, partitions and positions, as stored in the file.
_Rows = tuple[object, tuple[tuple[object, object, object], ...]]
_NO_ROWS: Final[_Rows] = (None, ())
#: For a group with an oversized value, which can't be read.
_TOO_LARGE: Final[_Rows] = (b"", ())


class SqliteStore(WritableStore):
    """The file at ``path``, made when something is first stored.

    A group is a row of ``kfs_groups`` (its fence and batch, as JSON) and its rows of
    ``kfs_positions``, which can be read with ``sqlite3``.
    """

    def __init__(self, path: str, patience: float = DEFAULT_PATIENCE) -> None:
        self.path = os.path.abspath(path)
        super().__init__(f"sqlite://{self.path}", patience)
        self._connection: sqlite3.Connection | None = None

    def groups(self) -> list[str]:
        """See :meth:`OffsetStore.groups`; raise :class:`NotFound` if there is no file."""
        with self._lock, self._errors():
            connection = self._connect()
            if connection is None:
                raise NotFound(f"{self.name}: no such file")
            if not _has_tables(connection):
                return []
            names = connection.execute("SELECT name FROM kfs_groups UNION SELECT group_name FROM kfs_positions")
            return sorted(str(name) for (name,) in names)

    def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _read(self, group: str) -> Stored:
        with self._errors():
            connection = self._connect()
            if connection is None or not _has_tables(connection):
                return Stored(Progress(), _NO_ROWS)
            with _transaction(connection, "DEFERRED"):
                rows = _rows_of(connection, group)
        return self._stored(group, rows)

    def _write(self, group: str, stored: Stored, progress: Progress) -> bool:
        state = encode_document(progress, with_positions=False).decode()
        with self._errors():
            connection = self._connect(create=True)
            assert connection is not None
            with _transaction(connection, "IMMEDIATE"):
                if _rows_of(connection, group) != stored.version:
                    return False
                positions = stored.progress.positions
                if stored.unreadable:
                    connection.execute("DELETE FROM kfs_groups WHERE name = ?", (group,))
                    connection.execute("DELETE FROM kfs_positions WHERE group_name = ?", (group,))
                    positions = {}
                connection.execute("INSERT OR REPLACE INTO kfs_groups VALUES (?, ?)", (group, state))
                connection.executemany(
                    "INSERT OR REPLACE INTO kfs_positions VALUES (?, ?, ?, ?)",
                    [
                        (group, partition.topic, partition.partition, position)
                        for partition, position in progress.positions.items()
                        if positions.get(partition) != position
                    ],
                )
        return True

    def _stored(self, group: str, rows: _Rows) -> Stored:
        place = f"{self.name}: group {group}"
        if rows is _TOO_LARGE:
            error = CorruptStore(place, f"a value of more than {MAX_DOCUMENT_BYTES:,} bytes")
            return Stored(Progress(), rows, (Unreadable(error),))
        positions: dict[TopicPartition, int] = {}
        unreadable = []
        for topic, partition, position in rows[1]:
            reason = _fault_of(topic, partition, position)
            if reason is not None:
                corrupt = CorruptStore(place, f"a row of kfs_positions{reason}")
                unreadable.append(Unreadable(corrupt, _partition_of(topic, partition)))
                continue
            assert isinstance(topic, str)
            assert isinstance(partition, int)
            assert isinstance(position, int)
            positions[TopicPartition(topic, partition)] = position
        stored = Stored.of(lambda: self._progress(place, rows[0], positions), rows)
        # An unparsable state doesn't affect the positions.
        progress = replace(stored.progress, positions=positions)
        return replace(stored, progress=progress, unreadable=(*unreadable, *stored.unreadable))

    def _progress(self, place: str, state: object, positions: dict[TopicPartition, int]) -> Progress:
        if state is None:
            return Progress(positions, note="rows from another program" if positions else "")
        if not isinstance(state, str):
            raise CorruptStore(place, "its state in kfs_groups is not text")
        return decode_document(state.encode("utf-8", "surrogateescape"), place, positions)

    def _connect(self, *, create: bool = False) -> sqlite3.Connection | None:
        """Return the connection, None if there is no file and none should be made."""
        if self._connection is None:
            if not create and not os.path.exists(self.path):
                return None
            uri = f"file:{quote(self.path)}?mode={'rwc' if create else 'rw'}"
            connection = sqlite3.connect(
                uri, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
            )
            # Invalid UTF-8 is detected where it is used, and hides nothing else.
            connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_DOCUMENT_BYTES)
            connection.execute("PRAGMA synchronous=FULL")
            self._connection = connection
        # Readers don't modify the file.
        if create and not _has_tables(self._connection):
            self._connection.execute("PRAGMA journal_mode=WAL")
            with _transaction(self._connection, "IMMEDIATE"):
                for statement in _TABLES:
                    self._connection.execute(statement)
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's exceptions."""
        try:
            yield
        except UnicodeDecodeError as error:  # the message in which SQLite quotes a damaged schema
            raise CorruptStore(self.name, "a damaged database") from error
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorname", "") or ""
            if kind.startswith(_UNREACHABLE):
                raise StoreUnreachable(f"{self.name}: another process has it locked") from error
            if kind.startswith(_CORRUPT):
                raise CorruptStore(self.name, f"{error}") from error
            raise OffsetStoreError(f"{self.name}: {self._why_not_opened() or error}") from error

    def _why_not_opened(self) -> str | None:
        """Return a reason that SQLite omits for a file that it can't open."""
        if os.path.isdir(self.path):
            return "is a directory"
        directory = os.path.dirname(self.path)
        return None if os.path.isdir(directory) else f"there is no directory {directory}"


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _has_tables(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('kfs_groups', 'kfs_positions')")
    return bool(tables.fetchone()[0] == len(_TABLES))


def _rows_of(connection: sqlite3.Connection, group: str) -> _Rows:
    try:
        state = connection.execute("SELECT state FROM kfs_groups WHERE name = ?", (group,)).fetchone()
        positions = tuple(
            connection.execute(
                "SELECT topic, partition, position FROM kfs_positions WHERE group_name = ? ORDER BY topic, partition",
                (group,),
            )
        )
    except sqlite3.DataError:
        return _TOO_LARGE
    return state[0] if state is not None else None, positions


def _fault_of(topic: object, partition: object, position: object) -> str | None:
    """Return the fault of a row of positions, or None."""
    if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(position, int)):
        return " has a value of another type"
    try:
        check_position(TopicPartition(topic, partition), position)
    except ValueError as error:
        return f": {error}"
    return None


def _partition_of(topic: object, partition: object) -> TopicPartition | None:
    """Return the partition of a row, None if it is invalid in Kafka."""
    if _fault_of(topic, partition, 0) is not None:
        return None
    assert isinstance(topic, str)
    assert isinstance(partition, int)
    return TopicPartition(topic, partition)
