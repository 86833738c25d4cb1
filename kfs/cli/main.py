"""The ``kfs`` command."""

from __future__ import annotations

import platform

import click

from kfs import __version__
from kfs.cli.cat import cat
from kfs.cli.completion import completion
from kfs.cli.demo import demo
from kfs.cli.index import index
from kfs.cli.ls import ls
from kfs.cli.messages import messages
from kfs.cli.mount import mount
from kfs.cli.stat import stat
from kfs.cli.umount import umount
from kfs.errors import KfsError
from kfs.format.decoders import default_decoder

EXIT_FAILED = 1


class _Group(click.Group):
    """Translates what kfs raises into one line and an exit code; a closed pipe ends quietly."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KfsError as error:
            messages.say(str(error))
            ctx.exit(EXIT_FAILED)


def _show_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
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
    needed, and nothing is ever written to it.

    \b
      kfs demo /tmp/demo                      make a small data directory to play with
      kfs mount /var/lib/kafka/data /mnt/k    mount a log directory
      cat /mnt/k/launch_info/0/offset/368776.json
      kfs umount /mnt/k

    Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage.
    """


for command in (demo, mount, umount, ls, cat, stat, index, completion):
    main.add_command(command)
