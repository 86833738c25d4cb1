"""Stores by their URLs; what is secret in one is passed on, and neither shown nor logged."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from kfs.errors import KfsError, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets import open_store, open_writable_store
from kfs.spark.offsets.redis_store import RedisAddress, RedisStore
from kfs.spark.offsets.sqlite_store import SqliteStore
from kfs.spark.offsets.store import PASSWORD_VARIABLE
from kfs.spark.offsets.store_url import without_secrets
from kfs.spark.offsets.zookeeper_store import ZooKeeperAddress, ZooKeeperStore
from tests.servers.redis_server import RedisServer
from tests.servers.zookeeper_server import ZooKeeperServer

ORDERS = TopicPartition("orders", 0)
SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/lib/job/progress.db", "/var/lib/job/progress.db"),
        ("sqlite:////var/lib/progress.db", "/var/lib/progress.db"),
        ("sqlite:/progress.db", "/progress.db"),
        ("sqlite:///a b?c#d%41.db", "/a b?c#d%41.db"),
    ],
)
def test_files(url: str, path: str) -> None:
    store = open_store(url)
    assert isinstance(store, SqliteStore)
    assert (store.path, store.name) == (path, f"sqlite://{path}")


def test_a_file_below_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_writable_store("sqlite:a?b #%.db") as store:
        store.set_positions("export", {ORDERS: 1})
    assert (tmp_path / "a?b #%.db").exists()


@pytest.mark.parametrize(
    ("url", "address", "name"),
    [
        ("redis://cache", RedisAddress("cache", 6379, 0, None, None, False), "redis://cache:6379/0"),
        ("redis://cache/", RedisAddress("cache", 6379, 0, None, None, False), "redis://cache:6379/0"),
        ("redis://10.0.0.1:7/12", RedisAddress("10.0.0.1", 7, 12, None, None, False), "redis://10.0.0.1:7/12"),
        ("rediss://[::1]:7", RedisAddress("::1", 7, 0, None, None, True), "rediss://[::1]:7/0"),
        ("redis://:p%40ss@h", RedisAddress("h", 6379, 0, None, "p@ss", False), "redis://h:6379/0"),
        ("redis://u:p:a@s/s@h/1", RedisAddress("h", 6379, 1, "u", "p:a@s/s", False), "redis://h:6379/1"),
        (
            "redis://h?prefix=job%3A&old_key=",
            RedisAddress("h", 6379, 0, None, None, False, "job:", ""),
            "redis://h:6379/0",
        ),
    ],
)
def test_redis_servers(url: str, address: RedisAddress, name: str) -> None:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    assert (store.address, store.name) == (address, name)


@pytest.mark.parametrize(
    ("url", "address", "name"),
    [
        ("zookeeper://zk", ZooKeeperAddress("zk:2181"), "zookeeper://zk:2181"),
        ("zookeeper://a:1,b,[::1]:3/", ZooKeeperAddress("a:1,b:2181,[::1]:3"), "zookeeper://a:1,b:2181,[::1]:3"),
        (
            "zookeeper://u:p%2F@zk/kafka/x",
            ZooKeeperAddress("zk:2181", "/kafka/x", "u", "p/"),
            "zookeeper://zk:2181/kafka/x",
        ),
    ],
)
def test_zookeeper_servers(url: str, address: ZooKeeperAddress, name: str) -> None:
    store = open_store(url)
    assert isinstance(store, ZooKeeperStore)
    assert (store.address, store.name) == (address, name)


def test_a_password_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "from/the/environment")
    for url, expected in (("redis://u@h", "from/the/environment"), ("redis://u:own@h", "own")):
        store = open_store(url)
        assert isinstance(store, RedisStore)
        assert store.address.password == expected


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", ": an unknown kind of store"),
        ("progress.db", "progress.db: an unknown kind of store"),
        ("mysql://h/x", "mysql://h/x: an unknown kind of store"),
        ("REDIS://h", "REDIS://h: an unknown kind of store"),
        ("sqlite:", "sqlite:: it has no file path"),
        ("sqlite:///", "sqlite:///: it has no file path"),
        ("sqlite:///a/", "it has no file path"),
        ("sqlite:///a\0b", "it has no file path"),
        ("sqlite://host/x", "a file URL has no host: an absolute path begins with three slashes"),
        ("redis:h", "'//' and a host are missing"),
        ("redis:///0", "'' is not host:port"),
        ("redis://h:0", "'h:0' is not host:port"),
        ("redis://h:65536", "'h:65536' is not host:port"),
        ("redis://h:x", "'h:x' is not host:port"),
        ("redis://h h", "'h h' is not host:port"),
        ("redis://h,h", "'h,h' is not host:port"),
        ("redis://h/x", "'x' is not a database number"),
        ("redis://h/1/2", "'1/2' is not a database number"),
        ("redis://h?ttl=1", "'ttl' is not an option; there are old_key, prefix"),
        ("redis://h?prefix=a@b", "have to be written as %3F and %40"),
        ("zookeeper://", "'' is not host:port"),
        ("zookeeper://a,,b", "'' is not host:port"),
        ("zookeeper://a/../x", "'../x' is not a path in ZooKeeper"),
        ("zookeeper://a//x", "'/x' is not a path in ZooKeeper"),
        ("group:", "it names no group"),
        ("group:billing", "a group is read from log directories: name at least one"),
        ("kafka:", "it names no log directory"),
        ("kafka:,", "it names no log directory"),
    ],
)
def test_what_names_no_store_is_refused(url: str, reason: str) -> None:
    with pytest.raises(OffsetStoreError) as raised:
        open_store(url)
    assert reason in str(raised.value)


_PASSWORDS = st.text("abz019 :/?#@[]%&=+,;'\"\\<>\u00e9", min_size=1, max_size=12)


@given(
    st.sampled_from(["redis", "rediss", "zookeeper", "sqlite", "mysql"]), _PASSWORDS, st.sampled_from(["h", "h:x", ""])
)
def test_no_password_is_in_a_name_or_a_message(scheme: str, password: str, host: str) -> None:
    """Quoted or not, whatever it is taken for."""
    marked = f"QQ{password}QQ"
    try:
        shown = repr(open_store(f"{scheme}://user:{marked}@{host}/0").name)
    except KfsError as error:
        shown = str(error)
    assert "QQ" not in shown
    assert "QQ" not in without_secrets(f"{scheme}://user:{marked}@{host}/0")


# --- logs and errors of what really connects --------------------------------------------------------------------------


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What any logger says at any level."""
    with caplog.at_level(logging.DEBUG):
        yield caplog


