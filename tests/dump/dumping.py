"""Running a dump in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kfs.dump.batch_text import BatchLines
from kfs.dump.contents import (
    ClusterMetadataContents,
    Contents,
    DecodedFields,
    offsets_contents,
    share_state_contents,
    transaction_contents,
)
from kfs.dump.dumper import Dumper, DumpOptions
from kfs.dump.findings import Findings
from kfs.dump.forms import Form, Printing
from kfs.dump.json_form import JsonForm
from kfs.dump.text_form import TextForm
from kfs.format.decode import BlockDecoder
from kfs.log.storage import Storage
from kfs.render.renderers import SequencedRenderer

MakeForm = Callable[[Printing], Form]


def text_by(lines: type[BatchLines]) -> MakeForm:
    """Return the text form whose batches one of the twins writes."""

    def form(printing: Printing) -> TextForm:
        made = TextForm(printing)
        made.lines = lines(printing)
        return made

    return form


def json_by(renderer: type[SequencedRenderer]) -> MakeForm:
    """Return the JSON form whose records one of the twins writes."""

    def form(printing: Printing) -> JsonForm:
        made = JsonForm(printing)
        made.renderer = renderer()
        return made

    return form


@dataclass(slots=True)
class Dumped:
    """What a dump wrote: its lines, what it said of problems, what it listed at the end; and whether all was well."""

    lines: bytes = b""
    problems: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    is_bad: bool = False

    @property
    def text(self) -> str:
        """Everything that Kafka's tool writes to either stream."""
        return self.lines.decode() + "".join(line + "\n" for line in self.findings)


def dump(
    *paths: str | Path,
    options: DumpOptions | None = None,
    printing: Printing | None = None,
    form: MakeForm = TextForm,
    decoder: BlockDecoder | None = None,
) -> Dumped:
    """Dump files, by default with all that their records hold."""
    printing = printing or Printing(True, DecodedFields())
    dumped = Dumped()
    findings = Findings(dumped.problems.append)
    dumper = Dumper(
        form(printing),
        options or DumpOptions(printing.is_deep),
        findings,
        Storage(decoder=decoder),
        lambda path: dumped.problems.append(f"Ignoring unknown file {path}"),
    )
    dumped.lines = b"".join(piece for path in paths for piece in dumper.dump(str(path)))
    dumped.findings = list(findings.lines())
    dumped.is_bad = findings.is_bad
    return dumped


def contents_of(topic: str) -> Contents:
    """Return the decoder that the records of a topic were recorded with."""
    if topic == "__consumer_offsets":
        return offsets_contents()
    if topic == "__transaction_state":
        return transaction_contents()
    if topic == "__share_group_state":
        return share_state_contents()
    return ClusterMetadataContents() if topic == "__cluster_metadata" else DecodedFields()
