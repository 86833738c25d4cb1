"""What Kafka's dump tool printed for the files of the corpora, and where ours deliberately prints something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Where Kafka's tool ends; ours goes on.
DEATH = "Exception in thread "


@dataclass(frozen=True, slots=True)
class Recorded:
    """The output for one file: ``path`` is relative to the corpus, as the output names it."""

    path: str
    text: str

    @property
    def is_cut_short(self) -> bool:
        """Whether Kafka's tool ended with an exception."""
        return DEATH in self.text

    @property
    def base_offset(self) -> int:
        """The offset that the file's name begins with."""
        return int(Path(self.path).name[:20])

    @property
    def topic(self) -> str:
        """The topic that the file belongs to."""
        return Path(self.path).parent.name.rpartition("-")[0]


def recorded(corpus: Path, directory: str) -> Iterator[Recorded]:
    """Yield what was printed for every file of a corpus; the checks of indexes' sanity are others' affair."""
    for file in sorted((corpus / directory).rglob("*.txt")):
        if not file.name.endswith(".sanity.txt"):
            path = file.relative_to(corpus / directory).as_posix().removesuffix(".txt")
            yield Recorded(f"data/{path}", file.read_bytes().decode())


#: The heading of a list at the end of the output, and what its lines look like.
_HEADING = "{}[^\n]*\n((?:{}\n)+)"
_NUMBER = "(-?[0-9]+)"


def expected(output: Recorded) -> str:
    """Return what ours has to print: what Kafka printed, without the lines of :data:`EXCEPTIONS`."""
    text = output.text.partition(DEATH)[0]
    for exception in EXCEPTIONS:
        text = exception.applied(text, output.base_offset)
    return text


@dataclass(frozen=True, slots=True)
class FalseList:
    """A list in which Kafka names what is no fault: ``is_false`` says which of its lines (two numbers) go."""

    heading: str
    line: str
    is_false: Callable[[int, int, int], bool]

    def applied(self, text: str, base: int) -> str:
        """Return the output without those lines, and without the heading where none is left."""

        def rest(match: re.Match[str]) -> str:
            lines = [line for line in match[1].splitlines(keepends=True) if not self._goes(line, base)]
            return match[0].removesuffix(match[1]) + "".join(lines) if lines else ""

        return re.sub(_HEADING.format(re.escape(self.heading), self.line), rest, text)

    def _goes(self, line: str, base: int) -> bool:
        match = re.fullmatch(self.line + "\n", line)
        assert match
        first, second = map(int, re.findall(_NUMBER, line))
        return self.is_false(first, second, base)


#: docs/DUMP.md has the reasons.
EXCEPTIONS = (
    # The first record of a segment follows nothing in it.
    FalseList("Non-consecutive offsets in ", rf"  {_NUMBER} is followed by {_NUMBER}", lambda a, b, base: a == -1),
    # Entries of brokers before 4.x have the first or the last offset of an append; a preallocated index begins with
    # zeros. Nothing else is wrong with the indexes of an intact corpus.
    FalseList("Mismatches in :", rf"  Index offset: {_NUMBER}, log offset: {_NUMBER}", lambda a, b, base: True),
    # A preallocated time index begins with zeros, too.
    FalseList(
        "The following indexed offsets are not found in :",
        rf"Indexed offset: {_NUMBER}, found log offset: {_NUMBER}",
        lambda a, b, base: a == base,
    ),
    # A batch that compaction left without records keeps its timestamp in its header.
    FalseList(
        "Found timestamp mismatch in :",
        rf"  Index timestamp: {_NUMBER}, log timestamp: {_NUMBER}",
        lambda a, b, base: b == -1,
    ),
)
