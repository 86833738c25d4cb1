from array import array
from collections.abc import Sequence

def compiled_fields(
    buffer: bytes, starts: array[int], lengths: array[int], indexes: Sequence[int], delimiter: bytes | None
) -> bytes: ...
