"""What real brokers left behind: nothing is said of the intact logs, and of the damaged ones what was done to them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.format.decoders import BlockDecoder
from kfs.verify.finding import Finding, FindingKind, Severity
from tests.corpus import corpus_names, take_manifest
from tests.implementations import EVERY_DECODER
from tests.verify.checking import complaints, found_in, kinds, verified, verified_by

CorpusPath = Callable[[str], Path]
DAMAGED = "g_damage"
INTACT = [name for name in corpus_names() if name != DAMAGED]
RECOVERED = ["g_damage/before", "g_kill9/recovered/data"]


def source(name: str, corpus: CorpusPath) -> Path:
    name, _, below = name.partition("/")
    return corpus(name) / below


@EVERY_DECODER
@pytest.mark.parametrize("name", [*(f"{name}/data" for name in INTACT), *RECOVERED])
def test_intact_logs_give_nothing_but_information(decoder: BlockDecoder, name: str, corpus: CorpusPath) -> None:
    assert complaints(verified_by(decoder, source(name, corpus))) == []


#: Of each intact corpus, what is worth knowing.
WORTH_KNOWING = {
    "c_clean": {FindingKind.BELOW_LOG_START},
    "e_meta": {FindingKind.DELETED_FILE},
    "e39_meta": {FindingKind.DELETED_FILE},
    "f_0.8.2.2": {FindingKind.META_PROPERTIES_MISSING},
    "g_kill9": {FindingKind.INDEX_ZEROS, FindingKind.TIMEINDEX_ZEROS},
    "g_running": {
        FindingKind.INDEX_ZEROS,
        FindingKind.TIMEINDEX_ZEROS,
        FindingKind.BELOW_LOG_START,
        FindingKind.DELETED_DIRECTORY,
    },
}


@pytest.mark.parametrize("name", INTACT)
def test_information_is_given_where_there_is_some(name: str, corpus: CorpusPath) -> None:
    found = verified(corpus(name) / "data")
    assert kinds(found) == WORTH_KNOWING.get(name, set())


# --- damage ---------------------------------------------------------------------------------------------------------

#: What each kind of damage is called where it was done. A number is the byte position that the description names.
EXPECTED = {
    "flip-payload-last-segment": FindingKind.BATCH_CRC,
    "flip-payload-first-segment": FindingKind.BATCH_CRC,
    "flip-crc": FindingKind.BATCH_CRC,
    "flip-base-offset": FindingKind.OFFSETS_MISPLACED,
    "cut-mid-batch": FindingKind.TORN_TAIL,
    "cut-in-header": FindingKind.TORN_TAIL,
    "cut-first-segment": FindingKind.BATCH_TRUNCATED,
    "zero-tail": FindingKind.ZERO_TAIL,
    "garbage-tail": FindingKind.BATCH_HEADER,
    "half-batch-tail": FindingKind.TORN_TAIL,
    "duplicate-batch-tail": FindingKind.OFFSETS_REPEATED,
    "bad-magic": FindingKind.BATCH_HEADER,
    "length-huge": FindingKind.TORN_TAIL,
    "length-negative": FindingKind.BATCH_HEADER,
    "length-small": FindingKind.BATCH_HEADER,
    "index-odd-size": FindingKind.INDEX_SIZE,
    "index-zeros": FindingKind.INDEX_ZEROS,
    "index-missing": FindingKind.INDEX_MISSING,
    "index-out-of-order": FindingKind.INDEX_ORDER,
    "index-past-end": FindingKind.INDEX_PAST_END,
    "index-empty": FindingKind.INDEX_SHORT,
    "index-preallocated": FindingKind.INDEX_ZEROS,
    "timeindex-missing": FindingKind.TIMEINDEX_MISSING,
    "timeindex-odd-size": FindingKind.TIMEINDEX_SIZE,
    "timeindex-out-of-order": FindingKind.TIMEINDEX_ORDER,
    "timeindex-zeros": FindingKind.TIMEINDEX_ZEROS,
    "snapshot-garbage": FindingKind.SNAPSHOT_FORMAT,
    "snapshot-missing": FindingKind.SNAPSHOT_MISSING,
    "epoch-missing": FindingKind.EPOCHS_MISSING,
    "epoch-garbage": FindingKind.EPOCHS_FORMAT,
    "partition-metadata-missing": FindingKind.PARTITION_METADATA_MISSING,
    "orphan-index": FindingKind.INDEX_ORPHAN,
    "txnindex-garbage": FindingKind.TXNINDEX_FORMAT,
    "txnindex-missing": FindingKind.TXNINDEX_MISSING,
    "last-log-empty": FindingKind.INDEX_PAST_END,
}
LEFTOVERS = {".cleaned": FindingKind.CLEANED_FILE, ".deleted": FindingKind.DELETED_FILE, ".txt": FindingKind.STRAY_FILE}
#: Legal where the broker wasn't stopped cleanly.
HARMLESS = {"zero-tail", "index-preallocated"}
#: How the position in a description is to be understood; those not named say where the batch begins.
_POSITION = re.compile(r"(?:\(batch at|inside the last batch at|batch at|after|truncated (?:\d+ -> |to )) ?(\d+)")


def damages(corpus: CorpusPath) -> list[dict[str, str]]:
    return [json.loads(line) for line in (corpus(DAMAGED) / "damage.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def found(corpus: CorpusPath) -> dict[str, list[Finding]]:
    """What is found in each partition of the damaged log directory, one that has its neighbours' files around it."""
    result: dict[str, list[Finding]] = {}
    for finding in verified(corpus(DAMAGED) / "data"):
        directory = Path(finding.file).parent.name
        result.setdefault(directory, []).append(finding)
    return result


