"""Whether a listing brings the attributes along (READDIRPLUS) or leaves them to be asked for."""

from __future__ import annotations

from typing import Final

from kfs.mount.listing import Place

#: For how many entries attributes are given on trust, without any of them being looked up. Tools that
#: look at every entry (find, grep -r, cp -r) read this many names before they begin.
CREDIT: Final = 100_000
#: What a look-up from the kernel costs at the least, in seconds: attributes that take longer to find
#: use up more credit, being better found when they are wanted.
LOOKUP_SECONDS: Final = 50e-6

_MAX_DIRECTORIES: Final = 1024


class ReaddirplusPolicy:
    """Gives attributes away with a listing as long as that pays.

    Given away, they save a request for each entry that is then looked at; but they cost time, and
    the kernel and libfuse memory, for each one that isn't. The kernel's own rule (start with a reply
    that has them, go on when entries are looked up) fails for tools that read all names first. Ours:
    a directory has credit for a number of entries, less where they don't come cheap; and credit is renewed
    whenever a name in it is looked up. That shows because one entry in each reply is left without.
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
        """Return whether credit runs out: until then, tools that read all names first need not show that they look."""
        return self._spent.get(directory, 0.0) > CREDIT * 0.9

    def spend(self, directory: Place, entries: int, seconds: float) -> None:
        """Take note of a reply with attributes, and of how long they took."""
        if len(self._spent) >= _MAX_DIRECTORIES:
            self._spent.clear()
        # Squared, so that a hiccup costs some credit, and a directory of huge records nearly all at once.
        dearness = max(1.0, seconds / (max(1, entries) * LOOKUP_SECONDS)) ** 2
        self._spent[directory] = self._spent.get(directory, 0.0) + entries * dearness

    def looked_up_in(self, directory: Place) -> None:
        """Take note that the kernel asked for a name in a directory."""
        if self._spent:
            self._spent.pop(directory, None)

    def renew(self) -> None:
        """Note that what was listed is read, whatever directory it is in."""
        self._spent.clear()
