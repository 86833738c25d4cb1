"""Servers that are killed, and connections that break, in the middle of a change, which is made once all the same."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from kfs.errors import Fenced, KfsError, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets import ConsumedRange, StagedFile, StagedOutput, WritableStore, open_writable_store
from tests.servers.proxy import Cut, Proxy
from tests.servers.redis_server import RedisServer
from tests.servers.server import Server
from tests.servers.zookeeper_server import ZooKeeperServer
from tests.spark.offsets.export_job import EVERY_RECORD_ONCE, exported
from tests.spark.offsets.test_staged_output import check_complete, start_job

ORDERS = TopicPartition("orders", 0)
MARKED = (StagedFile("staged/marked", "marked"),)
SECONDS_AWAY = 1.0


@pytest.fixture(params=[RedisServer, ZooKeeperServer])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that this test may kill."""
    server: Server = request.param(tmp_path).start()
    yield server
    server.stop()


def url_at(server: Server, port: int) -> str:
    return f"{'redis' if isinstance(server, RedisServer) else 'zookeeper'}://127.0.0.1:{port}"


def comes_back(server: Server) -> threading.Thread:
    """Start a server again in a while."""

    def start() -> None:
        time.sleep(SECONDS_AWAY)
        server.start()

    thread = threading.Thread(target=start)
    thread.start()
    return thread


@pytest.mark.parametrize("cut", list(Cut))
def test_a_save_whose_connection_breaks_is_made_once(server: Server, cut: Cut) -> None:
    with Proxy(server.port) as proxy, open_writable_store(url_at(server, proxy.port), patience=20) as store:
        fence, _ = store.acquire("export")
        proxy.cut_at(b"staged/marked", cut)
        saved = store.save(fence, [ConsumedRange("orders", 0, 0, 10)], MARKED)
        assert proxy.cuts == 1
        assert saved == store.load("export")
        assert saved.positions == {ORDERS: 10}
        store.finish(fence)
        store.save(fence, [ConsumedRange("orders", 0, 10, 20)])
        assert store.load("export").positions == {ORDERS: 20}


@pytest.mark.parametrize("cut", list(Cut))
def test_a_group_is_acquired_once_by_who_loses_the_connection(server: Server, cut: Cut) -> None:
    with Proxy(server.port) as proxy, open_writable_store(url_at(server, proxy.port), patience=20) as store:
        proxy.cut_at(b'"epoch":1', cut)
        fence, progress = store.acquire("export")
        assert (proxy.cuts, fence.epoch, progress.epoch) == (1, 1, 1)


@pytest.mark.parametrize("end", [Server.kill, Server.stop])
def test_a_server_that_comes_back_has_all_that_was_saved(server: Server, end: Callable[[Server], None]) -> None:
    with open_writable_store(url_at(server, server.port), patience=30) as store:
        fence, _ = store.acquire("export")
        for start in range(0, 30, 10):
            store.save(fence, [ConsumedRange("orders", 0, start, start + 10)])
            end(server)
            thread = comes_back(server)
            assert store.load("export").positions == {ORDERS: start + 10}
            thread.join()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 11))])
