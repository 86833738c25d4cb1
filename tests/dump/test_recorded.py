"""Every file of every intact corpus, dumped, against what Kafka 4.3.1 printed for it, and 2.8.2 in its own form."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.dump.forms import Printing
from tests.corpus import corpus_names
from tests.dump.dumping import contents_of, dump
from tests.dump.recorded import expected, recorded

DAMAGED = "g_damage"
INTACT = [name for name in corpus_names() if name != DAMAGED]


def directory_of(corpus: Path) -> str:
    """Return where the output of 4.3.1 is."""
    return next(name for name in ("dump-4.3.1", "dump") if (corpus / name).is_dir())


@pytest.mark.parametrize("name", INTACT)
def test_it_prints_what_kafka_prints(name: str, corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = corpus(name)
    monkeypatch.chdir(root)
    outputs = list(recorded(root, directory_of(root)))
    for output in outputs:
        dumped = dump(output.path, printing=Printing(True, contents_of(output.topic)))
        text = dumped.text.replace(os.getcwd() + "/", "")
        if output.is_cut_short:  # a preallocated offset index of a log without batches
            assert output.path.endswith(".index")
            text = text.removesuffix(f"offset: {output.base_offset} position: 0\n")
        assert text == expected(output), output.path
        assert not dumped.problems
        assert not dumped.is_bad
    assert len(outputs) > 10
