"""The decoder that is used, of the two there are."""

from __future__ import annotations

from functools import cache

from kfs.format.decode import BlockDecoder, PlainDecoder
from kfs.format.twins import choose_twin


@cache
def default_decoder() -> BlockDecoder:
    """Return the decoder to use; :func:`~kfs.format.twins.choose_twin` says which, and raises."""
    decoder: type[BlockDecoder] = choose_twin(PlainDecoder, _import_compiled)
    return decoder()


def _import_compiled() -> type[BlockDecoder]:
    from kfs.format.compiled_decode import CompiledDecoder

    return CompiledDecoder
