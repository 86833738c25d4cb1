"""``kfs`` with the steps of its commits written to a descriptor: ``python -m tests.spark.export.logged NUMBER ...``."""

from __future__ import annotations

import logging
import os
import sys

from kfs.cli.main import main

if __name__ == "__main__":
    descriptor = int(sys.argv.pop(1))
    os.set_inheritable(descriptor, False)
    handler = logging.StreamHandler(os.fdopen(descriptor, "w"))  # which flushes each line
    handler.addFilter(lambda record: record.getMessage().startswith("commit of "))
    logging.getLogger("kfs").addHandler(handler)
    logging.getLogger("kfs.spark.offsets").setLevel(logging.DEBUG)
    main(prog_name="kfs")
