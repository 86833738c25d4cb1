"""Servers that are killed, and connections that break, in the middle of a change, which is made once all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfs.errors import Fenced, KfsError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets import ConsumedRange, StagedFile, StagedOutput, WritableStore, open_writable_store
from tests.servers.proxy import Cut, Proxy
from tests.servers.redis_server import RedisServer
from tests.servers.server import Server
from tests.servers.zookeeper_server import ZooKeeperServer

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


def test_a_server_that_is_killed_and_comes_back_has_all_that_was_saved(server: Server) -> None:
    with open_writable_store(url_at(server, server.port), patience=30) as store:
        fence, _ = store.acquire("export")
        for start in range(0, 30, 10):
            store.save(fence, [ConsumedRange("orders", 0, start, start + 10)])
            server.kill()
            thread = comes_back(server)
            assert store.load("export").positions == {ORDERS: start + 10}
            thread.join()


def test_a_save_waits_for_a_server_that_was_killed(server: Server) -> None:
    with open_writable_store(url_at(server, server.port), patience=30) as store:
        fence, _ = store.acquire("export")
        server.kill()
        thread = comes_back(server)
        store.save(fence, [ConsumedRange("orders", 0, 0, 10)])
        thread.join()
        assert store.load("export").positions == {ORDERS: 10}


def test_a_server_that_stays_away_is_said_to_be(server: Server) -> None:
    with open_writable_store(url_at(server, server.port), patience=1) as store:
        fence, _ = store.acquire("export")
        server.kill()
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
        with pytest.raises(KfsError, match="is there already, so these offsets were written before"):
            again.commit([orders], [again.staging.write("orders-0-10", [b"records"])])
        assert store.load("export").positions == {}
    finally:
        server.stop()
