"""One mount on ``/dev/fuse``: the kernel's requests in its FUSE protocol, and our replies.

The speed of per-record files depends on the round trips avoided, and the raw protocol avoids more than libfuse lets
Python express: a lifetime for each inode, attributes in listings, contents stored in the page cache ahead of the
reader, no open and release. The tree's node ids are the kernel's node ids, so no state is kept between requests, and
FORGET has nothing to free.

Threads that answer requests never write notifications: such a write waits for locks that the kernel holds until one of
those requests is answered.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from struct import Struct
from time import monotonic_ns
from typing import Final

from kfs.errors import NotFound, Stale
from kfs.metrics import Counts, Metric, MetricType, by_label, counter, gauge
from kfs.mount.errnos import Translator
from kfs.mount.invalidation import Invalidator
from kfs.mount.kernel import mounting
from kfs.mount.kernel import protocol as fuse
from kfs.mount.kernel.growing_files import GrowingFiles
from kfs.mount.kernel.prefetch import Prefetch
from kfs.mount.kernel.protocol import IN_HEADER_SIZE, OUT_HEADER, OUT_HEADER_SIZE, InitFlag, Notify, Opcode, OpenFlag
from kfs.mount.kernel.readdirplus import ReaddirplusPolicy
from kfs.mount.kernel.recent_nodes import RecentNodes
from kfs.mount.kernel.reply_cache import NOT_WAITED_FOR, reply_cache_class
from kfs.mount.kernel.request_loop import RequestLoop
from kfs.mount.listing import DOT_COOKIE, DOT_DOT_COOKIE, Listings
from kfs.mount.nodes import BLOCK_SIZE, STATVFS, read_parts
from kfs.mount.request_counts import Operation, mount_info, request_metrics
from kfs.mount.systemd import Watchdog
from kfs.tree.node import FOREVER, Invalidation, Part, Symlink, Tree, settled

logger = logging.getLogger("kfs.mount")

#: The features we accept from the kernel's offer. AUTO_INVAL_DATA: the kernel reads a file that grew again. Not
#: READDIRPLUS_AUTO, because :class:`ReaddirplusPolicy` decides whether a listing has attributes. Not CACHE_SYMLINKS: a
#: link whose target changes without a change of size or time would go unnoticed.
_WANTED: Final = (
    InitFlag.ASYNC_READ
    | InitFlag.AUTO_INVAL_DATA
    | InitFlag.DO_READDIRPLUS
    | InitFlag.NO_OPEN_SUPPORT
    | InitFlag.PARALLEL_DIROPS
    | InitFlag.MAX_PAGES
)
#: The kernel's limit on concurrent requests that no reader waits for (read-ahead). Requests waiting for a slow disk
#: count, so the default of 12 would let them hold up the others.
_MAX_BACKGROUND: Final = 512
#: Most pages in a request: the kernel's read-ahead, which is also the most it allows by default.
_MAX_PAGES: Final = mounting.READ_AHEAD_BYTES // BLOCK_SIZE
#: Larger data is not copied again to share a buffer with its header.
_GATHERED_BYTES: Final = 16 * 1024
#: The most parts that one system call writes (``IOV_MAX``).
_MOST_PARTS: Final = 1024

_REFUSED: Final = (
    *(Opcode.SETATTR, Opcode.SYMLINK, Opcode.MKNOD, Opcode.MKDIR, Opcode.UNLINK, Opcode.RMDIR, Opcode.RENAME),
    *(Opcode.LINK, Opcode.WRITE, Opcode.SETXATTR, Opcode.REMOVEXATTR, Opcode.CREATE, Opcode.FALLOCATE),
    *(Opcode.RENAME2, Opcode.COPY_FILE_RANGE, Opcode.TMPFILE),
)


_NAMES: Final = {int(opcode): opcode.name.lower() for opcode in Opcode}
_READ: Final = int(Opcode.READ)

#: Packs an entry without attributes: name, cookie, node id, mode.
PackName = Callable[[bytes, int, int, int], bytes]


class Session:
    """One mount, from INIT to its end; ``watchdog`` is fed by what reads requests."""

    def __init__(self, tree: Tree, device: int, watchdog: Watchdog | None = None) -> None:
        self._tree = tree
        self._device = device
        self._nodes = RecentNodes(tree)
        self._listings = Listings()
        self._listing_policy = ReaddirplusPolicy()
        self._translator = Translator()
        self._prefetch = Prefetch(tree, device, self._listing_policy.renew)
        self._invalidator = Invalidator(tree, self._forget)
        self._growing = GrowingFiles(self._drop_pages)
        self._reply_cache = reply_cache_class()(
            device, self._prefetch.follows, None if watchdog is None else watchdog.interval
        )
        self._loop = RequestLoop(self._reply_cache.next_request, self.answer, self._prefetch.release_overdue, watchdog)
        self._knows_epochs = False
        self._counts = self._reply_cache.counts_class()
        #: Notifications sent: names to forget, pages to drop, and that all names are to be looked up again.
        self._invalidated: Counts[str] = Counts(("name", "pages", "all-names"))
        self._answers = {
            Opcode.INIT: self._init,
            Opcode.LOOKUP: self._lookup,
            Opcode.GETATTR: self._getattr,
            Opcode.READLINK: self._readlink,
            Opcode.READ: self._read,
            Opcode.OPENDIR: self._opendir,
            Opcode.READDIR: self._readdir,
            Opcode.READDIRPLUS: self._readdirplus,
            Opcode.RELEASEDIR: self._ok,
            Opcode.STATFS: self._statfs,
            Opcode.INTERRUPT: self._interrupt,
            Opcode.DESTROY: self._ok,
            Opcode.FORGET: self._nothing,
            Opcode.BATCH_FORGET: self._nothing,
            **dict.fromkeys(_REFUSED, self._refuse),
        }

    def run(self) -> None:
        """Serve until the mount is gone; raise :class:`~kfs.mount.kernel.request_loop.Stopped` at a signal."""
        self._prefetch.start()
        self._invalidator.start()
        self._growing.start()
        self._loop.run()

    def end(self) -> None:
        """Stop all threads that can be stopped."""
        hung_up = self._loop.wait_for_the_end()
        self._invalidator.stop()
        self._growing.stop()
        self._prefetch.stop()
        if hung_up:  # else a thread still reads from it, and its number must not be reused for another file
            os.close(self._device)

    # -- answering

    def answer(self, opcode: int, unique: int, node_id: int, request: bytes) -> None:
        begun = monotonic_ns()
        answer = self._answers.get(opcode)  # type: ignore[call-overload]  # an int finds its IntEnum
        if answer is None:
            # OPEN, FLUSH, ACCESS, GETXATTR, LISTXATTR and others: the kernel never repeats them after this reply.
            reply = _error(unique, errno.ENOSYS)
        else:
            try:
                reply = answer(unique, node_id, request)
            except BaseException as error:
                reply = _error(unique, self._errno_of(error, opcode, node_id))
        if reply is None:
            self._counts.add(opcode, begun)
            return
        self._send(reply)
        length = len(reply) - OUT_HEADER_SIZE
        if length:
            self._counts.add(opcode, begun, 0, length if opcode == _READ else 0)
        else:
            self._counts.add(opcode, begun, -OUT_HEADER.unpack(reply)[1])

    def metrics(self) -> Iterator[Metric]:
        """Yield what was counted since the mount began."""
        yield mount_info("kernel")
        cached = self._reply_cache.counts
        yield from request_metrics((self._counts, cached), _name_of)
        yield by_label(
            MetricType.COUNTER,
            "kfs_requests_cached_total",
            "Requests answered from the reply cache.",
            "operation",
            ((_name_of(each.operation), each.number) for each in cached.answered()),
        )
        yield gauge("kfs_late_requests", "Requests that take so long that another thread took over.", self._loop.late)
        yield counter("kfs_prefetched_files_total", "Files stored in the page cache ahead.", self._prefetch.files)
        yield counter("kfs_prefetched_bytes_total", "Bytes of these files.", self._prefetch.nbytes)
        yield by_label(
            MetricType.COUNTER,
            "kfs_kernel_invalidations_total",
            "Notifications that made the kernel drop what it had cached.",
            "kind",
            self._invalidated.items(),
        )

    def _send(self, *reply: Part) -> None:
        try:
            os.writev(self._device, reply)
        except OSError as error:
            if error.errno not in NOT_WAITED_FOR:
                raise

    def _errno_of(self, error: BaseException, opcode: int, node_id: int) -> int:
        if isinstance(error, NotFound) and opcode != Opcode.LOOKUP:
            self._invalidator.look_now()
            return errno.ESTALE  # makes the kernel look the path up again, if there is one
        path = ""
        with contextlib.suppress(Exception):
            path = self._tree.path(node_id)
        number = self._translator.errno_of(error, Opcode(opcode).name.lower(), f"/{path}")
        if number == errno.ESTALE:
            self._invalidator.look_now()
        return number

    def _init(self, unique: int, _node_id: int, request: bytes) -> bytes:
        major, minor, _, offered = fuse.INIT_IN.unpack_from(request, IN_HEADER_SIZE)
        if (major, minor) < (fuse.FUSE_KERNEL_VERSION, fuse.FUSE_KERNEL_MINOR_VERSION):
            return _error(unique, errno.EPROTO)
        self._knows_epochs = (major, minor) >= (fuse.FUSE_KERNEL_VERSION, fuse.INC_EPOCH_MINOR_VERSION)
        return _reply(
            unique,
            fuse.INIT_OUT,
            fuse.FUSE_KERNEL_VERSION,
            fuse.FUSE_KERNEL_MINOR_VERSION,
            mounting.READ_AHEAD_BYTES,
            offered & _WANTED,
            _MAX_BACKGROUND,
            _MAX_BACKGROUND * 3 // 4,
            BLOCK_SIZE,  # max_write: the least that the kernel accepts
            1,  # timestamps have nanoseconds
            _MAX_PAGES,
        )

    def _interrupt(self, _unique: int, _node_id: int, request: bytes) -> bytes | None:
        """Fail a slow request whose caller got a signal. The reply is to that request; INTERRUPT itself has none."""
        (unique,) = fuse.INTERRUPT_IN.unpack_from(request, IN_HEADER_SIZE)
        return _error(unique, errno.EINTR) if self._loop.is_late(unique) else None

    def _nothing(self, _unique: int, _node_id: int, _request: bytes) -> None:
        """Send no reply, as for FORGET."""

    def _ok(self, unique: int, _node_id: int, _request: bytes) -> bytes:
        return _error(unique, 0)

    def _refuse(self, unique: int, _node_id: int, _request: bytes) -> bytes:
        """Refuse to write. The kernel does so itself, unless the mount was remounted ``rw``."""
        return _error(unique, errno.EROFS)

    # -- nodes

    def _lookup(self, unique: int, node_id: int, request: bytes) -> bytes:
        self._listing_policy.looked_up_in(node_id)
        name = request[IN_HEADER_SIZE:-1].decode("utf-8", "surrogateescape")  # a zero byte follows it
        directory = self._nodes.directory(node_id)
        node, attributes = settled(lambda: directory.find(name))
        self._nodes.remember(attributes.node_id, node)
        files = directory.found_with(name)
        if files is not None:
            self._reply_cache.put(node_id, files)
        return fuse.entry_reply(unique, self._growing.told(node, attributes))

    def _getattr(self, unique: int, node_id: int, _request: bytes) -> bytes:
        node = self._nodes.find(node_id)
        return fuse.attr_reply(unique, self._growing.told(node, node.attributes()))

    def _readlink(self, unique: int, node_id: int, _request: bytes) -> bytes:
        node = self._nodes.look_again(node_id)  # nothing else would notice a new target
        if not isinstance(node, Symlink):
            return _error(unique, errno.EINVAL)
        return _with_header(unique, node.target().encode("utf-8", "surrogateescape"))

    def _read(self, unique: int, node_id: int, request: bytes) -> bytes | None:
        _, offset, size = fuse.READ_IN.unpack_from(request, IN_HEADER_SIZE)
        if self._growing.has(node_id):
            return self._read_growing(unique, node_id, offset, size)
        return self._send_found(unique, node_id, offset, read_parts(self._nodes.find(node_id), offset, size))

    def _read_growing(self, unique: int, node_id: int, offset: int, size: int) -> bytes | None:
        with self._growing.read(node_id) as ends_at:
            for find in (self._nodes.find, self._nodes.look_again):
                found = read_parts(find(node_id), offset, size)
                length = sum(map(len, found))
                if length == size or ends_at(offset + length):
                    self._send(OUT_HEADER.pack(OUT_HEADER_SIZE + length, 0, unique), *_few(found))
                    self._counts.add_read(length)
                    return None
        raise Stale(f"node {node_id}: it ends at {offset + length}, before the size reported earlier")

    def _send_found(self, unique: int, node_id: int, offset: int, found: Sequence[Part]) -> bytes | None:
        length = OUT_HEADER_SIZE + sum(map(len, found))
        header = OUT_HEADER.pack(length, 0, unique)
        if length < _GATHERED_BYTES:
            reply = b"".join([header, *found])
            if offset or not self._prefetch.takes(node_id, reply):
                return reply
        else:
            self._send(header, *_few(found))
        self._counts.add_read(length - OUT_HEADER_SIZE)
        return None

    def _statfs(self, unique: int, _node_id: int, _request: bytes) -> bytes:
        counts = (STATVFS["f_blocks"], STATVFS["f_bfree"], STATVFS["f_bavail"], 0, 0)
        sizes = (STATVFS["f_bsize"], STATVFS["f_namemax"], STATVFS["f_frsize"])
        return _reply(unique, fuse.STATFS_OUT, *counts, *sizes)

    # -- listings

    def _opendir(self, unique: int, node_id: int, _request: bytes) -> bytes:
        """Let the kernel cache the listing of a directory that can't change."""
        is_fixed = self._nodes.directory(node_id).attributes().lifetime == FOREVER
        return _reply(unique, fuse.OPEN_OUT, 0, OpenFlag.CACHE_DIR | OpenFlag.KEEP_CACHE if is_fixed else 0)

    def _readdir(self, unique: int, node_id: int, request: bytes) -> bytes:
        return self._list(unique, node_id, request, fuse.dirent, with_attributes=False)

    def _readdirplus(self, unique: int, node_id: int, request: bytes) -> bytes:
        _, offset, _ = fuse.READ_IN.unpack_from(request, IN_HEADER_SIZE)
        at_start = offset == 0 or offset >= DOT_COOKIE
        pays = self._listing_policy.pays(node_id, at_start=at_start)
        return self._list(unique, node_id, request, fuse.direntplus_without_entry, with_attributes=pays)

    def _list(self, unique: int, node_id: int, request: bytes, pack: PackName, *, with_attributes: bool) -> bytes:
        """Fill a reply with entries; ``pack`` is used for those without attributes."""
        started = time.thread_time()  # excludes waiting for other processes or the disk
        _, offset, size = fuse.READ_IN.unpack_from(request, IN_HEADER_SIZE)
        directory = self._nodes.directory(node_id)
        cookie = 0 if offset >= DOT_COOKIE else offset
        parts = self._dots(node_id, offset, pack) if cookie == 0 else []
        room = size - sum(map(len, parts))
        # Leave one entry without attributes, to find out whether the reader looks entries up.
        is_probe = with_attributes and self._listing_policy.doubts(node_id)
        head, rest = self._listings.after(node_id, directory, cookie, with_attributes)
        for entry in chain(head, rest):
            name = entry.name.encode("utf-8", "surrogateescape")
            attributes = entry.attributes
            if attributes is None or not with_attributes or is_probe:
                packed = pack(name, entry.cookie, entry.node_id, entry.mode)
                is_probe = False
            else:
                packed = fuse.direntplus(name, entry.cookie, attributes)
            room -= len(packed)
            if room < 0:
                self._listings.pause(node_id, cookie, with_attributes, entry, rest)
                break
            parts.append(packed)
            cookie = entry.cookie
        if with_attributes:
            self._listing_policy.spend(node_id, len(parts), time.thread_time() - started)
            self._reply_cache.hand_on_next(node_id)  # the policy has to count look-ups of these names
            self._prefetch.was_listed()
        return _with_header(unique, b"".join(parts))

    def _dots(self, node_id: int, offset: int, pack: PackName) -> list[bytes]:
        """Return ``.`` (unless resumed after it) and ``..`` (unless resumed after that)."""
        parts = []
        if offset == 0:
            parts.append(pack(b".", DOT_COOKIE, node_id, stat.S_IFDIR))
        if offset != DOT_DOT_COOKIE:
            above = self._tree.path(node_id).rpartition("/")[0]
            parts.append(pack(b"..", DOT_DOT_COOKIE, self._tree.resolve(above).attributes().node_id, stat.S_IFDIR))
        return parts

    # -- notifications

    def _forget(self, invalidations: frozenset[Invalidation]) -> None:
        """Make the kernel look these names up at their next use, and drop everything cached below them.

        The kernel drops only what is not in use. A process with an open or current directory keeps it: at the next
        look-up the name leads to the same inode again, and the kernel puts the two together, along with the names of
        open files in it. So all names of the mount are looked up again at their next use, and unchanged nodes are kept.
        """
        logger.debug("forgetting what the kernel keeps of %s", sorted(each.path for each in invalidations))
        for path, parent_id in invalidations:
            name = path.rpartition("/")[2].encode("utf-8", "surrogateescape")
            payload = fuse.NOTIFY_INVAL_ENTRY_OUT.pack(parent_id, len(name), 0) + name + b"\0"
            # ENOENT can also mean that the kernel doesn't have the name, which is fine.
            self._send(OUT_HEADER.pack(OUT_HEADER_SIZE + len(payload), Notify.INVAL_ENTRY, 0) + payload)
            self._invalidated.add("name")
        if self._knows_epochs:
            self._send(OUT_HEADER.pack(OUT_HEADER_SIZE, Notify.INC_EPOCH, 0))
            self._invalidated.add("all-names")

    def _drop_pages(self, node_id: int, offset: int) -> None:
        """Make the kernel drop the pages of a file from the one that contains ``offset``."""
        payload = fuse.NOTIFY_INVAL_INODE_OUT.pack(node_id, offset, fuse.MAX_OFFSET - offset)
        self._send(OUT_HEADER.pack(OUT_HEADER_SIZE + len(payload), Notify.INVAL_INODE, 0) + payload)
        self._invalidated.add("pages")


def _name_of(opcode: Operation) -> str:
    return _NAMES.get(opcode, "other") if isinstance(opcode, int) else opcode


def _few(parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts, joined if there are more than one system call writes."""
    return parts if len(parts) < _MOST_PARTS else [b"".join(parts)]


def _with_header(unique: int, payload: bytes) -> bytes:
    return OUT_HEADER.pack(OUT_HEADER_SIZE + len(payload), 0, unique) + payload


def _reply(unique: int, layout: Struct, *fields: int) -> bytes:
    return _with_header(unique, layout.pack(*fields))


def _error(unique: int, number: int) -> bytes:
    return OUT_HEADER.pack(OUT_HEADER_SIZE, -number, unique)
