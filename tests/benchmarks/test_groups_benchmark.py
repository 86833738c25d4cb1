"""The benchmark of loading groups, with few commits: does it still run, and does its log hold what it says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.groups import logs_of, main, measure
from tests.internal.group_logs import groups_of

LOGS = logs_of(2_000, 50)


@pytest.mark.parametrize("name", LOGS)
def test_its_logs_are_what_they_are_called(tmp_path: Path, name: str) -> None:
    log = LOGS[name]
    log.write(tmp_path)
    groups = groups_of(tmp_path)
    assert 0 < len(groups.names()) <= 50
    assert not groups.state_problems().loses_something
    for each in groups.names():
        group = groups.group(each)
        assert group is not None
        assert len(group.partitions) == log.commits_in_batch
        assert all(partition.offset is not None and not partition.pending for partition in group.partitions)


def test_a_measurement_is_of_the_whole_load(tmp_path: Path) -> None:
    LOGS["ten commits a batch"].write(tmp_path)
    found = measure(tmp_path)
    assert found.seconds > 0
    assert found.table_seconds > 0
    assert found.peak >= 0


def test_it_prints_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_setaffinity", lambda *_: None)  # for the tests that follow
    main(["--commits=400", "--groups=10", "--repeat=1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[3:]] == list(LOGS)
