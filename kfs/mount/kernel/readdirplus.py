"""The decision whether a listing includes attributes (READDIRPLUS)."""

from __future__ import annotations

from typing import Final

from kfs.mount.listing import Place

#: How many entries get attributes without any of them being looked up. Tools that look at every entry (find, grep -r,
#: cp -r) read this many names before they begin.
CREDIT: Final = 100_000
#: The least cost of a look-up from the kernel, in seconds. Attributes that take longer use up more credit: they are
#: better looked up only when needed.
LOOKUP_SECONDS: Final = 50e-6

_MAX_DIRECTORIES: Final = 1024


class ReaddirplusPolicy:
    """Includes attributes in listings as long as that pays.

    They save a request for each entry that is then looked at, but cost time, and memory in the kernel and libfuse, for
    each that isn't. The kernel's own rule (include them in the first reply, go on if entries are looked up) fails for
    tools that read all names first. Our rule: a directory has credit for a number of entries, less if attributes are
    expensive, and a look-up of a name in it renews the credit. One entry in each reply is left without, to detect that.
    """

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent: dict[Place, float] = {}

    def pays(self, directory: Place, *, at_start: bool) -> bool:
        """Return whether the next reply of a listing should have attributes."""
        if at_start:
            self._spent.pop(directory, None)
        return self._spent.get(directory, 0.0) < CREDIT

    def doubts(self, directory: Place) -> bool:
        """Return whether credit runs low: before that, tools that read all names first need not show that they look."""
        return self._spent.get(directory, 0.0) > CREDIT * 0.9

    def spend(self, directory: Place, entries: int, seconds: float) -> None:
        """Charge a reply with attributes, by the time that they took."""
        if len(self._spent) >= _MAX_DIRECTORIES:
            self._spent.clear()
        # Squared, so that a hiccup costs some credit, and a directory of huge records nearly all at once.
        dearness = max(1.0, seconds / (max(1, entries) * LOOKUP_SECONDS)) ** 2
        self._spent[directory] = self._spent.get(directory, 0.0) + entries * dearness

    def looked_up_in(self, directory: Place) -> None:
        """Note that the kernel looked up a name in a directory."""
        if self._spent:
            self._spent.pop(directory, None)

    def renew(self) -> None:
        """Note that listed files are read, in whatever directory."""
        self._spent.clear()
