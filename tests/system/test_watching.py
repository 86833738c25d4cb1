"""How a mount follows its source: it is told of changes, and asks nothing while there are none."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from tests.logs import dense, log_name, write_partition
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount

pytestmark = pytest.mark.fuse

#: For so long nothing happens; who polls as often as names are kept (half a second) would wake six times.
IDLE_SECONDS: Final = 3.2


@pytest.fixture
def mounted(tmp_path: Path, mount_kafka: MountKafka) -> KafkaMount:
    """A mount of which the kernel knows records of a closed segment."""
    write_partition(tmp_path / "data/t-0", {0: dense(0, 9), 10: dense(10, 19)})
    mounted = mount_kafka(tmp_path / "data", front="kernel")
    assert len(mounted.lines("t/0")) == 20
    return mounted


def sleeps_of(pid: int) -> int:
    """Return how often threads of a process have gone to sleep."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        found += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


def test_a_source_in_which_nothing_happens_is_left_alone(mounted: KafkaMount) -> None:
    def is_left_alone() -> bool:
        before = sleeps_of(mounted.pid)
        time.sleep(IDLE_SECONDS)
        return sleeps_of(mounted.pid) - before < IDLE_SECONDS

    assert eventually(is_left_alone, seconds=20)


def test_what_is_deleted_after_a_long_time_goes(mounted: KafkaMount, tmp_path: Path) -> None:
    record = mounted.path("t/0/offset/3.json")
    assert record.exists()
    time.sleep(IDLE_SECONDS)  # the watch sleeps by now
    for path in (tmp_path / "data/t-0").glob(log_name(0, ".*")):
        path.rename(f"{path}.deleted")
    assert eventually(lambda: not record.exists())
    assert mounted.offsets("t/0") == list(range(10, 20))
