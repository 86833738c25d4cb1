"""Text and numbers against what Java 17 makes of the same bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.java_text import java_double, java_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        (b"\xc3\xa9", "é"),
        (b"\xff", "?"),
        (b"\xc0\x80", "??"),
        (b"\xe2\x82", "?"),
        (b"\xe2\x41", "?A"),
        (b"\xe0\x80\x80", "???"),
        (b"\xed\xa0\x80", "?"),
        (b"\xed\xa0", "?"),
        (b"\xed\xa0A", "?A"),
        (b"\xed\xbf\xbf\xed\xa0\x80", "??"),
        (b"\xf0\x9f\x92", "?"),
        (b"\xf0\x9f\x92A", "?A"),
        (b"\xf0\x80\x80\x80", "????"),
        (b"\xf4\x90\x80\x80", "????"),
        (b"\xf5\x80", "??"),
    ],
)
def test_what_is_not_utf8_is_replaced_as_in_java(data: bytes, text: str) -> None:
    assert java_text(data) == text.replace("?", "\N{REPLACEMENT CHARACTER}")


@given(st.text())
def test_what_is_utf8_is_itself(text: str) -> None:
    assert java_text(text.encode()) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1024.0, "1024.0"),
        (0.001, "0.001"),
        (9.9e-5, "9.9E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (1e300, "1.0E300"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_can_be_read_back(value: float) -> None:
    assert float(java_double(value)) == value
