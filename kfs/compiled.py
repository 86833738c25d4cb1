"""The choice between compiled code and its equivalent in Python.

The compiled code is used if it was built when kfs was installed, else the Python code. Both give the same results.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from kfs.errors import KfsError

#: The environment variable that forces one of the two.
IMPLEMENTATION_VARIABLE: Final = "KFS_IMPLEMENTATION"
PYTHON: Final = "python"
COMPILED: Final = "compiled"

InPython = TypeVar("InPython")
Compiled = TypeVar("Compiled")


def compiled_or_python(
    import_python: Callable[[], InPython], import_compiled: Callable[[], Compiled]
) -> InPython | Compiled:
    """Return the class or function that ``import_compiled`` imports.

    Return what ``import_python`` returns if that import fails, or if the environment variable asks for it: only one of
    the two is imported.

    Raises:
        KfsError: the environment variable asks for compiled code that wasn't built, or has an unknown value.
    """
    wanted = os.environ.get(IMPLEMENTATION_VARIABLE, "")
    if wanted not in ("", PYTHON, COMPILED):
        raise KfsError(f"{IMPLEMENTATION_VARIABLE} is {wanted!r}, expected {PYTHON} or {COMPILED}")
    if wanted == PYTHON:
        return import_python()
    try:
        return import_compiled()
    except ImportError as error:
        if wanted == COMPILED:
            raise KfsError(f"{IMPLEMENTATION_VARIABLE} is {COMPILED}, but that was not built: {error}") from None
        return import_python()
