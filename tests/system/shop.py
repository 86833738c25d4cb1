"""A log directory with a bit of everything, whose every byte on a mount is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from kfs.format.codecs import Codec
from kfs.format.record import Record
from tests.system.toy_broker import ToyPartition, message

BIG: Final = 300_000
_CODECS: Final = tuple(Codec)


class Shop:
    """``root`` is the log directory.

    ``orders/0`` has three segments with every codec and two holes, one record an hour; ``orders/1`` only an
    active segment; ``photos/0`` a record of 300 KB; ``returns/0`` nothing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=toy\n")
        self.orders = ToyPartition(root, "orders")
        self.more_orders = ToyPartition(root, "orders", 1)
        self.photos = ToyPartition(root, "photos")
        self.returns = ToyPartition(root, "returns")
        self.partitions = (self.orders, self.more_orders, self.photos, self.returns)
        self._fill()

    def _fill(self) -> None:
        for number in range(24):
            offset = self.orders.next_offset
            records = [_order(at) for at in range(offset, offset + 10)]
            self.orders.append(records, _CODECS[number % len(_CODECS)])
            if number in (3, 12):
                self.orders.skip(17)
            if number in (7, 15):
                self.orders.roll()
        self.more_orders.append_messages(12)
        self.photos.append([message(0, b"small"), message(1, b"0123456789" * (BIG // 10)), message(2, b"after")])


def _order(offset: int) -> Record:
    value = None if offset % 11 == 5 else b'{"item":%d,"customer":"caf\xc3\xa9 %d"}' % (offset, offset % 7)
    headers = ((b"trace", b"%x" % offset), (b"empty", None)) if offset % 3 == 0 else ()
    return replace(message(offset, b"", headers=headers), key=b"order-%d" % offset if offset % 2 else None, value=value)
