"""The ``kfs`` command."""

from __future__ import annotations

import platform
from importlib import import_module
from keyword import iskeyword
from typing import Final

import click

from kfs.cli.messages import messages
from kfs.errors import KfsError
from kfs.log.descriptors import SHORTAGES, raise_limit

EXIT_FAILED: Final = 1
#: Of commands that, like diff(1), answer with 1 what was asked.
_EXIT_TROUBLE: Final = {"diff": 2, "verify": 2}
#: Each in the module of kfs.cli that has its name, imported when it is wanted: half of a short command is imports.
_COMMANDS: Final = (
    "cat",
    "cluster",
    "completion",
    "demo",
    "diff",
    "dump",
    "export",
    "groups",
    "import",
    "index",
    "ls",
    "mount",
    "offsets",
    "recover",
    "stat",
    "txn",
    "umount",
    "verify",
)


class _Group(click.Group):
    """Translates what kfs raises into one line and an exit code; a closed pipe ends quietly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        name = f"{name}_" if iskeyword(name) else name
        command: click.Command = getattr(import_module(f"kfs.cli.{name}"), name)
        return command

    def invoke(self, ctx: click.Context) -> object:
        raise_limit()
        try:
            return super().invoke(ctx)
        except KfsError as error:
            messages.say(str(error))
        except OSError as error:  # as of a pipe to a process of ours
            if error.errno not in SHORTAGES:
                raise
            messages.say(str(error))
        return ctx.exit(_EXIT_TROUBLE.get(ctx.invoked_subcommand or "", EXIT_FAILED))


def _show_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        from kfs import __version__
        from kfs.format.decoders import default_decoder

        try:
            click.echo(f"kfs {__version__} (decoder: {default_decoder().name}, Python {platform.python_version()})")
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
    needed, and nothing is ever written to it (but by recover, if told to with --in-place).

    \b
      kfs demo /tmp/demo                      make a small data directory to play with
      kfs mount /var/lib/kafka/data /mnt/k    mount a log directory
      cat /mnt/k/launch_info/0/offset/368776.json
      kfs umount /mnt/k

    Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage.
    """
