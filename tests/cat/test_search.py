"""Searching with ``kfs cat``: what is found, what is said to have been searched, and what the exit code claims."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kfs.cat.records import CatRequest, CatTotals
from kfs.cli.places import places_of
from kfs.format.checkpoint import parse_offset_checkpoint
from kfs.format.record import Record
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.log_dir import LOG_START_OFFSET_CHECKPOINT
from kfs.log.storage import Storage
from kfs.read import plan
from kfs.read.selection import Selection
from kfs.read.wanted_offsets import WantedOffsets
from tests.cat.printing import EVERYTHING, LINES
from tests.corpus import corpus_names
from tests.expected import ExpectedRecord, expected_records
from tests.logs import dense, log_name, records, set_log_start, write_partition
from tests.other_users import without_roots_rights
from tests.recorded_damage import DAMAGED
from tests.system.kafka_mount import KFS, kfs
from tests.thoroughness import examples

SOUND = [name for name in corpus_names() if name != DAMAGED]
TEXTS = examples(60, 1000)
KEYS = examples(40, 100_000)


class Searched:
    """A corpus, what Kafka read of it, and what searches find."""

    def __init__(self, corpus: Path) -> None:
        self.data_dir = DataDir([str(corpus / "data")], Storage())
        starts = corpus / "data" / LOG_START_OFFSET_CHECKPOINT
        self._starts = parse_offset_checkpoint(starts.read_bytes()) if starts.exists() else {}
        self.visible: list[Record] = []
        self.deleted: list[Record] = []
        for expected in expected_records(corpus):
            if not expected.is_control:
                is_deleted = self._is_deleted(expected)
                (self.deleted if is_deleted else self.visible).append(expected.record)

    def _is_deleted(self, expected: ExpectedRecord) -> bool:
        starts = {(where.topic, where.partition): offset for where, offset in self._starts.items()}
        below = expected.record.offset < starts.get((expected.topic, expected.partition), 0)
        return below or "-delete/" in expected.file

    def count(self, selection: Selection, *, deleted: bool = False) -> int:
        """Return how many records a search counts."""
        totals = CatTotals()
        places = places_of(self.data_dir, [], deleted=deleted)
        list(CatRequest(selection, None).write(-1, places, totals))
        return totals.records.total()


@pytest.fixture
def search(corpus: Callable[[str], Path], request: pytest.FixtureRequest) -> Iterator[Searched]:
    searched = Searched(corpus(request.param))
    with closing(searched.data_dir):
        yield searched


EVERY_CORPUS = pytest.mark.parametrize("search", SOUND, indirect=True)
#: Without those that have ``.log.deleted`` files: Kafka read only ``.log`` files for us.
WITHOUT_DELETED_SEGMENTS = pytest.mark.parametrize(
    "search", [name for name in SOUND if name not in ("e_meta", "e39_meta")], indirect=True
)


@EVERY_CORPUS
def test_all_records_are_counted_by_headers_and_by_looking_at_them(search: Searched) -> None:
    assert search.count(EVERYTHING) == len(search.visible)
    values = [one for one in search.visible if one.value is not None]
    assert search.count(Selection(value_pattern=re.compile(b""))) == len(values)


@WITHOUT_DELETED_SEGMENTS
def test_deleted_records_are_counted_as_well(search: Searched) -> None:
    assert search.count(EVERYTHING, deleted=True) == len(search.visible) + len(search.deleted)


@EVERY_CORPUS
def test_each_key_and_header_is_found_as_often_as_kafka_read_it(search: Searched) -> None:
    keys = Counter(one.key for one in search.visible if one.key is not None)
    headers = Counter(header for one in search.visible for header in set(one.headers))
    chosen = random.Random(1)
    for key in chosen.sample(sorted(keys), min(KEYS, len(keys))):
        assert search.count(Selection(keys=frozenset((key,)))) == keys[key]
    for header in chosen.sample(sorted(headers, key=repr), min(KEYS, len(headers))):
        assert search.count(Selection(headers=(header,))) == headers[header]


@EVERY_CORPUS
def test_texts_are_found_as_often_as_kafka_read_them(search: Searched) -> None:
    values = [one.value for one in search.visible if one.value is not None]
    for text in texts_of(values):
        pattern = re.compile(re.escape(text))
        assert search.count(Selection(value_pattern=pattern)) == sum(text in value for value in values)


@WITHOUT_DELETED_SEGMENTS
def test_texts_of_deleted_records_are_found_with_them(search: Searched) -> None:
    values = [one.value for one in (*search.visible, *search.deleted) if one.value is not None]
    for text in texts_of(values):
        pattern = re.compile(re.escape(text))
        assert search.count(Selection(value_pattern=pattern), deleted=True) == sum(text in value for value in values)


def texts_of(values: list[bytes]) -> Iterator[bytes]:
    """Yield texts that are in values, and some that hardly can be."""
    chosen = random.Random(2)
    filled = [value for value in values if value]
    for number in range(TEXTS if filled else 0):
        value = chosen.choice(filled)
        start = chosen.randrange(len(value))
        text = value[start : start + chosen.randint(1, 12)]
        yield text if number % 4 else text[::-1] + b"\x00"


# --- as a user starts it ---------------------------------------------------------------------------------------------


def values_of(lines: bytes) -> list[str]:
    return [json.loads(line)["value"] for line in lines.splitlines()]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Two topics; of ``a-0`` records are deleted in every way that there is."""
    root = tmp_path / "data"
    write_partition(root / "a-0", {10: dense(10, 29), 30: dense(30, 49)})
    write_partition(root / "a-1", {0: dense(0, 9)})
    write_partition(root / "b-0", {0: dense(0, 19)})
    write_partition(root / "a-0", {0: dense(0, 9)})
    for suffix in (".log", ".index", ".timeindex"):
        os.rename(root / "a-0" / log_name(0, suffix), root / "a-0" / f"{log_name(0, suffix)}.deleted")
    set_log_start(root, "a", 0, 20)
    write_partition(root / "gone-0.0123456789abcdef0123456789abcdef-delete", {0: dense(0, 9)})
    return root


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last line that a command said."""
    return done.stderr.decode().splitlines()[-1]


def test_without_a_path_all_topics_are_printed(shelf: Path) -> None:
    done = kfs("cat", shelf)
    assert (done.returncode, done.stderr) == (0, b"")
    expected = [record.value for record in (*records(20, 49), *records(0, 9), *records(0, 19))]
    assert values_of(done.stdout) == [value.decode() for value in expected if value is not None]


def test_what_is_found_ends_in_what_was_searched(shelf: Path) -> None:
    done = kfs("cat", shelf, "--grep", "^value 4$")
    size = sum(path.stat().st_size for path in shelf.glob("[ab]-?/*.log"))
    assert (done.returncode, values_of(done.stdout)) == (0, ["value 4", "value 4"])
    assert (
        said(done) == f"kfs: searched 2 topics, 3 partitions, 4 segments, 60 offsets, {size:,} bytes: 2 records found"
    )


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_what_isnt_found_where_all_was_searched_is_a_claim(shelf: Path, jobs: str) -> None:
    done = kfs("cat", shelf, "b", "--key", "nobody", "--jobs", jobs)
    size = (shelf / "b-0" / log_name(0)).stat().st_size
    assert (done.returncode, done.stdout) == (3, b"")
    assert said(done) == f"kfs: searched 1 topic, 1 partition, 1 segment, 20 offsets, {size:,} bytes: 0 records found"


def test_an_index_that_rules_a_segment_out_has_searched_it(shelf: Path) -> None:
    done = kfs("cat", shelf, "b", "--key", "nobody", "--since", "2030-01-01")
    assert (done.returncode, " 20 offsets, " in said(done)) == (3, True)
    done = kfs("cat", shelf, "b", "--key", "nobody", "--offsets", "5:7")
    assert (done.returncode, " 2 offsets, " in said(done)) == (3, True)
    done = kfs("cat", shelf, "b", "--key", "nobody", "--offsets", "500:")
    assert (done.returncode, " 0 segments, 0 offsets, 0 bytes" in said(done)) == (3, True)


@pytest.mark.parametrize(("text", "code"), [("value 2", 1), ("nowhere", 1)])
def test_what_cant_be_read_was_not_searched(shelf: Path, text: str, code: int) -> None:
    log = shelf / "b-0" / log_name(0)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    done = kfs("cat", shelf, "--grep", text)
    assert done.returncode == code
    problem, claim = done.stderr.decode().splitlines()
    assert str(log) in problem
    assert claim.endswith(" found; the parts named above could not be searched")


def test_a_partition_that_cant_be_listed_was_not_searched_and_the_rest_is(shelf: Path) -> None:
    os.chmod(shelf / "a-1", 0)
    done = without_roots_rights([str(KFS), "cat", str(shelf), "--grep", "^value 4$", "--deleted"])
    os.chmod(shelf / "a-1", 0o755)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3  # of b-0, of a-0's deleted segments, and of gone-0
    lines = done.stderr.splitlines()
    assert [line for line in lines if "can't be listed: Permission denied" in line and "a-1" in line]
    assert lines[-1].endswith("3 records found; the parts named above could not be searched")


def test_what_tiered_storage_has_was_not_searched(corpus: Callable[[str], Path]) -> None:
    done = kfs("cat", corpus("t_local") / "data", "--key", "nobody")
    assert done.returncode == 1
    assert said(done).endswith("0 records found; the parts named above could not be searched")


def test_deleted_records_of_every_kind_are_found(shelf: Path) -> None:
    done = kfs("cat", shelf, "--grep", "^value (4|15|25)$", "--deleted", "--with-path")
    assert done.returncode == 0
    lines = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert [path for path, _ in lines] == [
        "a/0/offset/25.json",
        ".kfs/deleted/a/0/offset/15.json",
        ".kfs/deleted/a/0.deleted/offset/4.json",
        "a/1/offset/4.json",
        "b/0/offset/4.json",
        "b/0/offset/15.json",
        ".kfs/deleted/gone/0.0123456789abcdef0123456789abcdef-delete/offset/4.json",
    ]
    for path, line in lines:
        assert kfs("cat", shelf, path).stdout.decode() == f"{line}\n"
    assert "3 topics, 4 partitions, 6 segments, 90 offsets" in said(done)


def test_of_one_partition_only_its_own_deleted_records(shelf: Path) -> None:
    write_partition(shelf / "a-1.0123456789abcdef0123456789abcdef-delete", {0: dense(0, 9)})
    assert kfs("cat", shelf, "a/0", "--count", "--deleted").stdout == b"50\n"
    assert kfs("cat", shelf, "a/1", "--count", "--deleted").stdout == b"20\n"
    assert kfs("cat", shelf, "gone", "--count", "--deleted").stdout == b"10\n"
    assert kfs("cat", shelf, "gone", "--count").stderr == b"kfs: no topic 'gone'\n"


def test_overlapping_deleted_segments_have_each_offset_once(tmp_path: Path) -> None:
    """The cleaner's segment reaches over those that it was made of, while all of them wait for their removal."""
    root = tmp_path / "data"
    write_partition(root / "a-0", {40: dense(40, 49)})
    for base, last in ((0, 29), (10, 19), (20, 39)):
        write_partition(root / "old", {base: dense(base, last)})
        os.rename(root / "old" / log_name(base), root / "a-0" / f"{log_name(base)}.deleted")
    for jobs in ("1", "2"):
        done = kfs("cat", root, "a/0", "--deleted", "--jobs", jobs)
        assert (done.returncode, done.stderr) == (0, b"")
        offsets = [json.loads(line)["offset"] for line in done.stdout.splitlines()]
        assert offsets == [*range(40, 50), *range(40)]
    assert kfs("cat", root, "a/0", "--deleted", "--offsets", "15:25", "--count").stdout == b"10\n"
    assert kfs("cat", root, "a/0", "--deleted", "--last", "3", "--count", "--with-path").stdout == (
        b"a/0\t3\n.kfs/deleted/a/0.deleted\t3\n"
    )


