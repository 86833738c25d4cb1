"""The lines of single files, and both implementations that write them."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.dump.batch_text import BatchLines, BatchText
from kfs.dump.dumper import DumpOptions
from kfs.dump.forms import Printing
from kfs.dump.json_form import JsonForm
from kfs.dump.kinds import files_of
from kfs.dump.message_parsers import DecoderMessageParser
from kfs.dump.text_form_2x import TextForm20, TextForm28
from kfs.format.codecs import Codec
from kfs.format.record import Record, TimestampType
from kfs.render.record_line import parse_line
from tests.corpus import corpus_names
from tests.dump.dumping import Dumped, dump, json_by, text_by
from tests.expected import expected_records
from tests.implementations import BATCH_TEXTS, EVERY_BATCH_TEXT, SEQUENCED
from tests.logs import batch, batches, joined, positions, record, records, write_log

DEEP = Printing(True)
CONTENTS_ONLY = Printing(True, DecoderMessageParser(), has_metadata=False)


def lines_of(dumped: Dumped) -> list[str]:
    return dumped.lines.decode().splitlines()


# --- the articles' examples ---------------------------------------------------------------------------------------


@pytest.fixture
def launch_info(tmp_path: Path) -> Path:
    """Three batches that take 211 bytes, and the fourth with the value of the articles, not from a producer."""
    values = [b"1", b"23", b"4567"]
    content = [batch([Record(at, 1_606_446_771_200 + at, None, value)]) for at, value in enumerate(values)]
    content.append(batch([Record(3, 1_606_446_771_205, None, b"4567890")]))
    assert positions(content)[-1] == 211
    return write_log(tmp_path / "launch_info-0", 0, joined(content))


def test_the_line_of_the_article_in_the_form_of_2_0(launch_info: Path) -> None:
    dumped = dump(launch_info, form=TextForm20, printing=DEEP)
    assert lines_of(dumped)[-1] == (
        "offset: 3 position: 211 CreateTime: 1606446771205 isvalid: true keysize: -1 valuesize: 7 magic: 2"
        " compresscodec: NONE producerId: -1 producerEpoch: -1 sequence: -1 isTransactional: false headerKeys: []"
    )
    assert lines_of(dump(launch_info, form=TextForm20))[-1].endswith("headerKeys: [] payload: 4567890")
    assert lines_of(dumped)[:2] == [f"Dumping {launch_info}", "Starting offset: 0"]


def test_the_same_record_in_the_form_of_4_x(launch_info: Path) -> None:
    batch_line, record_line = lines_of(dump(launch_info))[-2:]
    assert batch_line.startswith("baseOffset: 3 lastOffset: 3 count: 1 baseSequence: -1 lastSequence: -1 ")
    assert " position: 211 CreateTime: 1606446771205 size: 75 magic: 2 compresscodec: none " in batch_line
    assert record_line == (
        "| offset: 3 CreateTime: 1606446771205 keySize: -1 valueSize: 7 sequence: -1 headerKeys: [] payload: 4567890"
    )


def test_the_form_of_2_0_shows_batches_where_records_are_not_wanted(launch_info: Path) -> None:
    shallow = lines_of(dump(launch_info, form=TextForm20, printing=Printing()))
    assert len(shallow) == 2 + 4
    assert " isTransactional: false position: 211 CreateTime: 1606446771205 isvalid: true size: 75 " in shallow[-1]


# --- options ------------------------------------------------------------------------------------------------------


def test_without_deep_iteration_there_are_batches_only(launch_info: Path) -> None:
    lines = lines_of(dump(launch_info, printing=Printing()))
    assert [line.split(":")[0] for line in lines[2:]] == ["baseOffset"] * 4


@EVERY_BATCH_TEXT
def test_without_metadata_a_line_has_key_and_payload_only(batch_text: type[BatchLines], tmp_path: Path) -> None:
    pairs = [(b"k", b"v"), (b"k", None), (None, b"v"), (None, None)]
    content = [Record(at, 0, key, value) for at, (key, value) in enumerate(pairs)]
    log = write_log(tmp_path / "t-0", 0, batch(content).data)
    lines = lines_of(dump(log, printing=CONTENTS_ONLY, form=text_by(batch_text)))
    assert lines[3:] == ["| key: k payload: v", "| key: k", "| payload: v", ""]


@EVERY_BATCH_TEXT
def test_without_contents_a_line_has_metadata_only(batch_text: type[BatchLines], tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", 0, batch([record(0, b"v", b"k")]).data)
    assert lines_of(dump(log, printing=DEEP, form=text_by(batch_text)))[-1].endswith(" headerKeys: []")


def test_max_bytes_ends_before_the_batch_that_goes_beyond(launch_info: Path) -> None:
    for most, shown in ((0, 0), (211, 3), (285, 3), (286, 4), (10_000, 4)):
        dumped = dump(launch_info, options=DumpOptions(True, max_bytes=most))
        assert len(lines_of(dumped)) == 2 + 2 * shown, most
        assert not dumped.is_bad


def test_indexes_are_verified_without_being_printed(corpus: Callable[[str], Path]) -> None:
    directory = corpus("a_v2") / "data/shapes-0"
    for suffix in (".index", ".timeindex"):
        dumped = dump(directory / f"{0:020}{suffix}", options=DumpOptions(verify_only=True))
        assert len(lines_of(dumped)) == 1
        assert not dumped.is_bad


# --- indexes ------------------------------------------------------------------------------------------------------


def index_log(directory: Path, entries: list[tuple[int, int]], times: list[tuple[int, int]] = []) -> Path:  # noqa: B006
    content = [batch(records(at, at + 4)) for at in range(0, 50, 5)]
    log = write_log(directory, 0, joined(content))
    log.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    log.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in times))
    return log


def reasons(path: Path) -> list[str]:
    """Return what the JSON of a file names as wrong."""
    lines = [json.loads(line) for line in dump(path, form=JsonForm).lines.split(b"\n")[:-1]]
    return [line["reason"] for line in lines if line["type"] == "problem"]


def test_an_entry_of_any_broker_is_legal_and_one_that_hides_records_is_not(tmp_path: Path) -> None:
    starts = positions([batch(records(at, at + 4)) for at in range(0, 50, 5)])
    # The first offset of an append, a later one of it, the last one of the batch; the last would hide 25 to 29.
    log = index_log(tmp_path / "t-0", [(5, starts[1]), (12, starts[2]), (19, starts[3]), (24, starts[6])])
    dumped = dump(log.with_suffix(".index"))
    assert dumped.is_bad
    assert dumped.findings == [f"Mismatches in :{log.with_suffix('.index')}", "  Index offset: 24, log offset: 34"]
    assert not dumped.problems
    assert [reason.count("24") for reason in reasons(log.with_suffix(".index"))] == [1]


@pytest.mark.parametrize(("position", "reason"), [(1, "no batch begins there"), (10_000, "the log ends at ")])
def test_an_entry_that_points_at_no_batch_is_a_problem(position: int, reason: str, tmp_path: Path) -> None:
    dumped = dump(index_log(tmp_path / "t-0", [(5, position)]).with_suffix(".index"))
    assert dumped.is_bad
    assert [reason in line and "position 0: " in line for line in dumped.problems] == [True]
    assert lines_of(dumped)[-1] == f"offset: 5 position: {position}"


def test_a_timestamp_that_is_not_the_latest_of_its_batch_is_found(tmp_path: Path) -> None:
    latest = batch(records(5, 9)).records[-1].timestamp
    log = index_log(tmp_path / "t-0", [], [(latest, 9), (latest + 1000, 14), (latest + 999, 77)])
    time_index = log.with_suffix(".timeindex")
    later = batch(records(10, 14)).records[-1].timestamp
    assert [str(latest + 999) in reason for reason in reasons(time_index)] == [False, True, False]
    assert dump(time_index).findings == [
        f"Found timestamp mismatch in :{time_index}",
        f"  Index timestamp: {latest + 1000}, log timestamp: {later}",
        f"Found out of order timestamp in :{time_index}",
        f"  Index timestamp: {latest + 999}, Previously indexed timestamp: {latest + 1000}",
        f"The following indexed offsets are not found in :{time_index}",
        "Indexed offset: 77, found log offset: -1",
    ]


def test_a_time_index_of_twice_the_size_takes_twice_the_time(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        content = batches(records(0, count - 1), magic=1)
        log = write_log(tmp_path / f"t{count}-0", 0, joined(content))
        entries = [(one.records[0].timestamp, at) for at, one in enumerate(content)]
        log.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
        best = 1e9
        for _ in range(3):
            started = time.process_time()
            dumped = dump(log.with_suffix(".timeindex"))
            best = min(best, time.process_time() - started)
        assert not dumped.is_bad
        assert dumped.lines.count(b"\n") == count + 1
        return best

    assert seconds(16_000) < 12 * seconds(4_000)  # 4 if it is linear, 16 if it is quadratic


# --- other files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("leader-epoch-checkpoint", "0\n2\n0 0\n3 120\n", ["epoch: 0 startOffset: 0", "epoch: 3 startOffset: 120"]),
        ("replication-offset-checkpoint", "0\n1\npay ments 2 9\n", None),
        ("recovery-point-offset-checkpoint", "0\n1\npayments 2 9\n", ["topic: payments partition: 2 offset: 9"]),
        (
            "partition.metadata",
            "version: 0\ntopic_id: vhy5DBLsAmYUb-dMi7DGGw",
            ["version: 0", "topic_id: vhy5DBLsAmYUb-dMi7DGGw"],
        ),
        ("meta.properties", "#x\nversion=1\nnode.id=3\n", ["version: 1", "node.id: 3"]),
        ("quorum-state", '{"leaderEpoch":4}', ["leaderEpoch: 4"]),
        ("quorum-state", "[]", None),
    ],
)
def test_files_that_kafkas_tool_does_not_know(name: str, content: str, lines: list[str] | None, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    dumped = dump(tmp_path / name)
    assert dumped.is_bad == (lines is None)
    assert lines_of(dumped)[1:] == (lines or [])
    json_lines = dump(tmp_path / name, form=JsonForm).lines.split(b"\n")[:-1]
    assert [json.loads(line)["file"] for line in json_lines] == [str(tmp_path / name)] * len(json_lines)


def test_unknown_files_are_ignored_as_kafka_ignores_them(tmp_path: Path) -> None:
    for name in ("notes", "00000000000000000000.log.deleted"):
        dumped = dump(tmp_path / name)
        assert dumped.problems == [f"Ignoring unknown file {tmp_path / name}"]
        assert not dumped.is_bad


def test_a_name_without_an_offset_is_a_problem(tmp_path: Path) -> None:
    for name in ("orders.log", "1-2.checkpoint", "99999999999999999999.index"):
        (tmp_path / name).write_bytes(b"")
        assert dump(tmp_path / name).is_bad, name


def test_the_first_snapshot_of_a_cluster_says_so(corpus: Callable[[str], Path]) -> None:
    dumped = dump(corpus("e_meta") / "data/bootstrap.checkpoint")
    assert lines_of(dumped)[1] == "KRaft bootstrap snapshot"
    assert not dumped.is_bad


def test_a_directory_is_its_files_by_name(corpus: Callable[[str], Path]) -> None:
    root = corpus("a_v2") / "data"
    files = [Path(file).relative_to(root).as_posix() for file in files_of(str(root))]
    assert "shapes-0/00000000000000000000.log" in files
    assert "meta.properties" in files
    assert all(one < other for one, other in pairwise(files) if Path(one).parent == Path(other).parent)


def test_a_link_that_leads_back_is_not_followed(launch_info: Path) -> None:
    (launch_info.parent / "loop").symlink_to(launch_info.parent.parent)
    assert list(files_of(str(launch_info.parent))) == [str(launch_info)]


# --- JSON ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_damage"])
def test_json_has_every_record_whole(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    expected = list(expected_records(root))
    logs = list(dict.fromkeys(one.file for one in expected))
    found = []
    for log in logs:
        for line in dump(root / "data" / log, form=JsonForm).lines.split(b"\n")[:-1]:
            fields = json.loads(line)
            if fields["type"] == "record":
                _, _, restored = parse_line(json.dumps(fields | {"topic": "", "partition": 0}))
                found.append((log, restored, fields.get("sequence", -1), "control" in fields))
    assert found == [(one.file, one.record, one.sequence, one.is_control) for one in expected]


def test_json_can_not_drive_a_terminal(tmp_path: Path) -> None:
    hostile = Record(0, -1, b"\x1b[31m", "\u202e".encode(), ((b"h\x07", b"\x9b"),))
    log = write_log(tmp_path / "t-0", 0, batch([hostile]).data)
    assert all(line.decode().isprintable() for line in dump(log, form=JsonForm).lines.split(b"\n"))


# --- both implementations -----------------------------------------------------------------------------------------

CONTENT = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
    st.lists(st.sampled_from([b"\xed\xa0", b"\xf0\x9f", b"\xf4\x90", b"\xe0\x80", b"a", b"\x80", b"\xbf"])).map(
        b"".join
    ),
)
HEADERS = st.lists(st.tuples(CONTENT.map(lambda key: key or b""), CONTENT), max_size=3).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A few batches of v2, of any kind that a producer may send."""
    offset, content = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 4))
        timestamps = st.integers(-(2**61), 2**61)
        made = [
            Record(offset + at, draw(timestamps), draw(CONTENT), draw(CONTENT), draw(HEADERS)) for at in range(count)
        ]
        options = {"producer_id": draw(st.integers(-1, 2**63 - 1)), "base_sequence": draw(st.integers(-1, 2**31 - 1))}
        content.append(batch(made, codec=draw(st.sampled_from([Codec.NONE, Codec.LZ4])), **options))
        offset += count + draw(st.integers(0, 2))
    return joined(content)


