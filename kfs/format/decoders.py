"""The choice between the compiled and the Python decoder."""

from __future__ import annotations

from functools import cache

from kfs.compiled import compiled_or_python
from kfs.format.decode import BlockDecoder, PythonDecoder


@cache
def default_decoder() -> BlockDecoder:
    """Return the decoder to use; :func:`~kfs.compiled.compiled_or_python` picks it, and may raise."""
    decoder: type[BlockDecoder] = compiled_or_python(PythonDecoder, _import_compiled)
    return decoder()


def _import_compiled() -> type[BlockDecoder]:
    from kfs.format.compiled_decode import CompiledDecoder

    return CompiledDecoder
