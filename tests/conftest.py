"""Fixtures for every test: the recorded broker directories, and the proof that kfs never writes to them."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path

import pytest
from hypothesis import settings

from tests.corpus import CorpusStore, compare, take_manifest
from tests.logs import look_every_time
from tests.requirements import need_fuse
from tests.system.shop import Shop
from tests.thoroughness import examples

pytest_plugins = ("tests.missing", "tests.servers.stores")

# How long an example takes says more about the machine than about kfs.
settings.register_profile("kfs", deadline=None, max_examples=examples(50, 200))
settings.load_profile("kfs")


# A job in the background (nohup, &) is started with these ignored, and what tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked ``fuse`` need a machine where kfs can mount."""
    if item.get_closest_marker("fuse"):
        need_fuse()


#: Where one test takes long by itself: brokers, sessions of Spark in processes of their own, a soak.
_LONG = (
    "tests/benchmarks/test_mount_benchmark.py",
    "tests/broker/",
    "tests/examples/",
    "tests/read/test_every_view.py",
    "tests/scan/test_shared_memory.py",
    "tests/soak/test_soak.py",
    "tests/spark/export/test_command.py",
    "tests/spark/export/test_killed",
    "tests/spark/offsets/test_lost_connections.py",
    "tests/spark/test_on_a_cluster.py",
)


@pytest.hookimpl(trylast=True)  # of those that are selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that need a Spark session first, and those that take long where the other processes begin.

    pytest-xdist gives each process a run of tests, and lets others steal from its end: so one process does all that
    need the session, and one JVM starts; and in the end none is left alone with a test that takes long.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    beginnings: list[list[pytest.Item]] = [[] for _ in range(processes)]
    beginnings[0] = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    others = [item for item in items if "spark" not in getattr(item, "fixturenames", ())]
    long = groupby((item for item in others if item.nodeid.startswith(_LONG)), lambda item: item.nodeid.split("::")[0])
    for number, (_, module) in enumerate(long):
        beginnings[-1 - number % max(1, processes - 1)] += module
    rest = iter([item for item in others if not item.nodeid.startswith(_LONG)])
    ordered: list[pytest.Item] = []
    for number, beginning in enumerate(beginnings):
        size = (len(items) - len(ordered)) // (processes - number)  # of the run that pytest-xdist gives it
        ordered += [*beginning, *islice(rest, max(0, size - len(beginning)))]
    items[:] = [*ordered, *rest]


def pytest_collection_finish() -> None:
    """Leave what is there for the whole run to itself: a test that collects garbage would look through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _cache_directory_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what kfs keeps between mounts out of the user's own cache directory, in every process that a test starts."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def corpus_store(tmp_path_factory: pytest.TempPathFactory) -> CorpusStore:
    """The corpora of this run, shared by the processes of pytest-xdist, whose own directories lie side by side."""
    run_directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run_directory = run_directory.parent
    return CorpusStore(run_directory / "corpora")


@pytest.fixture(scope="session", autouse=True)
def _corpora_stay_untouched(corpus_store: CorpusStore) -> Iterator[None]:
    """Fail the run when any test, through kfs or by itself, changed a corpus: kfs never writes to a source."""
    yield
    changes = corpus_store.changes()
    if changes:
        pytest.fail("source directories were changed:\n  " + "\n  ".join(changes), pytrace=False)


@pytest.fixture(scope="session")
def corpus(corpus_store: CorpusStore, _corpora_stay_untouched: None) -> Callable[[str], Path]:
    """Return the function that gives the directory of a corpus by name, as described in tests/corpora/README.md.

    It is read-only by agreement; a test that needs to damage something copies it first.
    """
    return corpus_store.path


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A log directory that nobody changes: what file operations and commands are tried on."""
    made = Shop(tmp_path_factory.mktemp("shop"))
    before = take_manifest(made.root)
    yield made
    assert compare(before, take_manifest(made.root)) == []


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question about the disk is answered anew."""
    look_every_time(monkeypatch)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is logged: a property test meets more problems than anyone wants to read."""
    logger = logging.getLogger("kfs")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # of those below it, too
    yield
    logger.setLevel(level)
