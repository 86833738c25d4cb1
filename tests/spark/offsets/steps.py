"""Every step of a job that somebody else can see: what it does to files, and what it asks of a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kfs.spark.offsets import WritableStore

Step = Callable[[str], None]
_OF_FILES = ((os, "fsync"), (os, "rename"), (os, "makedirs"), (shutil, "rmtree"), (os, "unlink"), (os, "rmdir"))


@contextmanager
def watched(store: WritableStore, at_step: Step) -> Iterator[None]:
    """Call ``at_step`` with its name before each step, and once more behind what a store is asked."""
    patches = [patch.object(module, name, _before(at_step, name, getattr(module, name))) for module, name in _OF_FILES]
    for name in ("_read", "_write"):
        patches.append(patch.object(store, name, _before(at_step, name, getattr(store, name), f"after {name}")))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _before(at_step: Step, name: str, function: Callable[..., Any], afterwards: str = "") -> Callable[..., Any]:
    def stepped(*arguments: Any, **named: Any) -> Any:
        at_step(name)
        result = function(*arguments, **named)
        if afterwards:
            at_step(afterwards)
        return result

    return stepped