@pytest.mark.skipif(len(BATCH_TEXTS) == 1, reason="not compiled")
@pytest.mark.parametrize("printing", [Printing(True, DecoderMessageParser()), DEEP, CONTENTS_ONLY, Printing()])
@given(data=logs())
def test_both_implementations_write_the_same(
    printing: Printing, data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = int.from_bytes(data[:8], "big")
    log = write_log(tmp_path_factory.mktemp("log"), base, data)
    python, compiled = (dump(log, printing=printing, form=text_by(implementation)) for implementation in BATCH_TEXTS)
    assert python.lines == compiled.lines
    assert not python.is_bad
    python_json, compiled_json = (
        dump(log, printing=printing, form=json_by(implementation)).lines for implementation in SEQUENCED
    )
    assert python_json == compiled_json


@pytest.mark.skipif(len(BATCH_TEXTS) == 1, reason="not compiled")
def test_both_implementations_write_the_same_of_times_of_the_broker(corpus: Callable[[str], Path]) -> None:
    logs = sorted((corpus("a_v2") / "data/append_time-0").glob("*.log"))
    assert logs
    for log in logs:
        python, compiled = (dump(log, form=text_by(implementation)).lines for implementation in BATCH_TEXTS)
        assert TimestampType.LOG_APPEND_TIME.label.encode() in python
        assert python == compiled


def test_earlier_forms_have_their_own_batches() -> None:
    for form in (TextForm20, TextForm28):
        assert isinstance(form(DEEP).lines, BatchText)
