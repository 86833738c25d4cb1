"""CRC-32C, which covers record batches (v2) and producer snapshots."""

from __future__ import annotations


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``."""
    # Only here: the library takes as long to be imported as all of kfs.format, and what is read in bulk, with the
    # compiled decoder, doesn't need it.
    from crc32c import crc32c

    return int(crc32c(data))
