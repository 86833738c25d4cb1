"""Strategies for the integers of Kafka's formats, their limits included."""

from __future__ import annotations

from hypothesis import strategies as st

from kfs.format.layout import MAX_INT32, MAX_INT64

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), MAX_INT32)
int64s = st.integers(-(2**63), MAX_INT64)
offsets = st.integers(0, MAX_INT64)
