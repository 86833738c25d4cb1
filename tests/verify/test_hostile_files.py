"""Whatever a log directory's files hold, they are checked to the end."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kfs.format.decoders import BlockDecoder
from tests.implementations import EVERY_DECODER
from tests.thoroughness import examples
from tests.verify.checking import verified_by

CorpusPath = Callable[[str], Path]
CORPORA = ("b_txn", "c_clean", "e_meta", "f_0.10.2.2", "f_mixed", "g_kill9")
CASES = examples(8, 100)


def spoiled(data: bytes, others: Sequence[bytes], how: random.Random) -> bytes:
    """Return a file's content after something happened to it."""
    at = how.randrange(len(data) + 1)
    few = how.randrange(30)
    return how.choice(
        [
            data[:at] + bytes(byte ^ how.randrange(1, 256) for byte in data[at : at + 1]) + data[at + 1 :],
            data[:at],
            data[:at] + how.randbytes(few) + data[at + how.randrange(30) :],
            data + bytes(few),
            data + how.randbytes(few),
            how.randbytes(7 * few),
            how.choice(others),
        ]
    )


def spoil(root: Path, how: random.Random) -> None:
    """Change up to three files, or take them away."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size < 1_000_000)
    contents = [path.read_bytes() for path in files]
    for path in how.sample(files, how.randint(1, 3)):
        if how.randrange(8):
            path.write_bytes(spoiled(path.read_bytes(), contents, how))
        else:
            path.unlink()


@EVERY_DECODER
@pytest.mark.parametrize("name", CORPORA)
def test_no_content_of_any_file_ends_the_check(
    decoder: BlockDecoder, name: str, corpus: CorpusPath, tmp_path: Path
) -> None:
    source = corpus(name) / "data"
    partitions = sorted(path for path in source.iterdir() if path.is_dir() and any(path.glob("*.log")))
    found = 0
    for case in range(CASES):
        how = random.Random(f"{name} {case}")
        root = tmp_path / str(case)
        partition = how.choice(partitions)
        shutil.copytree(partition, root / partition.name)
        for path in source.iterdir():
            if path.is_file():
                shutil.copy2(path, root)
        spoil(root, how)
        findings = verified_by(decoder, root)
        assert all(finding.file.startswith(str(root)) and finding.sentence for finding in findings)
        found += bool(findings)
        shutil.rmtree(root)
    assert found > CASES / 4
