"""Logs that grow in any way, exported in any batches, by tasks that are done any number of times: each record once."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("pyarrow")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfs.format.record import Record
from tests.logs import batch, record, write_partition
from tests.spark.export.exports import HereJobs, date_of, dated, export, options_for

_DAY = 86_400_000
#: Of consecutive batches: gaps before each record (compaction leaves them), and the day that each is of.
BATCHES = st.lists(st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 3)), min_size=1, max_size=6), max_size=8)


def written(directory: Path, start: int, batches: list[list[tuple[int, int]]]) -> list[Record]:
    """Write the batches as a segment; return their records."""
    found: list[list[Record]] = []
    at = start - 1
    for one in batches:
        found.append([])
        for gap, day in one:
            at += gap
            found[-1].append(record(at, timestamp=-1 if day < 0 else day * _DAY + at))
    if found:
        write_partition(directory, {found[0][0].offset: [batch(one) for one in found]})
    return [one for some in found for one in some]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    growth=st.lists(st.tuples(st.integers(0, 2), BATCHES), min_size=1, max_size=3),
    records=st.none() | st.integers(1, 20),
    size=st.none() | st.integers(1, 500),
    cores=st.integers(1, 3),
    task=st.sampled_from([1, 200, 1 << 20]),
    most_open=st.integers(1, 3),
)
@pytest.mark.usefixtures("eager", "quiet")
def test_each_record_is_exported_once(
    growth: list[tuple[int, list[list[tuple[int, int]]]]],
    records: int | None,
    size: int | None,
    cores: int,
    task: int,
    most_open: int,
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        patch("kfs.spark.exporting.batches._SMALLEST_TASK", task),
        patch("kfs.spark.exporting.files._MOST_OPEN", most_open),
        patch("os.fsync"),  # nothing is killed here, and it takes most of the time
    ):
        data, dataset = Path(directory, "data"), Path(directory, "dataset")
        write_partition(data / "t-9", {0: [batch([record(0)])]})
        expected = [("t", 9, 0, date_of(record(0).timestamp * 1000))]
        ends = dict.fromkeys(range(3), 0)
        for partition, batches in growth:
            found = written(data / f"t-{partition}", ends[partition], batches)
            ends[partition] = found[-1].offset + 1 if found else ends[partition]
            expected += [("t", partition, one.offset, date_of(one.timestamp * 1000)) for one in found]
            export(options_for(data, dataset, records=records, size=size), HereJobs(cores, times=cores))
            rows = [(row["topic"], row["partition"], row["offset"], row["date"]) for row in dated(dataset)]
            assert rows == sorted(expected, key=lambda row: row[:3])
