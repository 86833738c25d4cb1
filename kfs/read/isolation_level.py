"""The two isolation levels of a consumer; :mod:`kfs.read.isolation` applies them to a log."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """The isolation level of a consumer (``IsolationLevel.java``)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
