"""CRC-32C, of either implementation."""

from __future__ import annotations

import pytest
from crc32c import crc32c as of_library
from hypothesis import given
from hypothesis import strategies as st

from kfs.format import crc
from kfs.format.crc import crc32c


@pytest.mark.parametrize("chosen", [crc._of_library, crc._chosen()])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_check_value_of_the_polynomial(
    chosen: crc._Crc, kind: type[bytes | bytearray | memoryview], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crc, "_chosen", lambda: chosen)
    assert crc32c(kind(b"123456789")) == 0xE3069283  # as catalogues of CRCs give it
    assert crc32c(kind(b"")) == 0


@given(data=st.binary(max_size=300), start=st.integers(0, 20), repeated=st.integers(1, 40))
def test_it_is_that_of_the_library(data: bytes, start: int, repeated: int) -> None:
    view = memoryview(data * repeated)[start:]
    assert crc32c(view) == of_library(view)