def test_a_job_killed_again_and_again_beside_its_server_writes_everything_once(
    server: Server, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(f"{type(server).__name__}{seed}")
    url, dataset = url_at(server, server.port), tmp_path / "dataset"
    killed = 0
    while True:
        steps = ("--kill-at", str(chance.randrange(1, 60))) if killed < 3 else ()
        job = start_job(url, dataset, *steps)
        time.sleep(chance.uniform(0, 1.5))
        server.kill()
        assert exported(dataset) <= EVERY_RECORD_ONCE
        server.start()
        _, errors = job.communicate(timeout=120)
        if job.returncode == 0:
            break
        assert job.returncode == -signal.SIGKILL, errors.decode()
        killed += 1
    assert killed >= 1
    check_complete(url, dataset)


def test_a_save_waits_for_a_server_that_was_killed(server: Server) -> None:
    with open_writable_store(url_at(server, server.port), patience=30) as store:
        fence, _ = store.acquire("export")
        server.kill()
        thread = comes_back(server)
        store.save(fence, [ConsumedRange("orders", 0, 0, 10)])
        thread.join()
        assert store.load("export").positions == {ORDERS: 10}


def test_a_server_that_stays_away_is_said_to_be(server: Server) -> None:
    with open_writable_store(url_at(server, server.port), patience=30) as store:
        fence, _ = store.acquire("export")
        server.kill()
        store.patience = 1
        with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1:\d+(/0)?: no answer"):
            store.save(fence, [ConsumedRange("orders", 0, 0, 10)])
        server.start()
        store.patience = 30
        store.save(fence, [ConsumedRange("orders", 0, 0, 10)])


def test_a_server_that_nobody_runs(server: Server) -> None:
    server.kill()
    with (
        open_writable_store(url_at(server, server.port), patience=0) as store,
        pytest.raises(StoreUnreachable, match="no answer"),
    ):
        store.load("export")


def test_who_was_fenced_while_the_connection_was_lost_is_told(server: Server) -> None:
    with (
        Proxy(server.port) as proxy,
        open_writable_store(url_at(server, proxy.port), patience=20) as store,
        open_writable_store(url_at(server, server.port), patience=20) as another,
    ):
        fence, _ = store.acquire("export")
        write = store._write

        def taken_over_meanwhile(*change: object) -> bool:
            try:
                return write(*change)  # type: ignore[arg-type]
            finally:
                store._write = write  # type: ignore[method-assign]
                _, progress = another.acquire("export")
                # It was saved, though who saved it doesn't get to know: the next one takes care of its files.
                assert progress.batch is not None

        store._write = taken_over_meanwhile  # type: ignore[method-assign,assignment]
        proxy.cut_at(b"staged/marked", Cut.ANSWER)
        with pytest.raises(Fenced):
            store.save(fence, [ConsumedRange("orders", 0, 0, 10)], MARKED)
        assert proxy.cuts == 1


def test_a_server_that_forgets_what_it_acknowledged_does_not_double_the_output(
    tmp_path: Path, open_one: Callable[[str], WritableStore]
) -> None:
    server = RedisServer(tmp_path, appendonly="no").start()
    try:
        store = open_one(server.url)
        output = StagedOutput(store, "export", str(tmp_path / "dataset"))
        orders = ConsumedRange("orders", 0, 0, 10)
        output.commit([orders], [output.staging.write("orders-0-10", [b"records"])])
        server.kill()
        server.start()
        with pytest.raises(Fenced):
            output.commit([ConsumedRange("orders", 0, 10, 20)], [output.staging.write("orders-10-20", [b"more"])])
        again = StagedOutput(store, "export", str(tmp_path / "dataset"))
        assert again.progress.positions == {}
        with pytest.raises(KfsError, match="already exists, so these offsets were written before"):
            again.commit([orders], [again.staging.write("orders-0-10", [b"records"])])
        assert store.load("export").positions == {}
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, None),
        ({"maxmemory-policy": "volatile-lru"}, None),
        ({"appendfsync": "everysec"}, "appendfsync everysec"),
        ({"appendonly": "no"}, "appendonly no"),
        ({"appendfsync": "no", "maxmemory-policy": "allkeys-lru"}, "appendfsync no, maxmemory-policy allkeys-lru"),
        # Who may not ask goes without an answer, as with most servers that are rented.
        ({"appendfsync": "no", "rename-command": "CONFIG RENAMED"}, None),
    ],
)
def test_a_server_that_may_forget_is_warned_of_once(
    settings: dict[str, str],
    said: str | None,
    tmp_path: Path,
    open_one: Callable[[str], WritableStore],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = RedisServer(tmp_path, **settings).start()
    try:
        store = open_one(server.url)
        store.load("export")
        assert caplog.records == []  # who only looks loses nothing
        for _ in range(2):
            store.acquire("export")
    finally:
        server.stop()
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == (said is not None)
    if said is not None:
        assert warnings[0].startswith(f"{server.url} runs with {said}: a crash there may lose positions")


def test_a_server_that_takes_nothing_more_is_read_all_the_same(
    tmp_path: Path, open_one: Callable[[str], WritableStore]
) -> None:
    server = RedisServer(tmp_path).start()
    try:
        store = open_one(server.url)
        store.set_positions("export", {ORDERS: 1})
        with redis.Redis("127.0.0.1", server.port) as client:
            client.config_set("maxmemory", 1)
        assert store.load("export").positions == {ORDERS: 1}
        with pytest.raises(OffsetStoreError, match=rf"^{server.url}: .*maxmemory"):
            store.set_positions("export", {ORDERS: 2})
        with redis.Redis("127.0.0.1", server.port) as client:
            client.config_set("maxmemory", 0)
            client.replicaof("127.0.0.1", 1)
        assert store.load("export").positions == {ORDERS: 1}
        with pytest.raises(OffsetStoreError, match=rf"^{server.url}: .*read only replica"):
            store.set_positions("export", {ORDERS: 2})
    finally:
        server.stop()
