"""What became of a transaction whose marker is lost doesn't depend on where a reader begins."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from kfs.read.aborted_transactions import AbortedTransactions
from tests.logs import log_name, open_log
from tests.read.some_transactions import Data, Event, abort, commit, encoded, write_transactions

pytestmark = pytest.mark.usefixtures("quiet")


def asked_from_each(directory: Path, events: list[Event], broken: Collection[int], cut: Collection[int]) -> list[str]:
    """Write events of one record each; return who is aborted, by where a reader begins.

    The ones at offsets ``broken`` have a flipped byte, those at offsets ``cut`` are gone without a trace.
    """
    data, gone = b"", {*broken, *cut}
    for one in write_transactions(directory, events):
        batch = bytearray(encoded(one))
        if one.offsets[0] in broken:
            batch[-1] ^= 1
        data += b"" if one.offsets[0] in cut else batch
    (directory / log_name(0)).write_bytes(data)
    written = [at for at, event in enumerate(events) if isinstance(event, Data) and event.producer and at not in gone]
    return [
        "".join("a" if each else "c" for each in answers_from(directory, written[at:])) for at in range(len(written))
    ]


def answers_from(directory: Path, offsets: list[int]) -> list[bool]:
    log = open_log(directory)
    aborted = AbortedTransactions(log)
    return [aborted.is_aborted(log.segments[0], 1, offset, offset) for offset in offsets]


PLAIN = Data(None)


@pytest.mark.parametrize(
    ("events", "broken", "cut", "outcome"),
    [
        # The marker of each is lost, and the index has that of the second.
        ([Data(1), commit(), Data(1), abort(), PLAIN, Data(1), commit()], [1, 3], [], "cac"),
        ([Data(1), commit(), Data(1), abort(), PLAIN, Data(1), commit()], [1, 2, 3], [], "cc"),
        # The marker of the first is lost without a trace, behind one that is damaged.
        ([Data(1), commit(), Data(1), Data(1), commit(), Data(1), abort()], [1], [3, 4], "cca"),
        ([Data(1), commit(), PLAIN, Data(1), abort()], [], [1], "ca"),
        # The index has nothing to say where the log tells all.
        ([Data(1), abort(), Data(1), Data(1), abort()], [1], [], "aaa"),
    ],
)
def test_a_lost_marker_means_the_same_from_wherever_a_reader_begins(
    events: list[Event], broken: list[int], cut: list[int], outcome: str, tmp_path: Path
) -> None:
    answers = asked_from_each(tmp_path / "t-0", events, broken, cut)
    assert answers == [outcome[at:] for at in range(len(outcome))]
