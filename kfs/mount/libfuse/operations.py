"""A tree behind the ``Operations`` interface that fusepy and mfusepy share."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import chain
from time import monotonic_ns
from types import TracebackType
from typing import NoReturn, Protocol

from kfs.metrics import Metric
from kfs.mount.errnos import Translator
from kfs.mount.libfuse.handles import Handles, Pages
from kfs.mount.libfuse.paths import Paths
from kfs.mount.listing import DOT_COOKIE, DOT_DOT_COOKIE, Listings
from kfs.mount.nodes import BLOCK_SIZE, OPENED_SECONDS, STATVFS, blocks, found
from kfs.mount.request_counts import RequestCounts, mount_info, request_metrics
from kfs.tree.node import Attributes, Node, Symlink, Tree

#: An entry as a binding's readdir yields it: name, attributes, resume point.
ListedName = tuple[str, dict[str, int], int]


class OpenedFile(Protocol):
    """The used fields of libfuse's ``struct fuse_file_info``."""

    fh: int
    keep_cache: int
    direct_io: int


class Operations:
    """The callbacks that the bindings call by name, with ``raw_fi``; each raises OSError.

    libfuse doesn't get callbacks for missing methods, and stops requesting them.
    """

    use_ns = True

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._paths = Paths(tree)
        self.translator = Translator()
        self.counts = RequestCounts()
        self._handles = Handles()
        self._listings = Listings()

    def metrics(self, front: str) -> Iterator[Metric]:
        """Yield what was counted since the mount began."""
        yield mount_info(front)
        yield from request_metrics((self.counts,))

    def getattr(self, path: str, opened: OpenedFile | None = None) -> dict[str, int]:
        with _Answering(self, "getattr", path):
            if opened is not None and opened.fh:
                return _stat(self._handles.attributes(opened.fh))
            attributes = self._paths.ask(_bytes(path), lambda node: node.attributes())
            self._handles.tell(_bytes(path), attributes)
            return _stat(attributes)

    def readlink(self, path: str) -> str:
        with _Answering(self, "readlink", path):
            node = self._paths.look_again(_bytes(path))
            if not isinstance(node, Symlink):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return node.target()

    def open(self, path: str, opened: OpenedFile) -> int:
        with _Answering(self, "open", path):
            name = _bytes(path)
            opened.fh, pages = self._handles.open(name, *self._paths.ask(name, found, OPENED_SECONDS))
            opened.keep_cache = pages is Pages.KEPT
            opened.direct_io = pages is Pages.PASSED_BY
            return 0

    def release(self, path: str | None, opened: OpenedFile) -> int:
        with _Answering(self, "release", path):
            self._handles.release(opened.fh)
            return 0

    def read(self, path: str, size: int, offset: int, opened: OpenedFile) -> bytes:
        with _Answering(self, "read", path):
            data = self._handles.read(opened.fh, offset, size)
            self.counts.add_read(len(data))
            return data

    def readdir(self, path: str, _fh: int) -> Iterator[ListedName]:
        with _Answering(self, "readdir", path):
            directory = self._paths.find_directory(_bytes(path))
            for name, node in ((".", directory), ("..", self._paths.find(_above(path)))):
                attributes = node.attributes()
                yield name, {"st_ino": attributes.node_id, "st_mode": attributes.mode}, 0
            for entry in directory.entries(with_attributes=False):
                yield entry.name, {"st_ino": entry.node_id, "st_mode": entry.mode}, 0

    def readdir_with_offset(self, path: str, offset: int, _fh: int) -> Iterator[ListedName]:
        """List names for mfusepy, which calls this instead: a listing of any length takes no memory."""
        with _Answering(self, "readdir", path):
            name = _bytes(path)
            directory = self._paths.find_directory(name)
            if offset == 0:
                yield ".", _identity(directory), DOT_COOKIE
            if offset in (0, DOT_COOKIE):
                yield "..", _identity(self._paths.find(_above(path))), DOT_DOT_COOKIE
            cookie = 0 if offset >= DOT_COOKIE else offset
            head, rest = self._listings.after(name, directory, cookie, False)
            for entry in chain(head, rest):
                try:
                    yield entry.name, {"st_ino": entry.node_id, "st_mode": entry.mode}, entry.cookie
                except GeneratorExit:
                    # The binding drops the generator at the entry that doesn't fit.
                    if cookie:
                        self._listings.pause(name, cookie, False, entry, rest)
                    raise
                cookie = entry.cookie

    def statfs(self, path: str) -> dict[str, int]:
        with _Answering(self, "statfs", path):
            return dict(STATVFS)

    def _refuse(self, *_arguments: object) -> NoReturn:
        """Refuse to write. The kernel does so itself, unless the mount was remounted ``rw``."""
        self.counts.add("write", monotonic_ns(), errno.EROFS)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    mknod = mkdir = unlink = rmdir = symlink = rename = link = chmod = chown = truncate = _refuse
    write = setxattr = removexattr = create = utimens = _refuse


class Latin1Operations(Operations):
    """For plain fusepy, which calls the object and can't decode names that aren't UTF-8.

    It decodes names as Latin-1, which passes bytes through; this class converts them back.
    """

    def __call__(self, operation: str, *arguments: object) -> object:
        callback = getattr(self, operation)
        answer = callback(*(_from_latin1(given) if isinstance(given, str) else given for given in arguments))
        if operation == "readdir":
            return ((_to_latin1(name), attributes, cookie) for name, attributes, cookie in answer)
        return _to_latin1(answer) if isinstance(answer, str) else answer


class _Answering:
    """Counts a request, and turns any exception in its block into an OSError with the right errno."""

    __slots__ = ("_begun", "_operation", "_operations", "_path")

    def __init__(self, operations: Operations, operation: str, path: str | None) -> None:
        self._operations = operations
        self._operation = operation
        self._path = path
        self._begun = 0

    def __enter__(self) -> None:
        self._begun = monotonic_ns()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        number = 0
        if error is not None and not isinstance(error, GeneratorExit):
            number = self._operations.translator.errno_of(error, self._operation, self._path)
        self._operations.counts.add(self._operation, self._begun, number)
        if number:
            raise OSError(number, os.strerror(number)) from error


def _stat(attributes: Attributes) -> dict[str, int]:
    return {
        "st_ino": attributes.node_id,
        "st_mode": attributes.mode,
        "st_nlink": attributes.nlink,
        "st_uid": attributes.uid,
        "st_gid": attributes.gid,
        "st_size": attributes.size,
        "st_blocks": blocks(attributes.size),
        "st_blksize": BLOCK_SIZE,
        "st_atime": attributes.mtime_ns,
        "st_mtime": attributes.mtime_ns,
        "st_ctime": attributes.mtime_ns,
    }


def _identity(node: Node) -> dict[str, int]:
    attributes = node.attributes()
    return {"st_ino": attributes.node_id, "st_mode": attributes.mode}


def _above(path: str) -> bytes:
    return _bytes(path[: path.rfind("/")] or "/")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _from_latin1(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def _to_latin1(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
