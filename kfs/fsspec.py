"""``kfs://``: the tree that a mount shows, as an fsspec filesystem, for machines without FUSE.

::

    fsspec.open("kfs://launch_info/0/segment/00000000000000368769.jsonl", log_dirs="/var/lib/kafka/data")
    pandas.read_json("kfs://launch_info/0/records.jsonl::file:///var/lib/kafka/data", lines=True)

fsspec finds it by its entry point where kfs is installed. ``docs/FSSPEC.md`` says the rest.
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

#: What is read at once of a file that is read to its end.
_PORTION: Final = 1024 * 1024
#: How much an open file reads ahead of small reads: no more, as reads of the tree are cheap.
_BUFFER: Final = 128 * 1024
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL: Final = (None, "file", "local")

#: What fsspec calls the description of a file or directory.
Info = dict[str, Any]


class KafkaFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Kafka's log directories as a read-only filesystem; paths are those of a mount, without a leading slash.

    Symlinks are followed: their ``type`` is that of what they lead to, and ``islink`` and ``destination`` tell of them.
    ``size`` is exact, and None in a listing where it would cost a pass over data (``info`` then tells it), or where the
    record can't be read. Threads may share an instance, forked processes go on using it; it is pickled by its options.
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
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES + DEFAULT_RENDERED_BYTES,
        **storage_options: Any,
    ) -> None:
        """Open log directories; the options are those of the commands, and ``on_damage`` is ``"fail"`` or ``"skip"``.

        ``fo``, ``target_protocol`` and ``target_options`` are what fsspec makes of the rest of a chained URL.

        Raises:
            ValueError: no log directory is named, one is no local file, or an option has no such value.
            OSError: a log directory is missing, unreadable, or holds nothing of Kafka's.
        """
        super().__init__(**storage_options)
        if target_protocol not in _LOCAL:
            raise ValueError(f"log directories have to be local files, not {target_protocol}://")
        paths = _paths(fo if log_dirs is None else log_dirs)
        if on_damage not in list(DamagePolicy):
            raise ValueError(
                f"on_damage is {on_damage!r}, expected {' or '.join(repr(each.value) for each in DamagePolicy)}"
            )
        self.log_dirs: Final = paths
        source = TreeSource(
            views,
            on_damage,
            "hw" if until_high_watermark else "end",
            isolation,
            (topics,) if isinstance(topics, str) else tuple(topics),
            max_batch_bytes,
            cache_bytes,
        )
        with _translated(", ".join(paths)):
            self.tree: Tree = source.open(paths)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Return a path as it is in the tree: no protocol, and no slash but between names."""
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text: str = stringify_path(path)
        return "/".join(name for name in text.removeprefix("kfs://").split("/") if name)

    # -- what is there

    def info(self, path: str, **_options: Any) -> Info:
        """Describe a file or directory; of a file of many records the first time a pass over them, for its size."""
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
        """List a directory in its own order, or the file at ``path``: descriptions, or names only.

        Without ``detail`` no record has to be looked at; nor with descriptions that aren't ``sized`` (fsspec's own
        methods ask for those).
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
        except FileNotFoundError:  # what it leads to has just gone
            return _unsized(path, entry) | {"type": "other", "islink": True}
        except OSError as error:
            if not isinstance(error.__cause__, CorruptData):
                raise
            return _unsized(path, entry) | {"islink": True}

    def exists(self, path: str, **_options: Any) -> bool:
        """Whether there is something at ``path``; what lies in damaged bytes isn't there, as for ``os.path.exists``."""
        return self._node(path) is not None

    def isdir(self, path: str) -> bool:
        """Whether there is a directory."""
        return isinstance(self._node(path), Directory)

    def isfile(self, path: str) -> bool:
        """Whether there is a file."""
        return isinstance(self._node(path), File)

    def _node(self, path: str) -> Node | None:
        """Return what ``path`` leads to, without asking for its size."""
        try:
            return self.tree.follow(self._strip_protocol(path))
        except (Shortage, SourceLost) as error:
            raise OSError(error.errno, str(error), path) from error
        except KfsError:
            return None

    def walk(
        self, path: str, maxdepth: int | None = None, topdown: bool = True, on_error: Any = "omit", **options: Any
    ) -> Iterator[Any]:
        """See fsspec; sizes are found only if there is to be ``detail``."""
        options.setdefault("sized", options.get("detail", False))
        found: Iterator[Any] = super().walk(path, maxdepth, topdown, on_error, **options)
        return found

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """See fsspec; sizes are found only if there is to be ``detail``."""
        options.setdefault("sized", detail)
        return super().find(path, maxdepth, withdirs, detail, **options)

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        """Return what matches a pattern, sorted: paths, or with ``detail`` descriptions by path.

        Unless there is a ``**`` in it, only those directories are listed that the pattern leads through, and what isn't
        listed is found by its name: ``orders/*/value/5``.
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
        """Yield what lies below a directory and matches a pattern for each of the names that lead there."""
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
        """Return the time of a record, or when the files changed that something else is made of; UTC."""
        return _EPOCH + timedelta(seconds=self.info(path)["mtime"])

    def created(self, path: str) -> datetime:
        """Return the same: nothing else is known of when it was made."""
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """Return a text that changes when the file does, and is the same in every process."""
        info = self.info(path)
        token: str = tokenize(self.log_dirs, info["name"], info["size"], info["mtime"])
        return token

    def checksum(self, path: str) -> int:
        """Return :meth:`ukey` as a number."""
        return int(self.ukey(path), 16)

    # -- what is in it

    def _file(self, path: str) -> File:
        node = self.tree.follow(path)
        if not isinstance(node, File):
            raise IsADirectory(f"{path} is a directory")
        return node

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_options: Any) -> bytes:
        """Return the bytes of a file, or those from ``start`` up to ``end``; negative ones count from its end."""
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

    # -- what can't be done

    def _refuse(self, path: object = "", *_arguments: Any, **_options: Any) -> NoReturn:
        """Nothing is ever written."""
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
        """The exact length in bytes."""
        size: int = self._info()["size"]
        return size

    @property
    def details(self) -> Info:
        """What :meth:`KafkaFileSystem.info` said of it, now: of this file, though another may have its name."""
        return self._info()


class _RawFile(io.RawIOBase):
    """Reads of a file, from a position that moves on."""

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
        """Read on; of what is damaged, first all the bytes before it, and then the error."""
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
    """Return what fsspec calls the info of a file or directory."""
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
    """Raise errors of ours as the operating system's: ``FileNotFoundError``, ``NotADirectoryError``, EIO and so on."""
    try:
        yield
    except KfsError as error:
        raise OSError(error.errno, str(error), path) from error
