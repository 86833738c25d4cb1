"""Running a dump in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kfs.dump.batch_text import BatchLines
from kfs.dump.dumper import Dumper, DumpOptions
from kfs.dump.forms import Form, Printing
from kfs.dump.json_form import JsonForm
from kfs.dump.message_parsers import (
    ClusterMetadataMessageParser,
    DecoderMessageParser,
    MessageParser,
    offsets_message_parser,
    share_state_message_parser,
    transaction_message_parser,
)
from kfs.dump.problems import DumpProblems
from kfs.dump.text_form import TextForm
from kfs.format.decoders import BlockDecoder
from kfs.log.storage import Storage
from kfs.render.renderers import SequencedRenderer

MakeForm = Callable[[Printing], Form]


def text_by(lines: type[BatchLines]) -> MakeForm:
    """Return the text form whose batches one of the implementations writes."""

    def form(printing: Printing) -> TextForm:
        made = TextForm(printing)
        made.lines = lines(printing)
        return made

    return form


def json_by(renderer: type[SequencedRenderer]) -> MakeForm:
    """Return the JSON form whose records one of the implementations writes."""

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
    printing = printing or Printing(True, DecoderMessageParser())
    dumped = Dumped()
    findings = DumpProblems(dumped.problems.append)
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


def contents_of(topic: str) -> MessageParser:
    """Return the decoder that the records of a topic were recorded with."""
    if topic == "__consumer_offsets":
        return offsets_message_parser()
    if topic == "__transaction_state":
        return transaction_message_parser()
    if topic == "__share_group_state":
        return share_state_message_parser()
    return ClusterMetadataMessageParser() if topic == "__cluster_metadata" else DecoderMessageParser()
