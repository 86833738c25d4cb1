"""A program that mounts the toy tree, as ``kfs mount`` mounts a log directory."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from kfs.errors import KfsError, UnusableSource
from kfs.mount import mount
from kfs.tree.node import Tree
from tests.mount.toy_tree import Control, ToyTree


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("mountpoint")
    parser.add_argument("--control", type=Path, required=True)
    parser.add_argument("--front", default="auto")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--foreground", action="store_true")
    parser.add_argument("--allow-other", action="store_true")
    parser.add_argument("--log-file")
    parser.add_argument("--source", default="/data/kafka, old")
    parser.add_argument("--timeout", type=float, default=20)
    parser.add_argument("--open", choices=["unusable", "bug", "slow", "stuck"])
    given = parser.parse_args()

    def open_tree() -> Tree:
        if given.open == "unusable":
            raise UnusableSource("/data: nothing of Kafka's in it")
        if given.open == "bug":
            raise ZeroDivisionError("what a pity")
        if given.open == "slow":
            time.sleep(1.5)
        return ToyTree(Control(given.control), given.records, stuck=given.open == "stuck")

    try:
        mount(
            open_tree,
            given.mountpoint,
            source=given.source,
            front=given.front,
            foreground=given.foreground,
            allow_other=given.allow_other,
            log_file=given.log_file,
            timeout=given.timeout,
        )
    except KfsError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
