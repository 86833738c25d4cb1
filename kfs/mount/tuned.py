"""The fast front: mfusepy on libfuse 3, with what costs time in its ordinary class taken out.

What matters is how often the kernel has to ask, and how much Python runs when it does:

- What is open is read by a handle (:mod:`kfs.mount.handles`), and the kernel keeps the pages that it has.
- A listing brings the attributes with it (READDIRPLUS), and starts in the middle where the
  kernel wants to go on.
- What cannot change is promised for ever. libfuse's high-level interface knows one timeout for
  everything, but reads it from its live configuration right after our callback has returned: so
  each callback writes down the lifetime of what it has just answered. That is sound with one
  thread only.
- Nothing is defined that we have no use for (flush, getxattr, listxattr, opendir, access): libfuse
  tells the kernel, and the kernel stops asking.

Import this module only with mfusepy's libfuse chosen (:mod:`kfs.mount.fronts` does): mfusepy loads
its library when it is imported.
"""

from __future__ import annotations

import ctypes
import errno
import math
import time
from collections.abc import Callable
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import mfusepy

from kfs.errors import MountFailed
from kfs.mount.announcer import Announcer
from kfs.mount.eagerness import Eagerness
from kfs.mount.front import MountOptions, kernel_options
from kfs.mount.handles import Handles, Pages
from kfs.mount.listing import DOT_COOKIE, DOT_DOT_COOKIE, Listings
from kfs.mount.nodes import BLOCK_SIZE, OPENED_SECONDS, blocks, found, totals_in_blocks
from kfs.mount.paths import Paths
from kfs.mount.translate import Translator
from kfs.tree.node import LIVE, UNTIL_TOLD, Attributes, Directory, Entry, Outdated, Symlink, Tree

if TYPE_CHECKING:
    Pointer = ctypes._Pointer[ctypes.c_byte]

#: libfuse's ``enum fuse_readdir_flags`` and ``enum fuse_fill_dir_flags``.
FUSE_READDIR_PLUS: Final = 1
FUSE_FILL_DIR_PLUS: Final = 2
#: One of libfuse's ``FUSE_CAP_`` bits.
FUSE_CAP_READDIRPLUS_AUTO: Final = 1 << 14

#: The node id that the kernel and libfuse agree on; all other ids are libfuse's own.
FUSE_ROOT_ID: Final = 1

#: The low-level functions that mfusepy doesn't declare.
_LIBRARY: Final = mfusepy._libfuse
_LIBRARY.fuse_get_session.restype = ctypes.c_void_p
_LIBRARY.fuse_get_session.argtypes = (ctypes.c_void_p,)
_LIBRARY.fuse_lowlevel_notify_inval_entry.restype = ctypes.c_int
_LIBRARY.fuse_lowlevel_notify_inval_entry.argtypes = (
    ctypes.c_void_p,
    ctypes.c_uint64,
    ctypes.c_char_p,
    ctypes.c_size_t,
)

#: What the kernel is told in seconds where nothing can change: a year.
FOREVER_SECONDS: Final = 365 * 86400.0

_CALLBACKS: Final = ("getattr", "readlink", "open", "read", "release", "statfs", "readdir", "init", "destroy")
_REFUSED: Final = (
    *("mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link", "chmod", "chown", "truncate"),
    *("write", "setxattr", "removexattr", "create", "utimens", "fallocate"),
)

#: ``fill_dir`` of libfuse: buffer, name, stat, resume point, flags; true when the reply is full.
Filler = Callable[[object, bytes, object, int, int], int]


class TunedFront:
    """Serves a tree through mfusepy and libfuse 3, in one thread."""

    name = "mfusepy"

    def serve(self, tree: Tree, mountpoint: str, options: MountOptions) -> None:
        """Mount, and answer the kernel until unmounted or told to stop by a signal."""
        try:
            _Session(tree, mountpoint, foreground=True, nothreads=True, **kernel_options(options))
        except RuntimeError as error:
            # fuse_main says 8 for a loop that ended otherwise than by an unmount: by our own signal.
            if error.args != (8,):
                raise MountFailed(f"{mountpoint}: libfuse 3 could not mount (status {error.args[0]})") from error


