"""What the commands say on standard error: each thing once, and nothing in it that could drive a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Final

import click


class Messages(logging.Handler):
    """Says errors, and warnings that are logged on the way, in lines that begin with ``kfs:``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.emit`."""
        self.say(record.getMessage())

    def say(self, text: str) -> None:
        """Say ``text`` unless it was said before: what is found wrong may also be why the command fails."""
        if text not in self._said:
            self._said.add(text)
            try:
                click.echo("kfs: " + "\n".join(map(shown, text.split("\n"))), err=True)
            except OSError:  # what a command does is worth more than what it says of it
                sys.stderr = None


#: Those of this process.
messages: Final = Messages()


def say_what_is_logged() -> None:
    """From now on say warnings and errors that this package logs."""
    logging.getLogger("kfs").addHandler(messages)


def shown(text: str) -> str:
    """Return a line of text as a terminal may be shown it: if not all of it is printable, it is escaped."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogateescape").decode("ascii")