def check_secret_kept(ask: Callable[[], object], caplog: pytest.LogCaptureFixture) -> None:
    """Neither what is logged, nor an error, nor those that it comes from, have the password."""
    error: BaseException | None = None
    try:
        ask()
    except KfsError as raised:
        error = raised
    while error is not None:
        assert SECRET not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__
    assert SECRET not in caplog.text


@pytest.mark.parametrize("password", [SECRET, "another"])
def test_redis_is_told_the_password_and_nobody_else(
    password: str, tmp_path: Path, everything_logged: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(tmp_path, requirepass=password).start()
    try:
        url = f"redis://:{SECRET}@127.0.0.1:{server.port}"
        with open_writable_store(url, patience=0) as store:
            check_secret_kept(lambda: store.set_positions("export", {ORDERS: 1}), everything_logged)
            server.kill()
            check_secret_kept(lambda: store.load("export"), everything_logged)
            assert SECRET not in f"{store} {store!r} {store.name}"
    finally:
        server.stop()


def test_zookeeper_is_told_the_password_and_nobody_else(
    zookeeper_server: ZooKeeperServer, everything_logged: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{zookeeper_server.port}"
    client = KazooClient(address)
    client.start(60)
    client.create("/guarded", acl=[make_digest_acl("user", SECRET, all=True), *READ_ACL_UNSAFE])
    client.stop()
    client.close()
    everything_logged.clear()  # this test's own client is not that careful
    with open_writable_store(f"zookeeper://user:{SECRET}@{address}/guarded") as store:
        check_secret_kept(lambda: store.set_positions("export", {ORDERS: 1}), everything_logged)
        assert store.load("export").positions == {ORDERS: 1}
        assert SECRET not in f"{store} {store!r} {store.name}"
    for login in ("", "user:wrong@"):
        with open_writable_store(f"zookeeper://{login}{address}/guarded") as store:
            assert store.load("export").positions == {ORDERS: 1}
            for group in ("export", "another"):
                with pytest.raises(OffsetStoreError) as raised:
                    store.acquire(group)
                assert str(raised.value) == f"zookeeper://{address}/guarded: access denied: NoAuthError"


def test_a_server_that_is_not_there_is_named_without_the_password(everything_logged: pytest.LogCaptureFixture) -> None:
    for url in (f"redis://u:{SECRET}@127.0.0.1:1", f"zookeeper://u:{SECRET}@127.0.0.1:1"):
        with open_store(url, patience=0) as store:
            check_secret_kept(lambda store=store: store.load("export"), everything_logged)  # type: ignore[misc]
            with pytest.raises(StoreUnreachable):
                store.load("export")


def test_addresses_are_shown_without_the_password() -> None:
    assert SECRET not in repr(RedisAddress("h", 1, 0, "u", SECRET, False))
    assert SECRET not in repr(ZooKeeperAddress("h", "", "u", SECRET))


# --- what is imported -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kfs, kfs.cli.main, kfs.cli.offsets, kfs.spark.offsets", set()),
        ("from kfs.spark.offsets import open_store; open_store('sqlite:x')", {"sqlite3"}),
        ("from kfs.spark.offsets import open_store; open_store('redis://h')", {"redis"}),
        ("from kfs.spark.offsets import open_store; open_store('zookeeper://h')", set()),
    ],
)
def test_only_what_a_store_needs_is_imported(statement: str, allowed: set[str]) -> None:
    program = f"import sys; {statement}; print(*({{'redis', 'kazoo', 'sqlite3', 'pyspark'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == allowed


@pytest.mark.parametrize(
    ("url", "module", "extra"), [("redis://h", "redis", "redis"), ("zookeeper://h", "kazoo.client", "zookeeper")]
)
def test_a_package_that_is_missing_is_named(url: str, module: str, extra: str) -> None:
    with (
        patch.dict(sys.modules, {module: None}),
        pytest.raises(OffsetStoreError, match=rf"is missing: pip install 'kfs\[{extra}\]'"),
        open_store(url, patience=0) as store,
    ):
        store.load("export")
