"""The messages of commands on standard error: each is printed once, and without control characters."""

from __future__ import annotations

import logging
import sys
from typing import Final

import click


class Messages(logging.Handler):
    """Prints errors, and warnings that are logged meanwhile; each message begins with ``kfs:``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.emit`."""
        self.say(record.getMessage())

    def say(self, text: str) -> None:
        """Print ``text`` unless it was printed before: a logged problem may also be why the command fails."""
        if text not in self._said:
            self._said.add(text)
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print ``text``, even if it was printed before: an event may happen again."""
        try:
            click.echo("kfs: " + "\n".join(map(shown, text.split("\n"))), err=True)
        except OSError:  # messages that can't be printed must not stop the command
            sys.stderr = None


#: The messages of this process.
messages: Final = Messages()


def say_what_is_logged() -> None:
    """Print the warnings and errors that this package logs from now on."""
    logging.getLogger("kfs").addHandler(messages)


def shown(text: str) -> str:
    """Return a line of text that is safe for a terminal: escaped unless all of it is printable."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogateescape").decode("ascii")
