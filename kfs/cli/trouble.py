"""What the commands say of the topics that Kafka keeps its state in, where they can't all be read or believed."""

from __future__ import annotations

from typing import Final

from kfs.cli.messages import messages
from kfs.internal.trouble import Trouble

_MOST_SAID: Final = 10


def say_trouble(trouble: Trouble, listing: str, *, with_shares: bool = True) -> bool:
    """Say it, of records up to ten; ``listing`` is the file of a mount that has all. Return whether something is lost.

    Damage was said as a warning when it was met.
    """
    for caveat in (*(trouble.shares if with_shares else ()), *trouble.caveats):
        messages.say(f"{caveat.file}: {caveat.reason}")
    for log, record in trouble.unread[:_MOST_SAID]:
        messages.say(f"{log.topic}-{log.partition}: offset {record.offset}: {record.reason}")
    more = len(trouble.unread[_MOST_SAID:]) + trouble.unread_dropped
    if more:
        messages.say(f"and {more} more records that can't be read: see {listing} of a mount")
    return trouble.loses_something
