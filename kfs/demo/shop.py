"""The shop's topics: orders, visitors' clicks, customer profiles, product pictures."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Mapping
from typing import Final

from kfs.demo.compaction import compacted
from kfs.demo.people import CUSTOMERS, any_customer, customer
from kfs.demo.timeline import (
    DAY,
    FIRST_DAY,
    SECOND,
    batches_of,
    header,
    hexadecimal,
    in_segments,
    moments,
)
from kfs.demo.topic import DemoPartition, DemoTopic, Producer, Roll
from kfs.format.codecs import Codec
from kfs.format.record import Record

_GOODS: Final = (
    *(("Kaffeemühle", 89.0), ("Teapot 茶壶", 34.5), ("Crème brûlée torch", 24.9), ("Notebook A5", 6.2)),
    *(("Rain jacket", 119.0), ("Bicycle bell", 9.95), ("Světlo na kolo", 27.4), ("Desk lamp", 58.0)),
)
_EVENTS: Final = ("view", "view", "view", "view", "search", "search", "add_to_cart", "remove_from_cart", "checkout")
_PAGES: Final = ("/", "/search", "/cart", "/checkout", "/help/returns", "/product/kaffeem%C3%BChle", "/product/teapot")
_AGENTS: Final = ("Firefox/83.0", "Chrome/87.0.4280.66", "Safari/14.0.1", "shop-ios/5.12", "shop-android/5.11")


def orders() -> DemoTopic:
    """Return a topic with JSON values, keys, and tracing headers; lz4."""
    return DemoTopic("orders", "JSON, keys, trace headers; lz4", [_orders(number) for number in range(3)])


def _orders(number: int) -> DemoPartition:
    source = random.Random(f"orders {number}")
    records = []
    for offset, moment in enumerate(moments(source, 700)):
        buyer = any_customer(source)
        order_id = f"o-{number}{offset:06d}"
        lines = [(*goods, 1 + int(source.random() * 3)) for goods in source.choices(_GOODS, k=source.randint(1, 3))]
        order = {
            "orderId": order_id,
            "customer": {"id": buyer.customer_id, "name": buyer.name, "city": buyer.city},
            "lines": [{"item": item, "price": price, "quantity": quantity} for item, price, quantity in lines],
            "total": round(sum(price * quantity for _, price, quantity in lines), 2),
            "currency": "EUR",
            "status": source.choice(("created", "paid", "shipped", "delivered")),
        }
        trace = f"00-{hexadecimal(source, 32)}-{hexadecimal(source, 16)}-01"
        headers = (header("traceparent", trace), header("source", source.choice(("web", "mobile", "call-center"))))
        records.append(Record(offset, moment, order_id.encode(), _json(order), headers))
    batches = list(batches_of(source, records, 12, producer=Producer(1000 + number), codec=Codec.LZ4))
    return DemoPartition(in_segments(batches, 3, epochs=(0, 2)))


def clickstream() -> DemoTopic:
    """Return the largest topic: many small events, some of them late; zstd."""
    return DemoTopic("clickstream", "JSON, the largest, events out of order; zstd", [_clicks(n) for n in range(3)])


def _clicks(number: int) -> DemoPartition:
    source = random.Random(f"clickstream {number}")
    records = []
    for offset, moment in enumerate(moments(source, 4000)):
        agent = source.choice(_AGENTS)
        late = int(source.random() * 120 * SECOND) if agent.startswith("shop-") else 0
        visitor = any_customer(source)
        click = {
            "event": source.choice(_EVENTS),
            "page": source.choice(_PAGES),
            "session": f"{int(visitor.customer_id[2:]) * 7919 + moment // DAY:012x}",
            "visitor": visitor.customer_id,
            "country": visitor.country,
            "agent": agent,
            "milliseconds": int(source.random() ** 3 * 2000),
        }
        records.append(Record(offset, moment - late, visitor.customer_id.encode(), _json(click)))
    batches = list(batches_of(source, records, 100, producer=Producer(2000 + number), codec=Codec.ZSTD))
    return DemoPartition(in_segments(batches, 4))


def customer_profiles() -> DemoTopic:
    """Return a compacted topic: the cleaner has processed all but the last segment; gzip."""
    source = random.Random("customer-profiles")
    load = Producer(3000)  # wrote every customer once, and nothing after that
    updates = Producer(3001)
    records = []
    for offset, moment in enumerate(moments(source, 1500)):
        # The busiest customers are loaded last, so that no record of the loader's last batch survives compaction.
        number = CUSTOMERS - 1 - offset if offset < CUSTOMERS else int(source.random() ** 2 * CUSTOMERS)
        has_left = offset >= CUSTOMERS and source.random() < 0.06
        records.append(
            Record(offset, moment, f"c-{number:05d}".encode(), None if has_left else _profile(source, number))
        )
    first = batches_of(source, records[:CUSTOMERS], 25, producer=load, codec=Codec.GZIP)
    later = batches_of(source, records[CUSTOMERS:], 15, producer=updates, codec=Codec.GZIP)
    batches = [*first, *later]
    active = len(batches) * 2 // 3
    first_dirty_offset = batches[active].base_offset
    horizon = FIRST_DAY + 7 * DAY
    cleaned = in_segments(compacted(batches[:active], still_active={updates}, delete_horizon=horizon), 2)
    dirty = in_segments(batches[active:], 1, epochs=(1,))
    partition = DemoPartition([*cleaned, Roll(first_dirty_offset), *dirty], first_dirty_offset=first_dirty_offset)
    return DemoTopic("customer-profiles", "JSON by customer, compacted, tombstones; gzip", [partition])


def _profile(source: random.Random, number: int) -> bytes:
    known = customer(number)
    return _json(
        {
            "id": known.customer_id,
            "name": known.name,
            "city": known.city,
            "country": known.country,
            "newsletter": source.random() < 0.4,
            "points": int(source.random() * 5000),
        }
    )


def thumbnails() -> DemoTopic:
    """Return a topic with PNG pictures, which are binary values that any viewer can open; uncompressed."""
    source = random.Random("thumbnails")
    records = []
    for offset, moment in enumerate(moments(source, 48)):
        picture = _png(48, source.randrange(1 << 24))
        headers = (header("content-type", "image/png"), header("width", "48"))
        records.append(Record(offset, moment, f"product-{offset % 40:03d}.png".encode(), picture, headers))
    batches = list(batches_of(source, records, 3, producer=Producer(4000)))
    return DemoTopic("thumbnails", "PNG pictures, content-type headers", [DemoPartition(in_segments(batches, 2))])


def _png(side: int, colour: int) -> bytes:
    """Return a square picture with sides of ``side`` pixels: ``colour`` (24 bits RGB), shaded towards the corner."""
    red, green, blue = colour >> 16, colour >> 8 & 0xFF, colour & 0xFF
    rows = bytearray()
    for y in range(side):
        rows.append(0)  # no filter
        for x in range(side):
            light = 2 * side - x - y
            rows += bytes(channel * light // (2 * side) for channel in (red, green, blue))
    shape = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)  # 8 bits of each of three channels
    chunks = ((b"IHDR", shape), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
