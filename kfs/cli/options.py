"""Options that several commands share, and the types of their values; nothing here needs the tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import click

from kfs.log.problem import DamagePolicy
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES
from kfs.read.isolation_level import IsolationLevel

#: Adds an option to a command.
Option: TypeAlias = "Callable[[Any], Any]"

_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE: Final = re.compile(r"([0-9]+)\s*([KMG]?)(i?B)?\Z", re.IGNORECASE)


class ByteSize(click.ParamType[int]):
    """A number of bytes: 1048576, 512K, 64MiB, 1G."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; 1K is 1024."""
        if isinstance(value, int):
            return value
        match = _SIZE.match(value)
        if match is None:
            self.fail(f"{value!r} is not a number of bytes, such as 512K, 64M or 1G", param, ctx)
        return int(match[1]) * _UNITS[match[2].upper()]


def choice_option(*names: str, values: Iterable[str], default: str | None, help_text: str) -> Option:
    """Return an option that takes one of several values."""
    return click.option(
        *names, type=click.Choice(list(values)), default=default, show_default=default is not None, help=help_text
    )


def bytes_option(name: str, *, default: int, shown: str, help_text: str) -> Option:
    """Return an option that takes a number of bytes; ``shown`` is the default as the help shows it."""
    return click.option(name, type=ByteSize(), default=default, show_default=shown, help=help_text)


def json_option(help_text: str) -> Option:
    """Return ``--json``, for commands that otherwise print for people; ``help_text`` says what one object describes."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def output_option(metavar: str, help_text: str, parameter: str = "output", **others: Any) -> Option:
    """Return ``--output``, for commands that write files; ``others`` are passed to click."""
    return click.option("--output", "-o", parameter, metavar=metavar, help=help_text, **others)


def topic_option_of(help_text: str) -> Option:
    """Return ``--topic``; ``help_text`` says what it selects."""
    return click.option("--topic", "topics", multiple=True, metavar="PATTERN", help=f"{help_text} Repeatable.")


def until_option(help_text: str, *others: str) -> Option:
    """Return ``--until``: where logs end. ``help_text`` says what that affects, ``others`` are further values."""
    return choice_option("--until", values=("end", "hw", *others), default="end", help_text=help_text)


def isolation_option_of(default: IsolationLevel, help_text: str) -> Option:
    """Return ``--isolation``; ``help_text`` says what it means for the command."""
    values = [level.value for level in IsolationLevel]
    return choice_option("--isolation", values=values, default=default.value, help_text=help_text)


topic_option = topic_option_of("Only topics that match, such as 'orders*'.")
jobs_option = click.option(
    "--jobs", "-j", type=click.IntRange(1), default=None, help="How many processes to use.  [default: all cores]"
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be set, and set nothing.")
#: For commands with a single LOG_DIR argument, because a PATH follows it, or because they copy it.
also_option = click.option(
    "--also",
    metavar="DIR",
    multiple=True,
    type=click.Path(readable=False),
    help="Another LOG_DIR, or a copy of what LOG_DIR has, such as another broker's. Repeatable.",
)
on_damage_option = choice_option(
    "--on-damage",
    values=[choice.value for choice in DamagePolicy],
    default=DamagePolicy.FAIL.value,
    help_text="At a batch that can't be read: fail, or skip it and report it.",
)
isolation_option = isolation_option_of(
    IsolationLevel.READ_UNCOMMITTED,
    "All records, or only those a read_committed consumer gets: none of aborted or open transactions.",
)
max_batch_bytes_option = bytes_option(
    "--max-batch-bytes",
    default=DEFAULT_MAX_BATCH_BYTES,
    shown="128M",
    help_text="Refuse larger batches, before or after decompression.",
)
