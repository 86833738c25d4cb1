"""``kfs mount``."""

from __future__ import annotations

import os
import sys
from functools import partial

import click

from kfs.cli.options import choice_option
from kfs.cli.source import SourceOptions, source_options
from kfs.log_lines import LogFormat
from kfs.mount import FRONTS
from kfs.mount import mount as mount_tree
from kfs.tree.kafka_tree import KafkaTree


@click.command()
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@click.argument("mountpoint", type=click.Path(readable=False))
@source_options
@click.option("-f", "--foreground", is_flag=True, help="Don't start a daemon; print a line once the mount answers.")
@click.option("--allow-other", is_flag=True, help="Give other users access, as file modes allow.")
@click.option(
    "--front",
    type=click.Choice(FRONTS),
    default="auto",
    show_default=True,
    help="What serves the mount: kfs itself (kernel; auto on Linux), or libfuse.",
)
@click.option(
    "--index/--no-index",
    "with_index",
    default=True,
    show_default=True,
    help="While mounted, read closed segments ahead of time, as kfs index does, at the lowest priority.",
)
@click.option("--log-file", type=click.Path(readable=False), help="Where the daemon logs what happens.")
@choice_option(
    "--log-format",
    values=[each.value for each in LogFormat],
    default=LogFormat.TEXT.value,
    help_text="Log lines for people, or each as a JSON object.",
)
def mount(
    log_dirs: tuple[str, ...],
    mountpoint: str,
    source: SourceOptions,
    foreground: bool,
    allow_other: bool,
    front: str,
    with_index: bool,
    log_file: str | None,
    log_format: str,
) -> None:
    """Mount LOG_DIR... at MOUNTPOINT, an empty directory; returns once the mount answers.

    Each LOG_DIR is a log directory (one of a broker's log.dirs), a single partition directory, or a
    .log file; several are shown as one. It is opened read-only. A mount that a killed daemon left at
    MOUNTPOINT is replaced.

    \b
      kfs mount /var/lib/kafka/data /mnt/k
      kfs mount --topic 'orders*' /disk1/kafka /disk2/kafka /mnt/k
      kfs mount --foreground ./orders-0 /mnt/k
    """
    for log_dir in log_dirs:
        if _contains(log_dir, mountpoint):
            raise click.UsageError(f"{mountpoint} lies in {log_dir}: choose a mount point outside of what is mounted")
    mount_tree(
        partial(_opened, source, log_dirs),
        mountpoint,
        source=os.path.realpath(log_dirs[0]),  # as mount(8) has it
        front=front,
        foreground=foreground,
        allow_other=allow_other,
        log_file=log_file,
        log_format=LogFormat(log_format),
        indexer=_index_command(log_dirs, source) if with_index else None,
    )


def _index_command(log_dirs: tuple[str, ...], source: SourceOptions) -> list[str]:
    """Return the command that indexes segments while they are mounted; it may run in another working directory."""
    absolute = [os.path.abspath(log_dir) for log_dir in log_dirs]
    return [sys.executable, "-m", "kfs", "index", "--background", *source.arguments(), "--", *absolute]


def _opened(source: SourceOptions, log_dirs: tuple[str, ...]) -> KafkaTree:
    tree = source.open(log_dirs)
    tree.work_ahead()
    return tree


def _contains(log_dir: str, mountpoint: str) -> bool:
    outer, inner = os.path.realpath(log_dir), os.path.realpath(mountpoint)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
