"""The two isolation levels of a consumer; what they mean for a log is in :mod:`kfs.read.isolation`."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """``IsolationLevel.java``."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
