"""What was done by hand to the partitions of the corpus ``g_damage``, and what of them is as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kfs.format.record import Record
from tests.expected import ExpectedBatch, expected_batches, expected_records

CorpusPath = Callable[[str], Path]
Records = dict[int, Record]

DAMAGED = "g_damage"
#: What damage to a ``.log`` makes of the batches that it touches.
UNREADABLE = {
    "flip-payload-last-segment",
    "flip-payload-first-segment",
    "flip-crc",
    "flip-base-offset",
    "cut-first-segment",
    "bad-magic",
    "length-negative",
    "length-small",
}
PAST_THE_END = {"cut-mid-batch", "cut-in-header", "length-huge", "zero-tail", "half-batch-tail"}
TOUCHES_NO_BATCH = {"garbage-tail", "duplicate-batch-tail", "swap-complete"}
NOT_THERE = {"middle-segment-missing", "last-log-empty"}


@dataclass(frozen=True, slots=True)
class Damage:
    """A line of ``damage.jsonl`` about a ``.log``; ``touched`` are the batches that can't be as they were."""

    directory: str
    kind: str
    file: str
    position: int | None
    touched: tuple[ExpectedBatch, ...]

    @property
    def tree_path(self) -> str:
        return self.directory.replace("-", "/")

    @property
    def touched_offsets(self) -> set[int]:
        return {offset for batch in self.touched for offset in range(batch.base_offset, batch.last_offset + 1)}


@lru_cache
def damages(corpus: Path) -> tuple[Damage, ...]:
    """Return the damage done to ``.log`` files of ``g_damage``, and which batches each hits."""
    batches = list(expected_batches(corpus, "batches_before.jsonl"))
    found = []
    for fields in map(json.loads, (corpus / "damage.jsonl").read_text().splitlines()):
        directory, kind, file = fields["partition_dir"], fields["damage"], fields["file"]
        if file.endswith(".log"):
            there = [one for one in batches if one.file == f"{directory}/{file}"]
            position = _position(fields["what"])
            found.append(Damage(directory, kind, file, position, tuple(_touched(kind, position, there))))
    assert {one.kind for one in found} == UNREADABLE | PAST_THE_END | TOUCHES_NO_BATCH | NOT_THERE
    return tuple(found)


def _position(what: str) -> int | None:
    """Return the position that the description names: of the changed byte, the new end, or the batch."""
    match = re.search(r"(?:byte|truncated to|after|batch at) (\d+)", what)
    return int(match[1]) if match else None


def _touched(kind: str, position: int | None, batches: list[ExpectedBatch]) -> list[ExpectedBatch]:
    if kind in NOT_THERE:
        return batches
    if kind in TOUCHES_NO_BATCH or kind.endswith("-tail"):
        return []
    assert position is not None
    if kind.startswith("cut-"):
        return [batch for batch in batches if batch.position + batch.size > position]
    return [batch for batch in batches if batch.position <= position < batch.position + batch.size]


@lru_cache
def messages_by_directory(oracle: Path) -> dict[str, Records]:
    """Return the messages (control records aside) of each partition directory; of an offset twice the first."""
    found: dict[str, Records] = {}
    for expected in expected_records(oracle.parent, oracle.name):
        if not expected.is_control:
            found.setdefault(expected.file.split("/")[0], {}).setdefault(expected.record.offset, expected.record)
    return found


def intact_records(corpus: CorpusPath, directory: str) -> Records:
    """Return the records of a damaged partition that damage didn't touch."""
    lost = {
        offset
        for damage in damages(corpus(DAMAGED))
        if damage.directory == directory
        for offset in damage.touched_offsets
    }
    before = messages_by_directory(corpus(DAMAGED) / "expected_before.jsonl").get(directory, {})
    return {offset: record for offset, record in before.items() if offset not in lost}
