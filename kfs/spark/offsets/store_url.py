"""Stores by their URLs.

::

    sqlite:///var/lib/job/progress.db    an absolute path; sqlite:progress.db is below the current directory
    redis://[user:password@]host[:port][/database][?prefix=kfs:offsets:&old_key={group}]    rediss:// with TLS
    zookeeper://[user:password@]host[:port][,host[:port]...][/chroot]
    group:<name>                         a consumer group of the log directories that are read
    kafka:<log.dir>[,<log.dir>...]       all consumer groups of these log directories
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote

from kfs.errors import OffsetStoreError
from kfs.spark.offsets.store import DEFAULT_PATIENCE, PASSWORD_VARIABLE, OffsetStore, WritableStore

_REDIS_PORT: Final = 6379
_ZOOKEEPER_PORT: Final = 2181
_SCHEME: Final = re.compile(r"([a-z]+):")
_LOGIN: Final = re.compile(r"(?P<scheme>([a-z]+:)?/{0,2}).*@", re.DOTALL)
_HOST: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+)(:(?P<port>[0-9]{1,5}))?\Z")
_FORMS: Final = "sqlite:///path, redis://host:port/0, zookeeper://host:port, group:<name>, kafka:<log.dir>"


def open_store(url: str, log_dirs: Sequence[str] = (), *, patience: float = DEFAULT_PATIENCE) -> OffsetStore:
    """Return the store at ``url``; it isn't accessed yet.

    ``log_dirs`` are those of a ``group:``; ``patience`` is for how many seconds to retry a server that doesn't answer.

    Raises:
        OffsetStoreError: the URL is invalid, or the client package isn't installed.
        UnusableSource: a log directory is unusable.
    """
    scheme = _SCHEME.match(url)
    openers: dict[str, Callable[[], OffsetStore]] = {
        "sqlite": lambda: _sqlite(url, patience),
        "redis": lambda: _redis(url, patience),
        "rediss": lambda: _redis(url, patience),
        "zookeeper": lambda: _zookeeper(url, patience),
        "group": lambda: _group(url, log_dirs),
        "kafka": lambda: _kafka(url),
    }
    if scheme is None or scheme[1] not in openers:
        raise _bad(url, "an unknown kind of store")
    return openers[scheme[1]]()


def open_writable_store(url: str, *, patience: float = DEFAULT_PATIENCE) -> WritableStore:
    """Return the store at ``url``, as :func:`open_store`; raise OffsetStoreError if it is read-only."""
    store = open_store(url, patience=patience) if not url.startswith(("group:", "kafka:")) else None
    if not isinstance(store, WritableStore):
        raise _bad(url, "the groups of a log directory are read-only")
    return store


def without_secrets(url: str) -> str:
    """Return a URL without its login and options, even if it is invalid otherwise."""
    return _LOGIN.sub(r"\g<scheme>", url, count=1).partition("?")[0]


def _bad(url: str, reason: str) -> OffsetStoreError:
    return OffsetStoreError(f"{without_secrets(url)}: {reason}; stores are {_FORMS}")


def _sqlite(url: str, patience: float) -> OffsetStore:
    from kfs.spark.offsets.sqlite_store import SqliteStore

    path = url.removeprefix("sqlite:")
    if path.startswith("//"):
        if not path.startswith("///"):
            raise _bad(url, "a file URL has no host: an absolute path begins with three slashes")
        path = "/" + path.lstrip("/")
    if not path or path.endswith("/") or "\0" in path:
        raise _bad(url, "it has no file path")
    return SqliteStore(path, patience)


def _redis(url: str, patience: float) -> OffsetStore:
    from kfs.spark.offsets.redis_store import RedisAddress, RedisStore

    rest, _, query = url.partition("?")
    if "@" in query:  # the options may be half of a password
        raise _bad(url, "'?' and '@' in a login or an option have to be written as %3F and %40")
    username, password, server, path = _split(url, rest)
    host = _HOST.match(server)
    if host is None or not _is_port(host["port"]):
        raise _bad(url, f"{server!r} is not host:port")
    if not re.fullmatch("[0-9]{0,5}", path):
        raise _bad(url, f"{path!r} is not a database number")
    options = _options(url, query, {"prefix", "old_key"})
    name = host["host"].strip("[]")
    tls = url.startswith("rediss:")
    port = int(host["port"] or _REDIS_PORT)
    return RedisStore(RedisAddress(name, port, int(path or 0), username, password, tls, **options), patience)


def _zookeeper(url: str, patience: float) -> OffsetStore:
    from kfs.spark.offsets.zookeeper_store import ZooKeeperAddress, ZooKeeperStore

    username, password, servers, path = _split(url, url)
    hosts = []
    for server in servers.split(","):
        host = _HOST.match(server)
        if host is None or not _is_port(host["port"]):
            raise _bad(url, f"{server!r} is not host:port")
        hosts.append(f"{host['host']}:{host['port'] or _ZOOKEEPER_PORT}")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise _bad(url, f"{path!r} is not a path in ZooKeeper")
    return ZooKeeperStore(ZooKeeperAddress(",".join(hosts), f"/{path}" if path else "", username, password), patience)


def _group(url: str, log_dirs: Sequence[str]) -> OffsetStore:
    from kfs.spark.offsets.group_store import GroupStore

    group = url.removeprefix("group:")
    if not group:
        raise _bad(url, "it names no group")
    if not log_dirs:
        raise _bad(url, "a group is read from log directories: name at least one")
    return GroupStore(log_dirs, only=group)


def _kafka(url: str) -> OffsetStore:
    from kfs.spark.offsets.group_store import GroupStore

    paths = url.removeprefix("kafka:")
    log_dirs = [path for path in paths.removeprefix("//").split(",") if path]
    if not log_dirs:
        raise _bad(url, "it names no log directory")
    return GroupStore(log_dirs)


def _split(url: str, rest: str) -> tuple[str | None, str | None, str, str]:
    """Return the user, the password, the server and the path of ``scheme://user:password@server/path``."""
    _, slashes, rest = rest.partition("://")
    if not slashes:
        raise _bad(url, "'//' and a host are missing")
    login, _, address = rest.rpartition("@")
    user, _, password = login.partition(":")
    server, _, path = address.partition("/")
    secret = unquote(password) or os.environ.get(PASSWORD_VARIABLE)
    return unquote(user) or None, secret, server, unquote(path.rstrip("/"))


def _is_port(port: str | None) -> bool:
    return port is None or 0 < int(port) < 65536


def _options(url: str, query: str, known: set[str]) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - known)
    if unknown:
        raise _bad(url, f"{unknown[0]!r} is not an option; there are {', '.join(sorted(known))}")
    return options
