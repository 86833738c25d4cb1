"""A scan holds no more of a large log than it has to; a table holds as much as one likes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kfs.format.codecs import Codec
from kfs.scan import Scan
from tests.logs import batch, record, write_log
from tests.scan.scanning import opened

RECORDS_IN_BATCH = 64
VALUE_BYTES = 16 * 1024
BATCHES_IN_SEGMENT = 16
MEBIBYTE = 1024 * 1024


def write_large(root: Path, size: int, codec: Codec) -> int:
    """Write a log of values that have so many bytes together, one batch again and again; return how many there are.

    It has many segments: each is a piece that another process may take.
    """
    value = os.urandom(64) * (VALUE_BYTES // 64)
    content = [record(offset, value, key=b"%d" % offset) for offset in range(RECORDS_IN_BATCH)]
    rest = batch(content, codec=codec).data[8:]  # the base offset is outside of the CRC
    batches = size // (RECORDS_IN_BATCH * VALUE_BYTES)
    for first in range(0, batches, BATCHES_IN_SEGMENT):
        numbers = range(first, min(first + BATCHES_IN_SEGMENT, batches))
        data = b"".join(struct.pack(">q", at * RECORDS_IN_BATCH) + rest for at in numbers)
        write_log(root / "t-0", first * RECORDS_IN_BATCH, data)
    return batches * RECORDS_IN_BATCH


SCAN = """
import os, sys, time
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.read.workers import pool
from kfs.scan.job import ScanJob
from kfs.scan import Scan

def peak(pid):  # ru_maxrss would have what the parent had before it became this
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

logs = DataDir([sys.argv[1]], Storage()).logs
ScanJob.worth_sharing = ScanJob.worth_processes = 1
ScanJob.together_bytes = 0
import pyarrow
started = peak(os.getpid())
rows = size = 0
for one in Scan(logs, include_headers=True, jobs=int(sys.argv[2])):
    if not rows:
        time.sleep(1)  # whoever works ahead gets as far as it may
    rows += one.num_rows
    size += one.nbytes
processes = [peak(member.pid) for member in pool.POOL._idle]
print(rows, size, len(processes), peak(os.getpid()) - started, *processes)
"""


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(("jobs", "bound"), [(1, 128), (2, 192)])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, jobs: int, bound: int, codec: Codec) -> None:
    size = 768 * MEBIBYTE if codec else 320 * MEBIBYTE
    records = write_large(tmp_path, size, codec)
    done = subprocess.run(
        [sys.executable, "-c", SCAN, str(tmp_path), str(jobs)], capture_output=True, check=True, text=True
    )
    rows, scanned, processes, *peaks = map(int, done.stdout.split())
    assert rows == records
    assert scanned > size
    assert processes == (jobs if jobs > 1 else 0)
    assert 0 < max(peaks) < bound * MEBIBYTE


@pytest.mark.long
def test_a_table_may_have_more_bytes_than_int32_counts(tmp_path: Path) -> None:
    size = (1 << 31) + 64 * MEBIBYTE
    records = write_large(tmp_path, size, Codec.LZ4)
    table = Scan(opened(tmp_path).logs, batch_size=4 * MEBIBYTE).to_table()
    assert table.num_rows == records
    assert table.column("offset").combine_chunks().equals(pa.array(range(records)))
    values = table.column("value")
    assert values.nbytes > size
    assert pc.sum(pc.binary_length(values)).as_py() == records * VALUE_BYTES
    assert values[records - 1] == values[records - 1 - RECORDS_IN_BATCH]
    assert {field.type for field in table.schema if field.name in ("key", "value")} == {pa.binary()}
