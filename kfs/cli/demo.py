"""``kfs demo``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from kfs.demo import WrittenTopic, write_demo


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(readable=False))
def demo(directory: str) -> None:
    """Write a small Kafka data directory to DIR, to try kfs on.

    DIR must be empty, or not exist. It gets the files that a broker would keep: topics of several kinds, in
    every message format and codec, with records of November 2020. The bytes are the same each time.

    \b
      kfs demo /tmp/demo
      kfs mount /tmp/demo /mnt/k
      cat /mnt/k/launch_info/0/offset/368776.json
    """
    written = write_demo(directory)
    for line in _report(directory, written):
        click.echo(line)


def _report(directory: str, written: list[WrittenTopic]) -> Iterator[str]:
    width = max(len(each.topic.name) for each in written)
    yield f"{directory}: {len(written)} topics, {sum(each.messages for each in written)} messages"
    for each in written:
        count = len(each.partitions)
        partitions = f"{count} partition{'s' if count != 1 else ' '}"
        yield f"  {each.topic.name:{width}}  {partitions}  {each.messages:>6} messages  {each.topic.description}"
    quoted = shlex.quote(directory)
    yield "Next:"
    yield f"  kfs mount {quoted} MOUNTPOINT"
    yield "  cat MOUNTPOINT/launch_info/0/offset/368776.json"
