"""Options of several commands, and the types of their values; nothing here needs the tree."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from kfs.log.problem import DamagePolicy
from kfs.log.storage import DEFAULT_MAX_BATCH_BYTES
from kfs.read.isolation import IsolationLevel

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


topic_option = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="PATTERN",
    help="Only topics that match, such as 'orders*'. Repeatable.",
)
#: For commands that have one LOG_DIR, before a PATH or because they make another of it.
also_option = click.option(
    "--also",
    metavar="DIR",
    multiple=True,
    type=click.Path(readable=False),
    help="Another LOG_DIR, or a copy of what LOG_DIR has, such as another broker's. Repeatable.",
)
on_damage_option = click.option(
    "--on-damage",
    type=click.Choice([choice.value for choice in DamagePolicy]),
    default=DamagePolicy.FAIL.value,
    show_default=True,
    help="At a batch that can't be read: fail, or skip it and say so.",
)
isolation_option = click.option(
    "--isolation",
    type=click.Choice([level.value for level in IsolationLevel]),
    default=IsolationLevel.READ_UNCOMMITTED.value,
    show_default=True,
    help="All records, or only what a read_committed consumer gets: no aborted transactions, none still open.",
)
max_batch_bytes_option = click.option(
    "--max-batch-bytes",
    type=ByteSize(),
    default=DEFAULT_MAX_BATCH_BYTES,
    show_default="128M",
    help="Refuse a batch larger than that, before or after decompression.",
)
