"""The index made by a pass over a segment: where chunks of its text begin, in the text and in the log."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from dataclasses import asdict
from typing import Final

from kfs.log.problem import Problem, ProblemKind
from kfs.read.deciding_markers import Marker

#: Changes with the rendered bytes, and with the layout below.
FORMAT_VERSION: Final = 4
_COLUMNS: Final = ("text_starts", "positions", "after", "earliest", "latest")
#: Chunks, size, log end, last offset, whether offsets are missing, bytes of problems and deciding markers.
_TOTALS: Final = struct.Struct("<qqqqqq")
#: Whether offsets are missing, as coded in the file: no, yes, not asked.
_MISSING: Final = (False, True, None)
#: Timestamps of a chunk without records.
NO_EARLIEST: Final = 2**63 - 1
NO_LATEST: Final = -(2**63)


class LineIndex:
    """Where chunks begin: in the text, in the log, and the highest offset before them.

    ``earliest`` and ``latest`` are the least and greatest timestamp in each chunk, in milliseconds. ``problems`` were
    found by the pass; ``deciding_markers`` are the markers after the segment that decided what of it is committed.
    ``stable_end`` is the offset before which the index ends, if its text has such an end for now. ``is_missing`` says
    whether the offsets after ``last_offset`` are known to be lost with a segment, None if there are none.
    """

    def __init__(self, base_offset: int) -> None:
        self.text_starts = array("q", [0])
        self.positions = array("q", [0])
        self.after = array("q", [base_offset - 1])
        self.earliest = array("q", [NO_EARLIEST])
        self.latest = array("q", [NO_LATEST])
        self.size = 0
        self.log_end = 0
        self.last_offset = base_offset - 1
        self.problems: list[Problem] = []
        self.deciding_markers: list[Marker] = []
        self.stable_end = -1
        self.is_missing: bool | None = None

    def __len__(self) -> int:
        return len(self.text_starts)

    @property
    def nbytes(self) -> int:
        """Memory used, in bytes; most indexes have one chunk, and cost little more than their objects."""
        return len(self) * 8 * len(_COLUMNS) + 128 * (len(self.problems) + len(self.deciding_markers)) + 1200

    def begin_chunk(self) -> None:
        """Begin a chunk at the end of the index."""
        self.text_starts.append(self.size)
        self.positions.append(self.log_end)
        self.after.append(self.last_offset)
        self.earliest.append(NO_EARLIEST)
        self.latest.append(NO_LATEST)

    def note_times(self, earliest: int, latest: int) -> None:
        """Include timestamps in the range of the last chunk."""
        self.earliest[-1] = min(self.earliest[-1], earliest)
        self.latest[-1] = max(self.latest[-1], latest)

    def encode(self) -> bytes:
        """Return the index as bytes, for :meth:`decode`."""
        others = json.dumps([[asdict(problem) for problem in self.problems], self.deciding_markers]).encode()
        missing = _MISSING.index(self.is_missing)
        totals = _TOTALS.pack(len(self), self.size, self.log_end, self.last_offset, missing, len(others))
        columns = [getattr(self, name) for name in _COLUMNS]
        return b"".join([totals, others, *(_little_endian(column).tobytes() for column in columns)])

    @classmethod
    def decode(cls, data: bytes) -> LineIndex:
        """Return the index that :meth:`encode` wrote.

        Raises:
            ValueError: the bytes are no such index.
        """
        try:
            chunks, size, log_end, last_offset, missing, length = _TOTALS.unpack_from(data)
            at = _TOTALS.size + length
            if (
                chunks < 1
                or length < 0
                or missing not in range(len(_MISSING))
                or len(data) != at + chunks * 8 * len(_COLUMNS)
            ):
                raise ValueError("lengths that don't add up")
            index = cls(0)
            problems, markers = json.loads(data[_TOTALS.size : at])
            index.problems = [Problem(**{**fields, "kind": ProblemKind(fields["kind"])}) for fields in problems]
            index.deciding_markers = [Marker(*fields) for fields in markers]
        except (struct.error, TypeError, KeyError, UnicodeDecodeError) as error:
            raise ValueError(f"not an index: {error}") from None
        for name in _COLUMNS:
            column = array("q", data[at : at + chunks * 8])
            setattr(index, name, _little_endian(column))
            at += chunks * 8
        index.size, index.log_end, index.last_offset, index.is_missing = size, log_end, last_offset, _MISSING[missing]
        return index


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
