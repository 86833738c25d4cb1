"""Compiled code, and the same in Python: which of the two is used.

The compiled one, where it was built when kfs was installed; Python otherwise. Both do the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from kfs.errors import KfsError

#: An environment variable that insists on one of the two.
IMPLEMENTATION_VARIABLE: Final = "KFS_IMPLEMENTATION"
PYTHON: Final = "python"
COMPILED: Final = "compiled"

InPython = TypeVar("InPython")
Compiled = TypeVar("Compiled")


def compiled_or_python(in_python: InPython, import_compiled: Callable[[], Compiled]) -> InPython | Compiled:
    """Return the class or function that ``import_compiled`` imports.

    It is ``in_python`` where that fails, or the environment asks for it.

    Raises:
        KfsError: the environment asks for what there isn't.
    """
    wanted = os.environ.get(IMPLEMENTATION_VARIABLE, "")
    if wanted not in ("", PYTHON, COMPILED):
        raise KfsError(f"{IMPLEMENTATION_VARIABLE} is {wanted!r}, expected {PYTHON} or {COMPILED}")
    if wanted == PYTHON:
        return in_python
    try:
        return import_compiled()
    except ImportError as error:
        if wanted == COMPILED:
            raise KfsError(f"{IMPLEMENTATION_VARIABLE} is {COMPILED}, but that was not built: {error}") from None
        return in_python