def test_paths_stand_beside_raw_values(shelf: Path) -> None:
    done = kfs("cat", shelf, "b", "--offsets", "3:5", "--format", "value", "--with-path")
    assert done.stdout == b"b/0/offset/3.json\tvalue 3\nb/0/offset/4.json\tvalue 4\n"


def test_counts(shelf: Path) -> None:
    assert kfs("cat", shelf, "--count").stdout == b"60\n"
    assert kfs("cat", shelf, "--count", "--with-path").stdout == b"a/0\t30\na/1\t10\nb/0\t20\n"
    assert kfs("cat", shelf, "b", "--count", "--first", "7").stdout == b"7\n"
    done = kfs("cat", shelf, "--count", "--grep", "^value 4$")
    assert (done.returncode, done.stdout) == (0, b"2\n")
    done = kfs("cat", shelf, "--count", "--grep", "nowhere")
    assert (done.returncode, done.stdout) == (3, b"0\n")


@pytest.mark.parametrize("which", ["--first", "--last"])
def test_who_wants_some_isnt_told_that_all_was_searched(shelf: Path, which: str) -> None:
    done = kfs("cat", shelf, "b", which, "3", "--grep", "value")
    assert (done.returncode, said(done)) == (0, "kfs: 3 records found")
    done = kfs("cat", shelf, "b", which, "3", "--grep", "nowhere")
    assert (done.returncode, said(done)) == (3, "kfs: 0 records found")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--count", "--format", "parquet"),
        ("--with-path", "--format", "arrow"),
        ("--deleted", "--format", "arrow"),
        ("--with-path", "--length-prefix", "--format", "value"),
        ("a/0/first.json", "--count"),
        ("a/0/first.json", "--grep", "x"),
        ("a/0/first.json", "--offsets", "1"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(shelf: Path, arguments: Iterable[str]) -> None:
    done = kfs("cat", shelf, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("totals", [None, CatTotals()], ids=["printing", "searching"])
def test_what_goes_meanwhile_was_not_searched(
    totals: CatTotals | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that retention takes before it is read is a problem only where all that was there is claimed."""
    root = tmp_path / "data"
    write_partition(root / "a-0", {0: dense(0, 9), 10: dense(10, 19)})

    def plan_and_delete(log: Log, offsets: WantedOffsets) -> list[plan.Split]:
        splits = list(plan.splits_of(log, offsets))
        (root / "a-0" / log_name(0)).unlink()
        log.storage.files.close()
        return splits

    monkeypatch.setattr("kfs.cat.records.splits_of", plan_and_delete)
    with closing(DataDir([str(root)], Storage())) as data_dir, open(os.devnull, "wb") as out:
        places = places_of(data_dir, [], deleted=False)
        problems = list(CatRequest(EVERYTHING, LINES).write(out.fileno(), places, totals))
    assert ["offsets 0 to 9 are gone" in problem.reason for problem in problems] == ([] if totals is None else [True])
