"""``kfs export`` under ``spark-submit``, with the same arguments."""

from __future__ import annotations

import sys

from kfs.cli.main import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
