"""Reports problems of the internal topics with Kafka's state: parts that are missing, unreadable or unreliable."""

from __future__ import annotations

from typing import Final

from kfs.cli.messages import messages
from kfs.internal.state_problems import StateProblems

_MOST_SAID: Final = 10


def say_state_problems(found: StateProblems, listing: str, *, with_shares: bool = True) -> bool:
    """Print the problems, with at most ten unreadable records; return whether something is lost.

    ``listing`` is the file of a mount that has all of them. Damage isn't printed again: it was already logged as a
    warning.
    """
    for caveat in (*(found.shares if with_shares else ()), *found.caveats):
        messages.say(f"{caveat.file}: {caveat.reason}")
    for log, record in found.unread[:_MOST_SAID]:
        messages.say(f"{log.topic}-{log.partition}: offset {record.offset}: {record.reason}")
    more = len(found.unread[_MOST_SAID:]) + found.unread_dropped
    if more:
        messages.say(f"and {more} more records that can't be read: see {listing} of a mount")
    return found.loses_something
