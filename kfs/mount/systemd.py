"""Notifications about a mount to systemd, or another supervisor: sd_notify(3) and sd_watchdog_enabled(3).

It takes one datagram, less than the libraries for it take to be imported, and none of those on PyPI is kept up.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Final

#: The number of signs of life within the supervisor's limit. systemd recommends two; one may be late.
_SIGNS_IN_LIMIT: Final = 4


def notify(*states: str) -> None:
    """Send states, such as ``READY=1``, to the supervisor that started this process, if there is one."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
            supervisor.setblocking(False)  # one that doesn't listen must not hold up a request
            # A leading @ stands for the zero byte of an abstract socket.
            supervisor.connect("\0" + address[1:] if address.startswith("@") else address)
            supervisor.send("\n".join(states).encode("utf-8", "surrogateescape"))


class Watchdog:
    """Signs of life for a supervisor that ends this process when none comes for ``limit`` seconds."""

    def __init__(self, limit: float) -> None:
        #: How often, in seconds, a sign is due.
        self.interval = limit / _SIGNS_IN_LIMIT
        self._due = 0.0

    def is_due(self) -> bool:
        """Return whether it is time for a sign of life."""
        return time.monotonic() >= self._due

    def feed(self) -> None:
        """Send a sign of life, if one is due."""
        if self.is_due():
            self._due = time.monotonic() + self.interval
            notify("WATCHDOG=1")


def watchdog() -> Watchdog | None:
    """Return the watchdog that the supervisor of this process has set up, None if there is none."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    limit = os.environ.get("WATCHDOG_USEC", "")
    return Watchdog(int(limit) / 1e6) if limit.isdigit() and int(limit) else None
