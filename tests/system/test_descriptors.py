"""A mount whose process may have few files open, and one whose files are deleted under it."""

from __future__ import annotations

import errno
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from kfs.log.window import FIRST_READ
from tests.logs import batch, log_name, record, write_partition
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka

pytestmark = pytest.mark.fuse

OFFSETS: Final = range(6)
#: What is promised, in seconds, and what a busy machine may add to it.
PROMISE: Final = 5.0
DELAY: Final = 2.0

through_each_kind_of_front: Final = pytest.mark.parametrize("front", ONE_OF_EACH_KIND)


def make(root: Path, partitions: int) -> Path:
    """Write partitions of three segments, whose indexes have entries, and which are large enough to need them."""
    key = b"k" * FIRST_READ
    for number in range(partitions):
        segments = {base: [batch([record(base, key=key)]), batch([record(base + 1)])] for base in OFFSETS[::2]}
        write_partition(root / f"t-{number}", segments, interval=1)
    (root / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=3\n")
    return root


def wrong_in(partition: Path) -> list[str]:
    """Return what of a partition isn't shown as it was written."""
    wrong = []
    try:
        if sorted(os.listdir(partition / "offset")) != sorted(f"{offset}.json" for offset in OFFSETS):
            wrong.append(f"{partition}: offset/ is short")
        if len(os.listdir(partition / "segment")) != 3:
            wrong.append(f"{partition}: segment/ is short")
        for offset in OFFSETS:
            if f'"value":"value {offset}"' not in (partition / "offset" / f"{offset}.json").read_text():
                wrong.append(f"{partition}: {offset} is another record")
        if len((partition / "records.jsonl").read_bytes().splitlines()) != len(OFFSETS):
            wrong.append(f"{partition}: records.jsonl is short")
    except OSError as error:
        wrong.append(str(error))
    return wrong


@through_each_kind_of_front
@pytest.mark.parametrize("limit", [128, 40])
def test_with_few_descriptors_all_is_shown(limit: int, front: str, tmp_path: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(make(tmp_path / "data", 60), front=front)
    # Not before it starts: a budget that is right from the start never meets a refusal.
    resource.prlimit(mounted.pid, resource.RLIMIT_NOFILE, (limit, limit))
    partitions = [mounted.path(f"t/{number}") for number in range(60)]
    assert [wrong for partition in partitions for wrong in wrong_in(partition)] == []
    with ThreadPoolExecutor(8) as threads:
        assert [wrong for found in threads.map(wrong_in, partitions) for wrong in found] == []
    assert [line for line in mounted.log().splitlines() if " INFO " not in line] == []


def held(pid: int, root: Path) -> list[str]:
    """Return the files below a directory that a process has open or mapped."""
    paths = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if os.path.lexists(entry)]
    paths += [line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return [path for path in paths if path.startswith(str(root))]


def processes(pid: int) -> list[int]:
    """Return a process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


@through_each_kind_of_front
def test_five_seconds_after_a_deletion_nothing_is_kept_of_a_file(
    front: str, tmp_path: Path, mount_kafka: MountKafka
) -> None:
    root = make(tmp_path / "data", 3)
    mounted = mount_kafka(root, front=front)
    assert mounted.path("t/0/offset/1.json").exists()  # by the index: nothing else is known yet
    assert wrong_in(mounted.path("t/0")) == wrong_in(mounted.path("t/1")) == []
    assert any(path.endswith(log_name(0)) for path in held(mounted.pid, root))
    assert any(path.endswith(log_name(0, ".index")) for path in held(mounted.pid, root))
    with open(mounted.path("t/0/segment") / f"{0:020}.jsonl", "rb") as reader:
        for suffix in (".log", ".index", ".timeindex"):
            os.rename(root / "t-0" / log_name(0, suffix), root / "t-0" / log_name(0, f"{suffix}.deleted"))
            os.unlink(root / "t-1" / log_name(2, suffix))

        def kept() -> list[str]:
            gone = (f"t-0/{log_name(0)[:20]}", f"t-1/{log_name(2)[:20]}")
            paths = [path for pid in processes(mounted.pid) for path in held(pid, root)]
            return [path for path in paths if any(one in path for one in gone)]

        assert eventually(lambda: not kept(), PROMISE + DELAY), kept()
        os.posix_fadvise(reader.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # what the kernel has still
        with pytest.raises(OSError, match="Stale file handle"):
            reader.read()
    assert wrong_in(mounted.path("t/2")) == []


@through_each_kind_of_front
def test_a_source_that_is_gone_is_an_error_until_it_is_back(
    front: str, tmp_path: Path, mount_kafka: MountKafka
) -> None:
    root = make(tmp_path / "disk" / "data", 2)
    mounted = mount_kafka(root, front=front)
    assert wrong_in(mounted.path("t/0")) == []
    os.rename(root, tmp_path / "elsewhere")

    def fails(path: Path) -> bool:
        try:
            os.listdir(path)
        except OSError as error:
            return error.errno == errno.EIO
        return False

    assert eventually(lambda: fails(mounted.point) and fails(mounted.path("t/1/offset")), PROMISE)
    root.mkdir()  # the mount point of a disk, and no disk
    assert not eventually(lambda: not fails(mounted.point), 1.5)
    assert str(root) in mounted.log()
    root.rmdir()
    os.rename(tmp_path / "elsewhere", root)
    assert eventually(lambda: not fails(mounted.point) and not wrong_in(mounted.path("t/0")), PROMISE)
    assert wrong_in(mounted.path("t/1")) == []
