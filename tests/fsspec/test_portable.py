"""Systems that have less than Linux: without what they lack, the tree and the Python API say the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.corpus import CorpusStore

#: Takes away what other systems don't have, before kfs is imported: Windows has none of it.
_POORER = """
import mmap, os, sys
import asyncio, fsspec, multiprocessing, platformdirs  # which have ways of their own on such systems
for name in (
    "pread", "preadv", "fork", "getuid", "geteuid", "getgid", "sched_getaffinity", "posix_fadvise", "statvfs",
    "register_at_fork", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_DIRECTORY", "O_NOFOLLOW", "SEEK_DATA", "SEEK_HOLE",
):
    delattr(os, name)
for name in ("MAP_SHARED", "MAP_PRIVATE", "PROT_READ", "PROT_WRITE"):
    delattr(mmap, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios", "mfusepy", "fuse", "multiprocessing.popen_fork"):
    sys.modules[name] = None
"""
_READ = """
import hashlib, threading, time
time.time, time.time_ns = lambda: 1.8e9, lambda: 1_800_000_000_000_000_000  # some files say how long ago something was
import kfs
from kfs.fsspec import KafkaFileSystem
fs = KafkaFileSystem(sys.argv[1], views=False)
def digest():
    whole = hashlib.sha256()
    for path in fs.find(""):
        whole.update(repr((path, fs.info(path)["size"])).encode())
        whole.update(fs.cat_file(path))
    return whole.hexdigest()
digests = []
threads = [threading.Thread(target=lambda: digests.append(digest())) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*digests)
with kfs.open(sys.argv[1]) as data:
    print(hash(repr([record for log in data.logs() for record in log])))
    print(sum(len(log.tail(5)) for log in data.logs()))
assert "kfs.mount" not in sys.modules
"""


def said_by(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)],
        env={"PYTHONHASHSEED": "1", "PATH": "", "XDG_CACHE_HOME": str(directory.parent.parent / "no-cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_differs_where_the_system_has_less(corpus_store: CorpusStore) -> None:
    for name in ("f_mixed", "b_txn"):
        data = corpus_store.path(name) / "data"
        rich = said_by(f"import sys\n{_READ}", data)
        first, second = rich.splitlines()[0].split()
        assert first == second
        assert said_by(_POORER + _READ, data) == rich
