"""Files with holes: what is in them is what zeros are, and nobody reads them through."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.format.layout import BATCH_OVERHEAD
from kfs.storage.holes import data_extents, next_data
from kfs.storage.open_files import OpenFile
from tests.logs import (
    batch,
    bytes_read,
    damage_in,
    log_name,
    open_log,
    record,
    records_in,
    watch_reads,
    write_partition,
)

GIB = 1 << 30
SHORT, LONG = 1 << 20, 50 * GIB
#: A batch whose first seven bytes, those of its offset, are zeros.
LATER = batch([record(15)]).data


def _tail(path: Path, hole: int) -> None:
    os.truncate(path, path.stat().st_size + hole)


def _torn_tail(path: Path, hole: int) -> None:
    path.write_bytes(path.read_bytes() + LATER[: BATCH_OVERHEAD - 1])
    _tail(path, hole)


def _inside(path: Path, hole: int) -> None:
    end = (path.stat().st_size + hole) // 4096 * 4096
    with open(path, "r+b") as file:
        file.seek(end)
        file.write(LATER)


def _up_to_a_batch_that_begins_in_it(path: Path, hole: int) -> None:
    end = (path.stat().st_size + hole) // 4096 * 4096
    with open(path, "r+b") as file:
        file.seek(end)
        file.write(LATER[7:])


HOLES = [_tail, _torn_tail, _inside, _up_to_a_batch_that_begins_in_it]


def _log_with(make: Callable[[Path, int], None], directory: Path, hole: int, base_offset: int) -> Path:
    write_partition(directory, {base: [batch([record(base)]), batch([record(base + 1)])] for base in (0, 10, 20)})
    make(directory / log_name(base_offset), hole)
    return directory


@pytest.mark.parametrize("base_offset", [10, 20], ids=["closed", "last"])
@pytest.mark.parametrize("make", HOLES, ids=lambda make: make.__name__.strip("_"))
def test_a_hole_is_passed_at_once_and_is_what_zeros_are(
    make: Callable[[Path, int], None], base_offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = open_log(_log_with(make, tmp_path / "small" / "t-0", SHORT, base_offset))
    reads = watch_reads(monkeypatch)
    large = open_log(_log_with(make, tmp_path / "large" / "t-0", LONG, base_offset))
    seen, damage = records_in(large), damage_in(large)
    assert bytes_read(reads) < 64 << 20
    with monkeypatch.context() as patched:
        patched.delattr(os, "SEEK_DATA")  # then every zero is read
        assert seen == records_in(small)
        expected = damage_in(small)
    assert [(item.position, item.problem.reason) for item in damage] == [
        (item.position, item.problem.reason) for item in expected
    ]
    for found, other in zip(damage, expected, strict=True):
        assert found.end - other.end in (0, LONG - SHORT)


def test_extents_are_where_data_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(b"a" * 4096)
        file.seek(1 << 20)
        file.write(b"b" * 4096)
        file.truncate(1 << 21)
    extents = list(data_extents(OpenFile(str(path)), 0, 1 << 21))
    assert extents == [(0, 4096), (1 << 20, (1 << 20) + 4096)]
    assert next_data(OpenFile(str(path)), 5000, 1 << 21) == 1 << 20
    assert next_data(OpenFile(str(path)), (1 << 20) + 5000, 1 << 21) == 1 << 21


def test_where_a_filesystem_does_not_tell_everything_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))

    def refuse(*_arguments: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuse)
    assert list(data_extents(OpenFile(str(path)), 100, 10_000)) == [(100, 10_000)]
