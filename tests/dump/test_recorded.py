"""Every file of every intact corpus, dumped, against what Kafka 4.3.1 printed for it, and 2.8.2 in its own form."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.dump.batch_text import BatchLines
from kfs.dump.dumper import DumpOptions
from kfs.dump.forms import Printing
from kfs.dump.text_form_2x import TextForm20, TextForm28
from tests.corpus import corpus_names
from tests.dump.dumping import contents_of, dump, text_by
from tests.dump.recorded import DEATH, Recorded, expected, recorded
from tests.implementations import EVERY_BATCH_TEXT

MAX_BYTES = Path(__file__).with_name("max_bytes")
DAMAGED = "g_damage"
#: The corpora, and below two of them what a broker's recovery made of the data.
INTACT = [
    *(name for name in corpus_names() if name != DAMAGED),
    "g_kill9/recovered",
    "g_damage/recovered-unclean",
]
#: A duplicated older batch at the end, which recovery keeps; and one of magic 7, which Kafka takes for one of magic 2.
DUPLICATE = "g_damage/recovered-unclean/data/broken-11/00000000000000000087.log"
MAGIC_7 = "g_damage/recovered-unclean/data/broken-12/00000000000000000085."
_CORPUS_2_8 = "f_2.8.2_formats"
_DIRECTORY_2_8 = "dump-2.8.2"


def directory_of(corpus: Path) -> str:
    """Return where the output of 4.3.1 is."""
    return next(name for name in ("dump-4.3.1", "dump") if (corpus / name).is_dir())


def root_of(name: str, corpus: Callable[[str], Path]) -> Path:
    """Return the directory of a corpus, or one below it."""
    archive, _, below = name.partition("/")
    return corpus(archive) / below


@EVERY_BATCH_TEXT
@pytest.mark.parametrize("most", sorted(int(path.stem) for path in MAX_BYTES.glob("*.txt")))
def test_holes_are_listed_of_as_much_as_is_looked_at(
    batch_text: type[BatchLines], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(MAX_BYTES.parent)
    output = Recorded(f"max_bytes/{5:020}.log", (MAX_BYTES / f"{most}.txt").read_text())
    dumped = dump(
        output.path,
        options=DumpOptions(is_deep=True, max_bytes=most),
        printing=Printing(True, None),
        form=text_by(batch_text),
    )
    assert dumped.text.replace(os.getcwd() + "/", "") == expected(output)
    assert not dumped.is_bad


@EVERY_BATCH_TEXT
@pytest.mark.parametrize("name", INTACT)
def test_it_prints_what_kafka_prints(
    batch_text: type[BatchLines], name: str, corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_of(name, corpus)
    monkeypatch.chdir(root)
    outputs = list(recorded(root, directory_of(root)))
    for output in outputs:
        printing = Printing(True, contents_of(output.topic))
        dumped = dump(output.path, printing=printing, form=text_by(batch_text))
        text = dumped.text.replace(os.getcwd() + "/", "")
        if output.is_cut_short:  # a preallocated offset index of a log without batches
            assert output.path.endswith(".index")
            text = text.removesuffix(f"offset: {output.base_offset} position: 0\n")
        which = f"{name}/{output.path}"
        if which.startswith(MAGIC_7) and which.endswith((".log", ".timeindex")):
            assert dumped.is_bad
            continue
        assert text == expected(output), output.path
        assert bool(dumped.problems) == dumped.is_bad == (which == DUPLICATE), output.path
    assert len(outputs) > 10


def test_the_dialect_of_2_8_prints_what_kafka_2_8_prints(
    corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus(_CORPUS_2_8))
    outputs = list(recorded(Path.cwd(), _DIRECTORY_2_8))
    for output in outputs:
        assert dump(output.path, form=TextForm28).text.replace(os.getcwd() + "/", "") == expected(output), output.path
    assert len(outputs) > 20


#: A record as 2.8 shows it, and which of its fields 2.0 showed, in which order.
_RECORD_2_8 = re.compile(
    r"^\| offset: (?P<offset>\d+) isValid: (?P<valid>\w+) crc: (?P<crc>\w+) keySize: (?P<key>-?\d+)"
    r" valueSize: (?P<value>-?\d+) (?P<time>\w+: -?\d+) baseOffset: \d+ lastOffset: \d+ baseSequence: -?\d+"
    r" lastSequence: -?\d+ producerEpoch: (?P<epoch>-?\d+) partitionLeaderEpoch: -?\d+ batchSize: \d+"
    r" magic: (?P<magic>\d) compressType: (?P<codec>\w+) position: (?P<position>\d+)"
    r"(?: crc: \w+ isvalid: \w+| sequence: (?P<sequence>-?\d+) headerKeys: (?P<headers>\[.*?\]))",
    re.MULTILINE,
)
_BATCH_2_8 = re.compile(r"^(?:baseOffset|offset): .* isvalid: \w+\n", re.MULTILINE)


def _record_2_0(match: re.Match[str]) -> str:
    fields = match.groupdict()
    start = (
        f"offset: {fields['offset']} position: {fields['position']} {fields['time']} isvalid: {fields['valid']}"
        f" keysize: {fields['key']} valuesize: {fields['value']} magic: {fields['magic']}"
        f" compresscodec: {fields['codec']}"
    )
    if fields["magic"] != "2":
        return f"{start} crc: {fields['crc']}"
    # The corpus has no producers that are idempotent or transactional.
    return (
        f"{start} producerId: -1 producerEpoch: {fields['epoch']} sequence: {fields['sequence']}"
        f" isTransactional: false headerKeys: {fields['headers']}"
    )


def test_the_dialect_of_2_0_says_the_same_of_each_record(
    corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus(_CORPUS_2_8))
    logs = [output for output in recorded(Path.cwd(), _DIRECTORY_2_8) if output.path.endswith(".log")]
    for output in logs:
        records = _RECORD_2_8.sub(_record_2_0, _BATCH_2_8.sub("", expected(output)))
        assert dump(output.path, form=TextForm20).text.replace(os.getcwd() + "/", "") == records, output.path
    assert len(logs) > 10


def test_the_sanity_of_indexes_is_judged_as_kafka_judges_it(
    corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus(DAMAGED))
    verdicts = sorted(Path("dump").rglob("*.sanity.txt"))
    for verdict in verdicts:
        text = verdict.read_text()
        path = "data" / verdict.relative_to("dump").with_name(verdict.name.removesuffix(".sanity.txt"))
        dumped = dump(path, options=DumpOptions(sanity_only=True))
        if DEATH not in text:
            assert dumped.text == text
        else:  # or Kafka misses a file that isn't needed, or creates it
            is_needless = not (path.with_suffix(".index").exists() and path.with_suffix(".log").exists())
            assert dumped.is_bad != is_needless, path
    assert len(verdicts) > 50
