"""Compiled code and its plain Python twin: which of the two is used.

The compiled one, where it was built when kfs was installed; the plain one otherwise. Both do the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from kfs.errors import KfsError

#: An environment variable that insists on one of the two.
DECODER_VARIABLE: Final = "KFS_DECODER"
PYTHON: Final = "python"
COMPILED: Final = "compiled"

Plain = TypeVar("Plain")
Compiled = TypeVar("Compiled")


def choose_twin(plain: Plain, import_compiled: Callable[[], Compiled]) -> Plain | Compiled:
    """Return the class or function that ``import_compiled`` imports.

    It is ``plain`` where that fails, or the environment asks for it.

    Raises:
        KfsError: the environment asks for what there isn't.
    """
    wanted = os.environ.get(DECODER_VARIABLE, "")
    if wanted not in ("", PYTHON, COMPILED):
        raise KfsError(f"{DECODER_VARIABLE} is {wanted!r}, expected {PYTHON} or {COMPILED}")
    if wanted == PYTHON:
        return plain
    try:
        return import_compiled()
    except ImportError as error:
        if wanted == COMPILED:
            raise KfsError(f"{DECODER_VARIABLE} is {COMPILED}, but that was not built: {error}") from None
        return plain
