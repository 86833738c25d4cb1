"""Offset stores, each over a real server or file: fixtures for all tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.servers.redis_server import RedisServer
from tests.servers.zookeeper_server import ZooKeeperServer

STORES = ("sqlite", "redis", "zookeeper")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis server for the tests of this process."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server for the tests of this process."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def url_of(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the function that gives the URL of a place of that kind where nothing is stored."""
    directory = tmp_path_factory.mktemp("sqlite")

    def url(kind: str) -> str:
        number = next(_numbers)
        if kind == "sqlite":
            return f"sqlite://{directory}/{number}.db"
        server = request.getfixturevalue(f"{kind}_server").url
        return f"{server}?prefix=kfs{number}:" if kind == "redis" else f"{server}/root{number}"

    return url


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    """The URL of each kind of store."""
    return url_of(request.param)
