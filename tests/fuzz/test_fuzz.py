"""The fuzzer for a few seconds; and that it notices what it is there for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.format.batch_header import BatchHeader
from kfs.format.codecs import Codec
from kfs.format.columns import RecordColumns
from kfs.format.decode import PythonDecoder
from tests.fuzz.cases import CaseMaker
from tests.fuzz.plan import FuzzPlan
from tests.fuzz.seeds import Seed, load_seeds
from tests.implementations import DECODERS
from tests.watch import Findings, run

pytestmark = pytest.mark.skipif(len(DECODERS) < 2, reason="nothing was compiled")
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if codec != Codec.ZSTD or magic == 2]


@pytest.fixture(scope="module")
def seeds(corpus: Callable[[str], Path]) -> list[Seed]:
    return load_seeds(corpus)


def test_the_implementations_agree_on_mutated_real_batches(seeds: list[Seed], tmp_path: Path) -> None:
    findings = run(FuzzPlan(seeds, seed=20, cases=20_000, jobs=1, directory=tmp_path / "failures"))
    assert findings.failures == [], findings.failures[0].with_suffix(".txt").read_text()
    assert findings.cases == 20_000
    for magic, codec in FORMATS:
        for outcome in ("decoded", "refused"):
            assert findings.seen[f"v{magic} {codec.label}: {outcome}"], (magic, codec, outcome)
    assert findings.seen["tables"]
    assert findings.seen["runs"]
    decoded = sum(count for what, count in findings.seen.items() if what.endswith(": decoded"))
    assert decoded > 20_000 / 4


@pytest.mark.long
def test_the_implementations_agree_for_longer(seeds: list[Seed], tmp_path: Path) -> None:
    findings = run(FuzzPlan(seeds, seed=21, cases=500_000, jobs=2, directory=tmp_path / "failures"))
    assert findings.failures == [], findings.failures[0].with_suffix(".txt").read_text()
    assert findings.cases == 500_000


def test_there_are_seeds_of_every_format(seeds: list[Seed]) -> None:
    assert {(seed.header.magic, seed.codec) for seed in seeds} == set(FORMATS)
    assert any(seed.header.is_control for seed in seeds)
    assert any(seed.header.is_transactional for seed in seeds)
    assert any(record.headers for seed in seeds for record in seed.records)


def test_a_number_names_a_case(seeds: list[Seed]) -> None:
    cases = [CaseMaker(seeds, seed=1).case(number) for number in range(200)]
    assert [CaseMaker(seeds, seed=1).case(number) for number in range(200)] == cases
    assert [CaseMaker(seeds, seed=2).case(number) for number in range(200)] != cases


class WrongDecoder(PythonDecoder):
    """Decodes as it should, until something is done to it."""

    def decode(self, header: BatchHeader, data: bytes, limit: int) -> RecordColumns:
        columns = super().decode(header, data, limit)
        if len(columns) > 3:
            self.go_wrong(columns)
        return columns

    def go_wrong(self, columns: RecordColumns) -> None:
        raise NotImplementedError


class LyingDecoder(WrongDecoder):
    def go_wrong(self, columns: RecordColumns) -> None:
        columns.key_lengths[3] += 1


class FailingDecoder(WrongDecoder):
    def go_wrong(self, columns: RecordColumns) -> None:
        raise OverflowError("too much")


class DyingDecoder(WrongDecoder):
    def go_wrong(self, columns: RecordColumns) -> None:
        os._exit(86)


class HangingDecoder(WrongDecoder):
    def go_wrong(self, columns: RecordColumns) -> None:
        time.sleep(3600)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (LyingDecoder, "DisagreementError: "),
        (FailingDecoder, "OverflowError: too much"),
        (DyingDecoder, "exit code 86"),
        (HangingDecoder, "no end after 0.5 seconds"),
    ],
)
def test_what_goes_wrong_is_noticed_and_kept(
    seeds: list[Seed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: type[WrongDecoder], reason: str
) -> None:
    monkeypatch.setattr("tests.fuzz.compare.DECODERS", [PythonDecoder, wrong])
    monkeypatch.setattr("tests.watch.CASE_SECONDS", 0.5)
    findings = run(FuzzPlan(seeds, seed=3, cases=400, jobs=1, directory=tmp_path, most_failures=2))
    assert len(findings.failures) >= 2
    for path in findings.failures:
        assert reason in path.with_suffix(".txt").read_text()
        assert path.read_bytes() == CaseMaker(seeds, seed=3).case(int(path.stem.split("-")[1]))


def test_every_case_is_counted_by_however_many_processes(seeds: list[Seed], tmp_path: Path) -> None:
    findings: Findings = run(FuzzPlan(seeds, seed=4, cases=1001, jobs=3, directory=tmp_path))
    assert findings.cases == 1001
