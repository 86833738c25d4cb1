"""A file some bytes of which are those of other files is read, and taken apart, as if it were one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfs.storage.open_files import FileChanged, OpenFile
from kfs.storage.patched_file import Extent, PatchedFile

OWN, OTHER = b"0123456789", b"abcdefghij"
#: What follows the last extent grows with the file.
WHOLE = b"0123" + b"cde" + b"b" + b"6789"


@pytest.fixture
def patched(tmp_path: Path) -> PatchedFile:
    for name, content in (("own", OWN), ("other", OTHER)):
        (tmp_path / name).write_bytes(content)
    own, other = str(tmp_path / "own"), str(tmp_path / "other")
    patch = (Extent(own, 1, 0, 4), Extent(other, 2, 2, 3), Extent(other, 2, 1, 1), Extent(own, 1, 6, None))
    return PatchedFile(OpenFile(own), patch, lambda extent: OpenFile(extent.path), lambda _reason: None)


def test_every_range_is_read_as_of_one_file(patched: PatchedFile) -> None:
    assert patched.size() == len(WHOLE)
    for start in range(len(WHOLE) + 2):
        for length in range(len(WHOLE) + 2):
            assert patched.read(start, length) == WHOLE[start : start + length]


def test_the_pieces_of_a_range_are_its_bytes_where_they_are(patched: PatchedFile) -> None:
    for start in range(len(WHOLE)):
        for end in range(start, len(WHOLE) + 1):
            pieces = list(patched.extents(start, end))
            assert b"".join(file.read(first, last - first) for file, first, last in pieces) == WHOLE[start:end]
            for (file, first, _), at in zip(pieces[:1], (start,), strict=False):
                assert patched.where(at) == (file.path, first)


def test_another_file_that_was_cut_is_told(patched: PatchedFile, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(OTHER[:3])
    with pytest.raises(FileChanged, match="cut"):
        patched.read(0, len(WHOLE))
