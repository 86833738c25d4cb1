"""Positions in Redis: one key per group with one JSON document, replaced by a compare-and-set script.

Redis acknowledges a change once it is in memory. To have it on disk by then, the server needs ``appendonly yes`` and
``appendfsync always``: with the default, once a second, a crash may undo an acknowledged change. Nor may it evict keys.
The server's settings are checked once per connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptStore, OffsetStoreError, StoreUnreachable
from kfs.spark.offsets.document import MAX_DOCUMENT_BYTES, decode_document, encode_document
from kfs.spark.offsets.old_ranges import MAX_OLD_VALUE_BYTES, parse_old_ranges
from kfs.spark.offsets.progress import Progress
from kfs.spark.offsets.store import DEFAULT_PATIENCE, PASSWORD_VARIABLE, Stored, Unreadable, WritableStore

if TYPE_CHECKING:
    import redis

_LOG = logging.getLogger("kfs")
DEFAULT_PREFIX: Final = "kfs:offsets:"
_SECONDS: Final = 5.0
_MOST_GROUPS: Final = 100_000
#: ``GET`` returns false for a missing key.
_COMPARE_AND_SET: Final = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
#: Binary or oversized values can't be compared: the script only checks that the value is still one.
_REPLACE_UNREADABLE: Final = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or (kind == 'string' and redis.call('STRLEN', KEYS[1]) <= tonumber(ARGV[1])) then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
_NOT_COMPARED: Final = None
_WANTED: Final = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A server, its credentials, and its keys.

    A group without a value of its own under ``prefix`` + group is looked up as an application of older jobs under
    ``old_key``, with the group in place of ``{group}``, unless ``old_key`` is empty.
    """

    host: str
    port: int
    database: int
    username: str | None
    password: str | None = field(repr=False)
    tls: bool
    prefix: str = DEFAULT_PREFIX
    old_key: str = "{group}"

    @property
    def name(self) -> str:
        """The URL without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis{'s' if self.tls else ''}://{host}:{self.port}/{self.database}"


class RedisStore(WritableStore):
    """A database of a Redis server (6 or later)."""

    def __init__(self, address: RedisAddress, patience: float = DEFAULT_PATIENCE) -> None:
        super().__init__(address.name, patience)
        self.address = address
        self._client = _client(address)
        self._compare_and_set = self._client.register_script(_COMPARE_AND_SET)
        self._replace_unreadable = self._client.register_script(_REPLACE_UNREADABLE)
        self._is_checked = False

    def groups(self) -> list[str]:
        """See :meth:`OffsetStore.groups`; excludes values of older jobs."""
        prefix = self.address.prefix
        escaped = "".join(f"\\{letter}" if letter in "\\*?[]^-" else letter for letter in prefix)
        return self._patiently(lambda: self._groups(escaped.encode() + b"*", len(prefix.encode())))

    def _groups(self, pattern: bytes, skip: int) -> list[str]:
        found = set()
        with self._errors():
            for key in self._client.scan_iter(match=pattern, count=1000):
                found.add(key[skip:].decode("utf-8", "surrogateescape"))
                if len(found) > _MOST_GROUPS:
                    raise OffsetStoreError(f"{self.name}: more than {_MOST_GROUPS:,} groups")
        return sorted(found)

    def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        self._client.close()

    def _read(self, group: str) -> Stored:
        key = self.address.prefix + group
        try:
            content = self._get(key, MAX_DOCUMENT_BYTES)
        except CorruptStore as error:
            return Stored(Progress(), _NOT_COMPARED, (Unreadable(error),))
        if content is None:
            return Stored.of(lambda: self._of_older_job(group), b"")
        version = content if len(content) <= MAX_DOCUMENT_BYTES else _NOT_COMPARED
        return Stored.of(lambda: decode_document(content, f"{self.name}: key {key}"), version)

    def _of_older_job(self, group: str) -> Progress:
        key = self.address.old_key.replace("{group}", group)
        content = self._get(key, MAX_OLD_VALUE_BYTES) if key else None
        if content is None:
            return Progress()
        ranges = parse_old_ranges(content, f"{self.name}: key {key}")
        positions = {each.topic_partition: each.until_offset for each in ranges}
        return Progress(positions, note=f"an older job has left them under the key {key}")

    def _get(self, key: str, most: int) -> bytes | None:
        """Return a value, None if there is none; of one larger than ``most`` bytes, enough to show that."""
        with self._errors():
            try:
                is_larger = self._client.strlen(key) > most  # it can have 512 MB
                content = self._client.getrange(key, 0, most) if is_larger else self._client.get(key)
            except _exceptions().ResponseError as error:
                if str(error).startswith("WRONGTYPE"):
                    raise CorruptStore(
                        f"{self.name}: key {key}", "holds a value of another type than a string"
                    ) from None
                raise
            assert content is None or isinstance(content, bytes)
            return content

    def _write(self, group: str, stored: Stored, progress: Progress) -> bool:
        keys, document = [self.address.prefix + group], encode_document(progress)
        with self._errors():
            self._check_durability()
            if stored.version is _NOT_COMPARED:
                return bool(self._replace_unreadable(keys=keys, args=[MAX_DOCUMENT_BYTES, document]))
            assert isinstance(stored.version, bytes)
            return bool(self._compare_and_set(keys=keys, args=[stored.version, document]))

    def _check_durability(self) -> None:
        """Log once whether the server's configuration makes saved data durable, if it may be read."""
        if self._is_checked:
            return
        try:
            found = {setting: self._client.config_get(setting).get(setting) for setting in _WANTED}
        except _exceptions().ResponseError:
            found = {}  # not allowed, as on most hosted servers
        self._is_checked = True
        amiss = [
            f"{setting} {found[setting]}"
            for setting, wanted in _WANTED.items()
            if found.get(setting) is not None and not _is_as_wanted(setting, found[setting], wanted)
        ]
        if amiss:
            _LOG.warning(
                "%s runs with %s: a crash there may lose positions that it acknowledged: "
                "set appendonly yes, appendfsync always and maxmemory-policy noeviction",
                self.name,
                ", ".join(amiss),
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        exceptions = _exceptions()
        try:
            yield
        except exceptions.AuthenticationError as error:
            needed = f"a password is needed, in the URL or in {PASSWORD_VARIABLE}"
            reason = error if self.address.password else needed
            raise OffsetStoreError(f"{self.name}: access denied: {reason}") from None
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            raise StoreUnreachable(f"{self.name}: no answer: {error}") from error
        except exceptions.RedisError as error:
            raise OffsetStoreError(f"{self.name}: {error}") from error


def _exceptions() -> ModuleType:
    from redis import exceptions

    return exceptions


def _is_as_wanted(setting: str, value: object, wanted: str) -> bool:
    # Without a memory limit nothing is evicted; volatile keys are those with a time to live, which ours don't have.
    return value == wanted or (setting == "maxmemory-policy" and str(value).startswith("volatile"))


def _client(address: RedisAddress) -> redis.Redis:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise OffsetStoreError(f"{address.name}: redis-py is missing: pip install 'kfs[redis]'") from None
    return redis.Redis(
        host=address.host,
        port=address.port,
        db=address.database,
        username=address.username,
        password=address.password,
        ssl=address.tls,
        socket_timeout=_SECONDS,
        socket_connect_timeout=_SECONDS,
        # Retries are decided in one place, which knows the outcome of the first attempt.
        retry=Retry(NoBackoff(), 0),
    )
