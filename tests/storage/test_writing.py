"""What is written is all parts, however little the system takes at a time."""

from __future__ import annotations

import os
import tempfile
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.storage import descriptors
from kfs.storage.descriptors import write_all


@pytest.mark.parametrize("has_writev", [True, False])
@given(parts=st.lists(st.binary(max_size=9), max_size=9), taken=st.integers(1, 20), most=st.integers(1, 4))
def test_all_parts_are_written_in_order(has_writev: bool, parts: list[bytes], taken: int, most: int) -> None:
    calls: list[int] = []

    def writev(output: int, buffers: list[memoryview]) -> int:
        calls.append(len(buffers))
        return os.write(output, b"".join(buffers)[:taken])

    system = mock.Mock(spec=["writev", "write"] if has_writev else ["write"])
    system.write = lambda output, data: os.write(output, data[:taken])
    if has_writev:
        system.writev = writev
    with (
        tempfile.TemporaryFile() as file,
        mock.patch.object(descriptors, "os", system),
        mock.patch.object(descriptors, "_MOST_PARTS", most),
    ):
        write_all(file.fileno(), parts)
        file.seek(0)
        assert file.read() == b"".join(parts)
    assert bool(calls) == (has_writev and any(parts))
    assert all(0 < count <= most for count in calls)
