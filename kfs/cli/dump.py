"""``kfs dump``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click

from kfs.cli.messages import messages
from kfs.cli.options import ByteSize, choice_option, max_batch_bytes_option
from kfs.dump.dumper import Dumper, DumpOptions
from kfs.dump.forms import Form, Printing
from kfs.dump.json_form import JsonForm
from kfs.dump.kinds import files_of
from kfs.dump.message_parsers import (
    DECODERS,
    ClusterMetadataMessageParser,
    DecoderMessageParser,
    MessageParser,
    RemoteLogMessageParser,
    decoder_name,
    offsets_message_parser,
    share_state_message_parser,
    transaction_message_parser,
)
from kfs.dump.problems import DumpProblems
from kfs.dump.text_form import TextForm, encoded
from kfs.dump.text_form_2x import TextForm20, TextForm28
from kfs.log.storage import Storage
from kfs.storage.memory import keep_freed_memory

_SOMETHING_WRONG: Final = 1
_MAX_INT: Final = 2**31 - 1
_DIALECTS: Final[dict[str, Callable[[Printing], Form]]] = {"4.x": TextForm, "2.8": TextForm28, "2.x": TextForm20}
Command = TypeVar("Command", bound=Callable[..., Any])


class _Decoder(click.ParamType[str]):
    """A decoder of kfs, by its name or by the name of Kafka's class."""

    name = "decoder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of the decoder in kfs."""
        name = decoder_name(value)
        if name is None:
            self.fail(f"{value!r} is neither one of {', '.join(DECODERS)} nor Kafka's class for one", param, ctx)
        return name


def _decoder(option: str, what: str) -> Callable[[Command], Command]:
    names = ", ".join(DECODERS)
    return click.option(
        option, type=_Decoder(), is_flag=False, flag_value="string", help=f"How to read {what}: {names}.  [string]"
    )


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(readable=False))
@click.option("--files", multiple=True, metavar="FILE,FILE...", help="More files, separated by commas.")
@click.option("--print-data-log", is_flag=True, help="Also print keys and values. Any decoder implies it.")
@click.option(
    "--deep-iteration", is_flag=True, help="Also print records, not only batches. --print-data-log implies it."
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only the keys and values of records.")
@click.option("--max-bytes", type=ByteSize(), help="Read only that many bytes of each log.")
@click.option("--index-sanity-check", is_flag=True, help="Check indexes only as a broker does when it starts.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with their log without printing them.")
@click.option("--max-message-size", type=click.IntRange(1, _MAX_INT), help="Accepted as by Kafka's tool; not needed.")
@_decoder("--key-decoder-class", "keys")
@_decoder("--value-decoder-class", "values")
@click.option("--offsets-decoder", is_flag=True, help="The log is __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="The log is __transaction_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="The log is __cluster_metadata, or a snapshot of it.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="The log is __remote_log_metadata.")
@click.option("--share-group-state-decoder", is_flag=True, help="The log is __share_group_state.")
@choice_option(
    "--format",
    "output_format",
    values=("text", "json"),
    default="text",
    help_text="Text as Kafka's tool prints it, or one JSON object a line with every field.",
)
@choice_option(
    "--dialect",
    values=_DIALECTS,
    default="4.x",
    help_text="Print as Kafka 4.x, 2.8, or 2.x (2.0, as most articles show it).",
)
@max_batch_bytes_option
def dump(
    paths: tuple[str, ...],
    files: tuple[str, ...],
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    max_bytes: int | None,
    index_sanity_check: bool,
    verify_index_only: bool,
    max_message_size: int | None,
    output_format: str,
    dialect: str,
    max_batch_bytes: int,
    **decoders: Any,
) -> None:
    """Print the content of Kafka's files, line for line as kafka-dump-log of Kafka 4.3, or as JSON.

    PATH is a .log, .index, .timeindex, .txnindex, .snapshot or .checkpoint file, a checkpoint,
    partition.metadata, meta.properties, or a directory of these. A bad file doesn't stop the dump.
    Text has the messages' control characters as they are; --format json is safe on a terminal, and to parse.

    \b
      kfs dump --deep-iteration /var/lib/kafka/data/orders-0/00000000000000000000.log
      kfs dump --format json --print-data-log /var/lib/kafka/data/orders-0 | jq .
      kfs dump --offsets-decoder /var/lib/kafka/data/__consumer_offsets-7

    Exit codes: 0 all is well, 1 something is wrong in a file, 2 wrong usage.
    """
    wanted = [*(file for listed in files for file in listed.split(",")), *paths]
    if not wanted:
        raise click.UsageError("no file to dump: give a PATH or --files")
    contents = _contents(decoders)
    prints_contents = print_data_log or any(decoders.values())
    printing = Printing(
        deep_iteration or prints_contents, contents if prints_contents else None, not skip_record_metadata
    )
    options = DumpOptions(printing.is_deep, max_bytes, index_sanity_check, verify_index_only)
    findings = DumpProblems(messages.say)
    form: Form = JsonForm(printing) if output_format == "json" else _DIALECTS[dialect](printing)
    keep_freed_memory()
    storage = Storage(max_batch_bytes=max_batch_bytes)
    dumper = Dumper(form, options, findings, storage, lambda path: _say_plainly(f"Ignoring unknown file {path}"))
    _write(dumper, wanted, findings)
    if findings.is_bad:
        raise click.exceptions.Exit(_SOMETHING_WRONG)


def _contents(decoders: dict[str, Any]) -> MessageParser:
    """Return the requested decoder; if there are several, the one that Kafka's tool would use."""
    if decoders["offsets_decoder"]:
        return offsets_message_parser()
    if decoders["transaction_log_decoder"]:
        return transaction_message_parser()
    if decoders["cluster_metadata_decoder"]:
        return ClusterMetadataMessageParser()
    if decoders["remote_log_metadata_decoder"]:
        return RemoteLogMessageParser()
    if decoders["share_group_state_decoder"]:
        return share_state_message_parser()
    return DecoderMessageParser(decoders["key_decoder_class"] or "string", decoders["value_decoder_class"] or "string")


def _write(dumper: Dumper, wanted: list[str], findings: DumpProblems) -> None:
    out = sys.stdout.buffer
    try:
        for path in wanted:
            for file in _files(path, findings):
                out.writelines(dumper.dump(file))
        for line in findings.lines():
            _say_plainly(line)
        out.flush()
    except BrokenPipeError:
        sys.stdout = None  # the reader has closed it


def _files(path: str, findings: DumpProblems) -> Iterator[str]:
    has_any = False
    try:
        for file in files_of(path):
            has_any = True
            yield file
    except OSError as error:
        findings.unusable(path, error.strerror or str(error))
    else:
        if not has_any:
            findings.unusable(path, "it has no file that can be dumped")


def _say_plainly(line: str) -> None:
    """Write a line to standard error in the same way as Kafka's tool."""
    sys.stderr.buffer.write(encoded(line + "\n"))
    sys.stderr.buffer.flush()
