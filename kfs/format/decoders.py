"""The decoder that is used, of the two there are."""

from __future__ import annotations

from functools import cache

from kfs.compiled import compiled_or_python
from kfs.format.decode import BlockDecoder, PythonDecoder


@cache
def default_decoder() -> BlockDecoder:
    """Return the decoder to use; :func:`~kfs.compiled.compiled_or_python` says which, and raises."""
    decoder: type[BlockDecoder] = compiled_or_python(PythonDecoder, _import_compiled)
    return decoder()


def _import_compiled() -> type[BlockDecoder]:
    from kfs.format.compiled_decode import CompiledDecoder

    return CompiledDecoder
