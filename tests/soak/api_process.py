"""Holds ``kfs.open`` open and reads what standard input asks for: a line of JSON each, answered by one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import kfs
from kfs.api.scannable import Isolation
from kfs.errors import KfsError


def main(data_directory: str) -> None:
    """Answer until there are no more questions."""
    with kfs.open(data_directory) as data:
        for line in sys.stdin:
            question = json.loads(line)
            rows: list[Any] = []
            error = None
            try:
                rows.extend(_rows(data, **question))
            except KfsError as raised:
                error = f"{type(raised).__name__}: {raised}"
            sys.stdout.write(json.dumps({"rows": rows, "error": error}) + "\n")
            sys.stdout.flush()


def _rows(data: kfs.Data, how: str, topic: str, partition: int, isolation: Isolation) -> Iterator[list[Any]]:
    log = data[topic][partition]
    if how == "read":
        for record in log.read(isolation=isolation):
            yield [record.offset, record.timestamp, _hex(record.key), _hex(record.value)]
        return
    columns = ["offset", "timestamp", "key", "value"]
    for batch in log.scan(columns=columns, isolation=isolation):
        for row in batch.to_pylist():
            yield [row["offset"], round(row["timestamp"].timestamp() * 1000), _hex(row["key"]), _hex(row["value"])]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


if __name__ == "__main__":
    main(sys.argv[1])
