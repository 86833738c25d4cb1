"""The ``kfs`` command."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final

import click

from kfs.cli.messages import messages
from kfs.errors import KfsError
from kfs.storage.descriptors import raise_limit

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_FAILED: Final = 1
#: The exit codes for failures of commands that, like diff(1), use 1 as a regular answer.
_EXIT_TROUBLE: Final = {"diff": 2, "verify": 2}
#: The system's errors for writes that fail for lack of room.
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
#: The commands, and their descriptions in ``kfs --help``. A command is in the module of kfs.cli with its name. That is
#: imported on demand, because imports take half the time of a short command.
_COMMANDS: Final = {
    "cat": "Print the records of a topic or a partition.",
    "cluster": "Show the cluster, from its metadata log and snapshots.",
    "completion": "Print the shell's completion script.",
    "demo": "Write a small Kafka data directory, to try kfs on.",
    "diff": "Compare the copies of each partition.",
    "dump": "Print Kafka's files as kafka-dump-log does, or as JSON.",
    "export": "Export new records to Parquet files, with Spark.",
    "groups": "Show consumer groups: offsets, lag, members, state.",
    "import": "Make partitions from JSON lines, Arrow or Parquet.",
    "index": "Read closed segments once, so that a mount is fast.",
    "ls": "List a directory of the tree, without mounting it.",
    "mount": "Mount log directories; returns once the mount answers.",
    "offsets": "Show or move the offsets that jobs keep.",
    "recover": "Make a copy that a broker can start on.",
    "stat": "Show size, times and owner of a file of the tree, as JSON.",
    "txn": "Show open transactions, and which of them hang.",
    "umount": "Unmount a mount point.",
    "verify": "Check all of Kafka's files; writes nothing.",
}


class _Group(click.Group):
    """A group that turns errors of kfs and of the system into one line and an exit code; a closed pipe ends quietly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        name = f"{name}_" if iskeyword(name) else name
        command: click.Command = getattr(import_module(f"kfs.cli.{name}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [CompletionItem(name, help=does) for name, does in _COMMANDS.items() if name.startswith(incomplete)]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _failures_told():  # --help and --version are printed here
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        raise_limit()
        with _failures_told(ctx):
            return super().invoke(ctx)


@contextmanager
def _failures_told(ctx: click.Context | None = None) -> Iterator[None]:
    """Print an error that the block raises in one line, and exit with the command's exit code for failures.

    That includes errors in writing standard output, which may only occur when it is flushed at the end.
    """
    try:
        try:
            yield
        except KfsError as error:
            messages.say(str(error))
            raise click.exceptions.Exit(_exit_code(ctx)) from None
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as error:
        is_output = _is_output_lost() or error.errno in _FULL
        place = error.filename or ("can't write" if is_output else "failed")
        messages.say(f"{os.fsdecode(place)}: {error.strerror or error}")
        raise click.exceptions.Exit(_exit_code(ctx)) from None


def _exit_code(ctx: click.Context | None) -> int:
    return _EXIT_TROUBLE.get((ctx and ctx.invoked_subcommand) or "", EXIT_FAILED)


def _is_output_lost() -> bool:
    """Whether standard output can't be written; if so, keep Python from flushing it at exit, with another exit code."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = None
        return True
    return False


def _show_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        import platform

        from kfs import __version__
        from kfs.format.decoders import default_decoder

        try:
            implementation = default_decoder().name
            click.echo(f"kfs {__version__} (implementation: {implementation}, Python {platform.python_version()})")
        except KfsError as error:
            raise click.ClickException(str(error)) from None
        ctx.exit()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Apache Kafka's log directories as a filesystem: every message a file.

    LOG_DIR is one of a broker's log.dirs, a single partition directory, or a .log file. No broker is
    needed, and nothing is ever written to it, except by recover --in-place.

    \b
      kfs demo /tmp/demo                      write a small data directory to try kfs on
      kfs mount /var/lib/kafka/data /mnt/k    mount a log directory
      cat /mnt/k/launch_info/0/offset/368776.json
      kfs umount /mnt/k

    Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage.
    """
