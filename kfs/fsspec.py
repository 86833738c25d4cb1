"""``kfs://``: the tree that a mount shows, as an fsspec filesystem, for machines without FUSE.

::

    fsspec.open("kfs://launch_info/0/segment/00000000000000368769.jsonl", log_dirs="/var/lib/kafka/data")
    pandas.read_json("kfs://launch_info/0/records.jsonl::file:///var/lib/kafka/data", lines=True)

Where kfs is installed, fsspec finds it by its entry point. See ``docs/FSSPEC.md`` for more.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from glob import has_magic
from typing import TYPE_CHECKING, Any, Final, NoReturn

from fsspec.spec import AbstractFileSystem
from fsspec.utils import glob_translate, stringify_path, tokenize

from kfs.errors import CorruptData, IsADirectory, KfsError, Shortage, SourceLost
from kfs.log.problem import DamagePolicy
from kfs.log.storage import DEFAULT_CACHE_BYTES, DEFAULT_MAX_BATCH_BYTES
from kfs.read.isolation_level import IsolationLevel
from kfs.tree.node import Attributes, Directory, Entry, File, Node, Symlink, Tree, settled
from kfs.tree.options import DEFAULT_RENDERED_BYTES
from kfs.tree.source import TreeSource

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: The number of bytes to read at once from a file that is read to its end.
_PORTION: Final = 1024 * 1024
#: The read-ahead of an open file for small reads; reads of the tree are cheap, so it is small.
_BUFFER: Final = 128 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL: Final = (None, "file", "local")

#: fsspec's description of a file or directory.
Info = dict[str, Any]


class KafkaFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Kafka's log directories as a read-only filesystem; paths are as in a mount, without a leading slash.

    Symlinks are followed: ``type`` is that of the target, while ``islink`` and ``destination`` describe the link.
    ``size`` is exact. In a listing it is None if it would need a pass over data (``info`` then has it), or if the
    record can't be read. Threads may share an instance, and forked processes can continue to use it. It is pickled by
    its options.
    """

    protocol = "kfs"
    root_marker = ""

    def __init__(
        self,
        log_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        *,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        topics: str | Sequence[str] = (),
        views: bool = False,
        isolation: str = IsolationLevel.READ_UNCOMMITTED,
        on_damage: str = "fail",
        until_high_watermark: bool = False,
        until_now: bool = False,
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES + DEFAULT_RENDERED_BYTES,
        **storage_options: Any,
    ) -> None:
        """Open log directories; the options are those of the commands, and ``on_damage`` is ``"fail"`` or ``"skip"``.

        fsspec sets ``fo``, ``target_protocol`` and ``target_options`` from the rest of a chained URL.

        Raises:
            ValueError: there is no log directory, one isn't a local file, or an option has an invalid value.
            OSError: a log directory is missing, unreadable, or has no Kafka files.
        """
        super().__init__(**storage_options)
        if target_protocol not in _LOCAL:
            raise ValueError(f"log directories have to be local files, not {target_protocol}://")
        paths = _paths(fo if log_dirs is None else log_dirs)
        if on_damage not in list(DamagePolicy):
            raise ValueError(
                f"on_damage is {on_damage!r}, expected {' or '.join(repr(each.value) for each in DamagePolicy)}"
            )
        if until_high_watermark and until_now:
            raise ValueError("until_high_watermark and until_now exclude each other")
        self.log_dirs: Final = paths
        source = TreeSource(
            views,
            on_damage,
            "now" if until_now else "hw" if until_high_watermark else "end",
            isolation,
            (topics,) if isinstance(topics, str) else tuple(topics),
            max_batch_bytes,
            cache_bytes,
        )
        with _translated(", ".join(paths)):
            self.tree: Tree = source.open(paths)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return a path as it is in the tree: without protocol, with slashes only between names."""
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text: str = stringify_path(path)
        return "/".join(name for name in text.removeprefix("kfs://").split("/") if name)

    # -- descriptions

    def info(self, path: str, **_options: Any) -> Info:
        """Describe a file or directory; the first call for a file of many records reads them all to get the size."""
        path = self._strip_protocol(path)
        with _translated(path):
            return settled(lambda: self._info(path))

    def _info(self, path: str) -> Info:
        node = self.tree.resolve(path)
        if isinstance(node, Symlink):
            return self._link_info(path, node)
        return _described(path, node.attributes())

    def _link_info(self, path: str, link: Symlink) -> Info:
        return _described(path, self.tree.follow(path).attributes()) | {"islink": True, "destination": link.target()}

    def ls(self, path: str, detail: bool = True, *, sized: bool = True, **_options: Any) -> list[Any]:
        """List a directory in its own order, or the file at ``path``: descriptions, or only names.

        Without ``detail``, no records are read. The same holds for descriptions without ``sized``, which fsspec's own
        methods request.
        """
        path = self._strip_protocol(path)
        with _translated(path):
            node = self.tree.follow(path)
            if not isinstance(node, Directory):
                return [self.info(path)] if detail else [path]
            above = f"{path}/" if path else ""
            if not detail:
                return [above + entry.name for entry in node.entries(with_attributes=False)]
            return [self._listed(above + entry.name, entry) for entry in node.entries(with_attributes=sized)]

    def _listed(self, path: str, entry: Entry) -> Info:
        if not stat.S_ISLNK(entry.mode):
            return _unsized(path, entry) if entry.attributes is None else _described(path, entry.attributes)
        try:
            return self.info(path)
        except FileNotFoundError:  # the link's target was deleted meanwhile
            return _unsized(path, entry) | {"type": "other", "islink": True}
        except OSError as error:
            if not isinstance(error.__cause__, CorruptData):
                raise
            return _unsized(path, entry) | {"islink": True}

    def exists(self, path: str, **_options: Any) -> bool:
        """Whether ``path`` exists; a record in damaged bytes doesn't, in the sense of ``os.path.exists``."""
        return self._node(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether ``path`` is a directory."""
        return isinstance(self._node(path), Directory)

    def isfile(self, path: str) -> bool:
        """Whether ``path`` is a file."""
        return isinstance(self._node(path), File)

    def _node(self, path: str) -> Node | None:
        """Return the node at ``path``, following links, without its size."""
        try:
            return self.tree.follow(self._strip_protocol(path))
        except (Shortage, SourceLost) as error:
            raise OSError(error.errno, str(error), path) from error
        except KfsError:
            return None

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, on_error: Any = "omit", **options: Any
    ) -> Iterator[Any]:
        """See fsspec; sizes are computed only with ``detail``."""
        options.setdefault("sized", options.get("detail", False))
        found: Iterator[Any] = super().walk(path, maxdepth, topdown, on_error, **options)
        return found

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """See fsspec; sizes are computed only with ``detail``."""
        options.setdefault("sized", detail)
        return super().find(path, maxdepth, withdirs, detail, **options)

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        """Return the paths that match a pattern, sorted; with ``detail``, descriptions by path.

        Without ``**`` in the pattern, only directories with a matching path are listed. A part without wildcards is
        looked up by name, so it may be an entry that isn't listed: ``orders/*/value/5``.
        """
        pattern = self._strip_protocol(path)
        if "**" in pattern or maxdepth is not None or not has_magic(pattern):
            return super().glob(path, maxdepth, **options)
        detail = options.get("detail", False)
        kinds = {"directory"} if options.get("withdirs", True) else set()
        if not stringify_path(path).endswith("/"):
            kinds.add("file")
        matching = self._matching("", pattern.split("/"), sized=detail)
        found = {info["name"]: info for info in matching if info["type"] in kinds}
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    def _matching(self, above: str, names: Sequence[str], *, sized: bool) -> Iterator[Info]:
        """Yield what is below the directory ``above`` and matches one pattern per level."""
        name, *rest = names
        if not has_magic(name):
            path = f"{above}/{name}" if above else name
            if rest:
                yield from self._matching(path, rest, sized=sized)
            elif self.exists(path):
                yield self.info(path) if sized else {"name": path, "type": "directory" if self.isdir(path) else "file"}
            return
        if not self.isdir(above):
            return
        matches = re.compile(glob_translate(name)).match
        for info in self.ls(above, sized=sized and not rest):
            if not matches(info["name"].rpartition("/")[2]):
                continue
            if not rest:
                yield info
            elif info["type"] == "directory":
                yield from self._matching(info["name"], rest, sized=sized)

    def modified(self, path: str) -> datetime:
        """Return the time of a record, or the modification time of the underlying files; UTC."""
        return _EPOCH + timedelta(seconds=self.info(path)["mtime"])

    def created(self, path: str) -> datetime:
        """Return the same as :meth:`modified`; a creation time isn't known."""
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """Return a text that changes with the file and is the same in every process."""
        info = self.info(path)
        token: str = tokenize(self.log_dirs, info["name"], info["size"], info["mtime"])
        return token

    def checksum(self, path: str) -> int:
        """Return :meth:`ukey` as a number."""
        return int(self.ukey(path), 16)

    # -- content

    def _file(self, path: str) -> File:
        node = self.tree.follow(path)
        if not isinstance(node, File):
            raise IsADirectory(f"{path} is a directory")
        return node

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_options: Any) -> bytes:
        """Return a file's bytes, or those from ``start`` up to ``end``; negative ones count from the end."""
        path = self._strip_protocol(path)
        with _translated(path):
            return settled(lambda: self._range_of(path, slice(start, end)))

    def _range_of(self, path: str, wanted: slice) -> bytes:
        file = self._file(path)
        first, stop, _ = wanted.indices(file.attributes().size)
        return file.read(first, stop - first) if first < stop else b""

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **_options: Any) -> TreeFile:
        path = self._strip_protocol(path)
        if mode != "rb":
            self._refuse(path)
        with _translated(path):
            raw = _RawFile(path, settled(lambda: self._file(path)))
        return TreeFile(self, raw, block_size if isinstance(block_size, int) and block_size > 0 else _BUFFER)

    # -- unsupported operations

    def _refuse(self, path: object = "", *_arguments: Any, **_options: Any) -> NoReturn:
        """Raise EROFS: nothing is ever written."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    mkdir = makedirs = rmdir = touch = rm = _rm = rm_file = mv = cp_file = copy = _refuse
    pipe_file = pipe = put_file = put = _refuse


class TreeFile(io.BufferedReader):
    """An open file of the tree."""

    def __init__(self, fs: KafkaFileSystem, raw: _RawFile, buffer_size: int) -> None:
        super().__init__(raw, buffer_size)
        self.fs = fs
        self.path = raw.name
        self._info = raw.info

    @property
    def size(self) -> int:
        """The exact size in bytes."""
        size: int = self._info()["size"]
        return size

    @property
    def details(self) -> Info:
        """The current :meth:`KafkaFileSystem.info` of this file, even if its name belongs to another file by now."""
        return self._info()


class _RawFile(io.RawIOBase):
    """Reads a file from an advancing position."""

    mode = "rb"

    def __init__(self, path: str, file: File) -> None:
        super().__init__()
        self.name = path
        self._file = file
        self._position = 0

    def info(self) -> Info:
        with _translated(self.name):
            return _described(self.name, self._file.attributes())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            with _translated(self.name):
                offset += self._file.attributes().size
        elif whence != os.SEEK_SET:
            raise ValueError(f"whence is {whence}, expected 0, 1 or 2")
        if offset < 0:
            raise OSError(errno.EINVAL, f"seek to {offset}", self.name)
        self._position = offset
        return offset

    def tell(self) -> int:
        self._check_open()
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        self._check_open()
        return b"".join(iter(lambda: self._read(_PORTION), b""))

    def _read(self, size: int) -> bytes:
        """Read and advance; before damage, first return all bytes in front of it, then raise the error."""
        with _translated(self.name):
            while True:
                try:
                    data = self._file.read(self._position, size)
                except CorruptData as error:
                    if size <= 1 or error.errno != errno.EIO:
                        raise
                    size //= 2
                else:
                    self._position += len(data)
                    return data

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def _paths(log_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> list[str]:
    if isinstance(log_dirs, str | os.PathLike):
        log_dirs = [log_dirs]
    if not log_dirs:
        raise ValueError("no log directory: name it with log_dirs=..., or at the end of the URL, as ::file:///path")
    return [os.path.abspath(os.fspath(path).removeprefix("file://")) for path in log_dirs]


def _described(path: str, attributes: Attributes) -> Info:
    """Return fsspec's info of a file or directory."""
    time = attributes.mtime_ns / 1e9
    return {
        "name": path,
        "size": attributes.size,
        "type": "directory" if attributes.is_directory else "file",
        "created": time,
        "islink": False,
        "mode": attributes.mode,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "mtime": time,
        "ino": attributes.node_id,
        "nlink": attributes.nlink,
    }


def _unsized(path: str, entry: Entry) -> Info:
    kind = "directory" if stat.S_ISDIR(entry.mode) else "file"
    return {"name": path, "size": None, "type": kind, "islink": False, "mode": entry.mode, "ino": entry.node_id}


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Convert kfs errors to those of the operating system: ``FileNotFoundError``, ``NotADirectoryError``, EIO, ..."""
    try:
        yield
    except KfsError as error:
        raise OSError(error.errno, str(error), path) from error