class _Session(mfusepy.FUSE):  # type: ignore[misc]  # mfusepy has no types
    """One mount: mfusepy's class with its callbacks replaced. Constructing it serves it."""

    def __init__(self, tree: Tree, mountpoint: str, **options: str | bool) -> None:
        self._tree = tree
        self._paths = Paths(tree)
        self._handles = Handles()
        self._listings = Listings()
        self._eagerness = Eagerness()
        self._translator = Translator()
        self._announcer = Announcer(tree, self._forget)
        self._session = 0
        self._config: mfusepy.fuse_config = None
        self._promised = -1.0
        self._stat = mfusepy.c_stat(st_blksize=BLOCK_SIZE)
        self._stat_reference = ctypes.byref(self._stat)
        self._timestamps = (self._stat.st_atimespec, self._stat.st_mtimespec, self._stat.st_ctimespec)
        # mfusepy offers libfuse those callbacks whose names it finds here.
        offered = SimpleNamespace(use_ns=True, **dict.fromkeys((*_CALLBACKS, *_REFUSED), True))
        super().__init__(offered, mountpoint, **options)

    def _wrapper(self, callback: Callable[..., int], *arguments: object) -> int:
        """Run a callback; nothing may be raised into C."""
        try:
            return callback(*arguments)
        except BaseException as error:
            path = arguments[0] if arguments and isinstance(arguments[0], bytes) else None
            return -self._translator.errno_of(error, callback.__name__.removesuffix("_fuse_3"), path)

    def init_fuse_3(
        self, connection: ctypes._Pointer[mfusepy.fuse_conn_info], config: ctypes._Pointer[mfusepy.fuse_config]
    ) -> int:
        # Without this bit the kernel always asks for attributes: whether it gets them is decided here.
        connection.contents.want &= ~FUSE_CAP_READDIRPLUS_AUTO
        self._config = config.contents
        self._config.use_ino = 1
        self._config.negative_timeout = 0.0
        self._promise(0.0)
        self._session = _LIBRARY.fuse_get_session(_LIBRARY.fuse_get_context().contents.fuse)
        self._announcer.start()
        return 0

    def destroy(self, _private_data: object) -> None:
        self._announcer.stop()  # before libfuse frees the session

    def _forget(self, outdated: frozenset[Outdated]) -> None:
        """Have the kernel drop names in the root and all it keeps below them: libfuse tells us no other node ids."""
        for name in {path.split("/", 1)[0] for path, _ in outdated}:
            data = name.encode("utf-8", "surrogateescape")
            _LIBRARY.fuse_lowlevel_notify_inval_entry(self._session, FUSE_ROOT_ID, data, len(data))

    def getattr_fuse_3(self, path: bytes, buffer: Pointer, opened: ctypes._Pointer[mfusepy.fuse_file_info]) -> int:
        self._eagerness.looked_up(path)
        if opened and opened.contents.fh:
            attributes = self._handles.attributes(opened.contents.fh)
            may_keep = self._handles.may_keep(opened.contents.fh)
        else:
            attributes = self._paths.ask(path, lambda node: node.attributes())
            may_keep = self._handles.may_keep_at(path, attributes)
            self._handles.tell(path, attributes)
        # The size that the kernel goes by is not that of what somebody else has open there: so it asks each time.
        self._promise(attributes.lifetime if may_keep else 0.0)
        self._fill_stat(attributes)
        ctypes.memmove(buffer, self._stat_reference, _STAT_SIZE)
        return 0

    def readlink(self, path: bytes, buffer: Pointer, size: int) -> int:
        node = self._paths.look_again(path)
        if not isinstance(node, Symlink):
            return -errno.EINVAL
        text = node.target().encode("utf-8", "surrogateescape")[: size - 1] + b"\0"
        ctypes.memmove(buffer, text, len(text))
        return 0

    def open(self, path: bytes, opened: ctypes._Pointer[mfusepy.fuse_file_info]) -> int:
        handle, pages = self._handles.open(path, *self._paths.ask(path, found, OPENED_SECONDS))
        opened.contents.fh = handle
        opened.contents.keep_cache = pages is Pages.KEPT
        opened.contents.direct_io = pages is Pages.PASSED_BY
        return 0

    def read(
        self,
        _path: bytes,
        buffer: Pointer,
        size: int,
        offset: int,
        opened: ctypes._Pointer[mfusepy.fuse_file_info],
    ) -> int:
        data = self._handles.read(opened.contents.fh, offset, size)
        ctypes.memmove(buffer, data, len(data))
        return len(data)

    def release(self, _path: bytes, opened: ctypes._Pointer[mfusepy.fuse_file_info]) -> int:
        self._handles.release(opened.contents.fh)
        return 0

    def statfs(self, _path: bytes, buffer: ctypes._Pointer[mfusepy.c_statvfs]) -> int:
        for field, value in totals_in_blocks(self._tree).items():
            setattr(buffer.contents, field, value)
        return 0

    def readdir_fuse_3(
        self, path: bytes, buffer: object, fill: Filler, offset: int, _file_info: object, flags: int
    ) -> int:
        directory = self._paths.find_directory(path)
        if offset in (0, DOT_COOKIE):
            self._fill_dots(path, directory, buffer, fill, offset)
        cookie = 0 if offset >= DOT_COOKIE else offset
        if flags & FUSE_READDIR_PLUS and self._eagerness.pays(path, at_start=cookie == 0):
            self._list_eagerly(path, directory, buffer, fill, cookie)
        else:
            self._list(path, directory, buffer, fill, cookie)
        return 0

    def _list(self, path: bytes, directory: Directory, buffer: object, fill: Filler, cookie: int) -> None:
        """Fill a reply with names and types."""
        head, rest = self._listings.after(path, directory, cookie, False)
        for entry in chain(head, rest):
            if self._fill_name(buffer, fill, entry):
                self._listings.pause(path, cookie, False, entry, rest)
                break
            cookie = entry.cookie

    def _list_eagerly(self, path: bytes, directory: Directory, buffer: object, fill: Filler, cookie: int) -> None:
        """Fill a reply with names and attributes, but for one entry, whose look-up shows that they are used."""
        started = time.monotonic()
        filled = 0
        prefix = path.rstrip(b"/") + b"/"
        head, rest = self._listings.after(path, directory, cookie, True)
        for entry in chain(head, rest):
            if self._fill_attributes(buffer, fill, entry, prefix) if filled else self._fill_name(buffer, fill, entry):
                self._listings.pause(path, cookie, True, entry, rest)
                break
            cookie = entry.cookie
            filled += 1
        self._eagerness.spend(path, filled, time.monotonic() - started)

    def _fill_dots(self, path: bytes, directory: Directory, buffer: object, fill: Filler, offset: int) -> None:
        """List ``.`` (unless resumed behind it) and ``..``: any reply has room for both."""
        if offset == 0:
            own = directory.attributes()
            self._fill_identity(own.node_id, own.mode)
            fill(buffer, b".", self._stat_reference, DOT_COOKIE, 0)
        above = self._paths.find(path[: path.rfind(b"/")] or b"/").attributes()
        self._fill_identity(above.node_id, above.mode)
        fill(buffer, b"..", self._stat_reference, DOT_DOT_COOKIE, 0)

    def _fill_attributes(self, buffer: object, fill: Filler, entry: Entry, prefix: bytes) -> int:
        """Fill in a name with its attributes; ``prefix`` is the directory's path and a slash."""
        attributes = entry.attributes
        if attributes is None:
            return self._fill_name(buffer, fill, entry)
        self._fill_stat(attributes)
        name = entry.name.encode("utf-8", "surrogateescape")
        path = prefix + name
        is_known = self._handles.remembers(path)
        self._promise(0.0 if is_known and not self._handles.may_keep_at(path, attributes) else attributes.lifetime)
        is_full = fill(buffer, name, self._stat_reference, entry.cookie, FUSE_FILL_DIR_PLUS)
        if is_known and not is_full:
            self._handles.tell(path, attributes)
        return is_full

    def _fill_name(self, buffer: object, fill: Filler, entry: Entry) -> int:
        self._fill_identity(entry.node_id, entry.mode)
        return fill(buffer, entry.name.encode("utf-8", "surrogateescape"), self._stat_reference, entry.cookie, 0)

    def _fill_identity(self, node_id: int, mode: int) -> None:
        self._stat.st_ino = node_id
        self._stat.st_mode = mode

    def _fill_stat(self, attributes: Attributes) -> None:
        stat = self._stat
        stat.st_ino = attributes.node_id
        stat.st_mode = attributes.mode
        stat.st_nlink = attributes.nlink
        stat.st_uid = attributes.uid
        stat.st_gid = attributes.gid
        stat.st_size = attributes.size
        stat.st_blocks = blocks(attributes.size)
        seconds, nanoseconds = divmod(attributes.mtime_ns, 1_000_000_000)
        for timestamp in self._timestamps:
            timestamp.tv_sec = seconds
            timestamp.tv_nsec = nanoseconds

    def _promise(self, lifetime: float) -> None:
        """Let the kernel keep what is being answered for ``lifetime`` seconds: attributes and name."""
        if lifetime == UNTIL_TOLD:
            lifetime = LIVE
        if lifetime != self._promised:
            self._promised = lifetime
            seconds = FOREVER_SECONDS if lifetime == math.inf else lifetime
            self._config.attr_timeout = seconds
            self._config.entry_timeout = seconds

    def _refuse(self, *_arguments: object) -> int:
        """Refuse to write. The kernel does so itself, unless somebody remounted the mount ``rw``."""
        return -errno.EROFS

    mknod = mkdir = unlink = rmdir = symlink = rename_fuse_3 = link = _refuse
    chmod_fuse_3 = chown_fuse_3 = truncate_fuse_3 = utimens_fuse_3 = create = _refuse
    write = setxattr = removexattr = fallocate = _refuse


_STAT_SIZE: Final = ctypes.sizeof(mfusepy.c_stat)
