"""Positions in an SQLite file: the embedded default, for jobs whose driver stays on one machine.

The journal is a write-ahead log with ``synchronous=FULL``: a commit is on the disk before it is acknowledged, with one
``fsync``, and who only looks never makes the job wait. (``NORMAL``, the usual companion of a write-ahead log, syncs at
checkpoints only: a power failure could take back what was acknowledged, and files renamed since would count twice.)
The write-ahead log needs shared memory, so the file has to lie on a local disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from kfs.errors import CorruptStore, NotFound, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets.document import MAX_DOCUMENT_BYTES, decode_document, encode_document
from kfs.spark.offsets.progress import Progress, check_position
from kfs.spark.offsets.store import DEFAULT_PATIENCE, Stored, WritableStore

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS kfs_groups (name TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS kfs_positions (group_name TEXT NOT NULL, topic TEXT NOT NULL, "
    "partition INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (group_name, topic, partition)) WITHOUT ROWID",
)
_BUSY_SECONDS: Final = 5.0
_UNREACHABLE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_CORRUPT: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_MISMATCH")

#: A group's state, and its topics, partitions and positions, as they stand in the file.
_Rows = tuple[object, tuple[tuple[object, object, object], ...]]
_NO_ROWS: Final[_Rows] = (None, ())


class SqliteStore(WritableStore):
    """The file at ``path``, made when something is first stored.

    A group is a row of ``kfs_groups`` (its fence and batch, as JSON) and its rows of
    ``kfs_positions``, which anybody may look at with ``sqlite3``.
    """

    def __init__(self, path: str, patience: float = DEFAULT_PATIENCE) -> None:
        self.path = os.path.abspath(path)
        super().__init__(f"sqlite://{self.path}", patience)
        self._connection: sqlite3.Connection | None = None

    def groups(self) -> list[str]:
        """See :meth:`OffsetStore.groups`; raise :class:`NotFound` where there is no file."""
        with self._lock, self._errors():
            connection = self._connect()
            if connection is None:
                raise NotFound(f"{self.name}: there is no such file")
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
        with self._errors(f"{self.name}: group {group}"):
            connection = self._connect()
            if connection is None or not _has_tables(connection):
                return Stored(Progress(), _NO_ROWS)
            with _transaction(connection, "DEFERRED"):
                rows = _rows_of(connection, group)
        return Stored(self._progress(group, rows), rows)

    def _write(self, group: str, stored: Stored, progress: Progress) -> bool:
        state = encode_document(progress, with_positions=False).decode()
        with self._errors(f"{self.name}: group {group}"):
            connection = self._connect(create=True)
            assert connection is not None
            with _transaction(connection, "IMMEDIATE"):
                if _rows_of(connection, group) != stored.version:
                    return False
                connection.execute("INSERT OR REPLACE INTO kfs_groups VALUES (?, ?)", (group, state))
                connection.executemany(
                    "INSERT OR REPLACE INTO kfs_positions VALUES (?, ?, ?, ?)",
                    [
                        (group, partition.topic, partition.partition, position)
                        for partition, position in progress.positions.items()
                        if stored.progress.positions.get(partition) != position
                    ],
                )
        return True

    def _progress(self, group: str, rows: _Rows) -> Progress:
        state, rows_of_positions = rows
        place = f"{self.name}: group {group}"
        positions = {}
        for topic, partition, position in rows_of_positions:
            if not (isinstance(topic, str) and isinstance(partition, int) and isinstance(position, int)):
                raise CorruptStore(place, "a row of kfs_positions has a value of another type")
            key = TopicPartition(topic, partition)
            try:
                check_position(key, position)
            except ValueError as error:
                raise CorruptStore(place, f"a row of kfs_positions: {error}") from None
            positions[key] = position
        if state is None:
            return Progress(positions, note="rows that something else has put there" if positions else "")
        if not isinstance(state, str):
            raise CorruptStore(place, "its state in kfs_groups is no text")
        return decode_document(state.encode(), place, positions)

    def _connect(self, *, create: bool = False) -> sqlite3.Connection | None:
        """Return the connection, None where there is no file and it isn't to be made."""
        if self._connection is None:
            if not create and not os.path.exists(self.path):
                return None
            uri = f"file:{quote(self.path)}?mode={'rwc' if create else 'rw'}"
            connection = sqlite3.connect(
                uri, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
            )
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_DOCUMENT_BYTES)
            connection.execute("PRAGMA synchronous=FULL")
            self._connection = connection
        # Who only looks leaves a file as it is.
        if create and not _has_tables(self._connection):
            self._connection.execute("PRAGMA journal_mode=WAL")
            with _transaction(self._connection, "IMMEDIATE"):
                for statement in _TABLES:
                    self._connection.execute(statement)
        return self._connection

    @contextmanager
    def _errors(self, place: str = "") -> Iterator[None]:
        """Translate what SQLite raises; ``place`` is whose rows are read."""
        try:
            yield
        except UnicodeDecodeError as error:  # the message in which SQLite quotes a damaged schema
            raise CorruptStore(self.name, "a damaged database") from error
        except sqlite3.DataError as error:
            raise CorruptStore(place or self.name, f"a value of more than {MAX_DOCUMENT_BYTES:,} bytes") from error
        except sqlite3.Error as error:
            kind = getattr(error, "sqlite_errorname", "") or ""
            if kind.startswith(_UNREACHABLE):
                raise StoreUnreachable(f"{self.name}: another process has it locked") from error
            if kind.startswith(_CORRUPT):
                raise CorruptStore(self.name, f"{error}") from error
            if str(error).startswith("Could not decode to UTF-8"):
                raise CorruptStore(place or self.name, "text that is not UTF-8") from error
            raise OffsetStoreError(f"{self.name}: {self._why_not_opened() or error}") from error

    def _why_not_opened(self) -> str | None:
        """Return what SQLite doesn't say of a file that it can't open."""
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
    state = connection.execute("SELECT state FROM kfs_groups WHERE name = ?", (group,)).fetchone()
    positions = connection.execute(
        "SELECT topic, partition, position FROM kfs_positions WHERE group_name = ? ORDER BY topic, partition", (group,)
    )
    return state[0] if state is not None else None, tuple(positions)
