"""The kinds of files that can be dumped, by name, and the dumpable files of a directory in order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.log_dir import CHECKPOINTS, META_PROPERTIES
from kfs.log.partition_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, QUORUM_STATE
from kfs.storage.listing import list_directory
from kfs.storage.status import PathKind, status_at

_NUMBER: Final = re.compile(r"[0-9]{1,19}\Z")
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint\Z")


class FileKind(Enum):
    """The kind of a file's content."""

    LOG = auto()
    SNAPSHOT = auto()
    OFFSET_INDEX = auto()
    TIME_INDEX = auto()
    TRANSACTION_INDEX = auto()
    PRODUCER_SNAPSHOT = auto()
    LEADER_EPOCHS = auto()
    OFFSET_CHECKPOINT = auto()
    PARTITION_METADATA = auto()
    META_PROPERTIES = auto()
    QUORUM_STATE = auto()


_BY_SUFFIX: Final = {
    ".log": FileKind.LOG,
    ".checkpoint": FileKind.SNAPSHOT,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".txnindex": FileKind.TRANSACTION_INDEX,
    ".snapshot": FileKind.PRODUCER_SNAPSHOT,
}
_BY_NAME: Final = {
    LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCHS,
    **dict.fromkeys(CHECKPOINTS, FileKind.OFFSET_CHECKPOINT),
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    QUORUM_STATE: FileKind.QUORUM_STATE,
}


def kind_of(path: str) -> FileKind | None:
    """Return the kind of a file by its name, None if it can't be dumped."""
    name = os.path.basename(path)
    return _BY_NAME.get(name) or _BY_SUFFIX.get(name[name.rfind(".") :] if "." in name else "")


def base_offset(path: str) -> int:
    """Return the offset at the beginning of a file's name.

    Raises:
        CorruptData: the name doesn't begin with an offset.
    """
    text = os.path.basename(path).partition(".")[0].lstrip("0") or "0"
    if not _NUMBER.match(text) or int(text) > MAX_INT64 or not os.path.basename(path)[0].isdigit():
        raise CorruptData("the name doesn't begin with an offset", 0, path)
    return int(text)


def snapshot_end(path: str) -> tuple[int, int]:
    """Return the end offset and the epoch in the name of a metadata snapshot.

    Raises:
        CorruptData: it isn't the name of a snapshot.
    """
    match = _SNAPSHOT.match(os.path.basename(path))
    if match is None:
        raise CorruptData("not the name of a snapshot: its end offset (20 digits), its epoch (10)", 0, path)
    return int(match[1]), int(match[2])


def files_of(path: str) -> Iterator[str]:
    """Yield the file, or all dumpable files below the directory, sorted by name; links to directories aren't followed.

    Raises:
        OSError: the path doesn't exist, or a directory can't be listed.
    """
    if status_at(path).kind is not PathKind.DIRECTORY:
        yield path
        return
    for found in sorted(list_directory(path)):
        if found.kind is PathKind.DIRECTORY and not found.is_link:
            yield from files_of(found.path)
        elif kind_of(found.name) is not None:
            yield found.path