def expected_of(damage: dict[str, str]) -> tuple[str, FindingKind]:
    """Return in which file which kind of finding there must be."""
    what, file = damage["damage"], damage["file"]
    if what == "leftover-files":
        return file, LEFTOVERS[Path(file).suffix]
    if what == "swap-complete":
        return file + ".swap", FindingKind.SWAP_FILE
    if what == "middle-segment-missing":
        return "00000000000000000086.log", FindingKind.OFFSET_GAP
    if what == "last-log-empty":
        return file.removesuffix(".log") + ".index", FindingKind.INDEX_PAST_END
    if what == "snapshot-missing":  # that where the last segment begins; of others there may be none
        return "00000000000000000105.snapshot", FindingKind.SNAPSHOT_MISSING
    kind = EXPECTED[what]
    if file.endswith(".timeindex") and kind is FindingKind.INDEX_ZEROS:
        kind = FindingKind.TIMEINDEX_ZEROS
    return file, kind


@pytest.mark.parametrize("number", range(1, 39))
def test_every_damage_is_found_in_its_place(number: int, found: dict[str, list[Finding]], corpus: CorpusPath) -> None:
    directory = f"broken-{number}"
    done = [damage for damage in damages(corpus) if damage["partition_dir"] == directory]
    assert done
    for damage in done:
        file, kind = expected_of(damage)
        (finding, *_) = [one for one in found[directory] if Path(one.file).name == file and one.kind is kind]
        harmless = damage["damage"] in HARMLESS or kind in {FindingKind.DELETED_FILE, FindingKind.STRAY_FILE}
        assert (finding.severity is Severity.INFO) == harmless
        position = _POSITION.search(damage["what"])
        if position is not None and damage["file"].endswith(".log") and kind is not FindingKind.SWAP_FILE:
            assert finding.bytes is not None
            start, end = finding.bytes
            # Of a cut file the position is its new end.
            assert start == int(position[1]) or (start < int(position[1]) == end), damage


EXACT = {
    1: (FindingKind.BATCH_CRC, (989, 989 + 842), (99, 102)),
    3: (FindingKind.BATCH_CRC, (2959, 3312), (108, 109)),
    4: (FindingKind.OFFSETS_MISPLACED, (2876, 3173), None),
    5: (FindingKind.TORN_TAIL, (4531, 4981), (108, 109)),
    8: (FindingKind.ZERO_TAIL, (5352, 5352 + 4096), None),
    9: (FindingKind.BATCH_HEADER, (4753, 4753 + 500), None),
    13: (FindingKind.TORN_TAIL, (4173, 5087), (102, 109)),
    14: (FindingKind.BATCH_HEADER, (0, 396), (109, 109)),
    21: (FindingKind.INDEX_PAST_END, (48, 56), (49, 49)),
    35: (FindingKind.OFFSET_GAP, None, (38, 85)),
    38: (FindingKind.TXNINDEX_MISSING, None, (8, 47)),
}


@pytest.mark.parametrize("number", EXACT)
def test_bytes_and_offsets_are_those_that_were_hit(number: int, found: dict[str, list[Finding]]) -> None:
    assert EXACT[number] in [(one.kind, one.bytes, one.offsets) for one in found[f"broken-{number}"]]


def test_nothing_is_said_of_the_partition_that_is_whole(found: dict[str, list[Finding]]) -> None:
    assert "broken-0" not in found


def test_what_the_damage_makes_of_checkpoints_is_said(found: dict[str, list[Finding]]) -> None:
    past = {
        re.split(r" of |,", one.sentence)[1] for one in found["data"] if one.kind is FindingKind.CHECKPOINT_PAST_END
    }
    assert past == {f"broken-{number}" for number in (3, 5, 6, 12, 13, 14, 15, 36)}


def test_of_a_clean_stop_a_torn_tail_is_an_error(corpus: CorpusPath) -> None:
    # With the marker there, no broker would look at the tail.
    found = verified(corpus(DAMAGED) / "recovered-clean-marker" / "data")
    (finding,) = [
        one for one in found if Path(one.file).parent.name == "broken-5" and one.kind is FindingKind.TORN_TAIL
    ]
    assert finding.severity is Severity.ERROR


# --- what holds for all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b_txn/data", "c_clean/data", "f_mixed/data", "g_damage/data", "g_running/data"])
@pytest.mark.usefixtures("eager_workers")
def test_several_processes_find_the_same_in_the_same_order(name: str, corpus: CorpusPath) -> None:
    assert verified(source(name, corpus), jobs=3) == verified(source(name, corpus))


def test_the_source_is_left_as_it_is(corpus: CorpusPath) -> None:
    root = corpus(DAMAGED) / "data"
    before = take_manifest(root)
    verified(root)
    assert take_manifest(root) == before


def test_a_partition_and_its_files_are_checked_alone_too(corpus: CorpusPath) -> None:
    partition = corpus(DAMAGED) / "data" / "broken-1"
    log = partition / "00000000000000000092.log"
    assert (
        found_in(verified(partition), log.name)
        == found_in(verified(log), log.name)
        == [(FindingKind.BATCH_CRC, (989, 1831))]
    )
