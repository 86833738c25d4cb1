"""Recoveries that don't wait for the disk: what is looked at here is in the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kfs.recover import log_dir_recovery


@pytest.fixture(scope="module", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(log_dir_recovery, "sync_filesystem", lambda path: None)
        yield
