#!/usr/bin/env bash
# Sets up what is missing, then runs the tests.
#
#   tests/run.sh [--long] [pytest arguments]
#
# --long  includes the tests that are too slow for every day.
# Tests that need FUSE, Java, PySpark, a Redis server or ZooKeeper (its jars are fetched, and need Java) are skipped
# where there is none, unless KFS_REQUIRE_FUSE=1, KFS_REQUIRE_JAVA=1, KFS_REQUIRE_PYSPARK=1, KFS_REQUIRE_REDIS=1 or
# KFS_REQUIRE_ZOOKEEPER=1 say that there has to be one. Each test process starts servers of its own on free ports, and stops them.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
selection=(-m "not long")
if [[ ${1:-} == --long ]]; then
    selection=()
    export KFS_LONG_MATRIX=1
    shift
fi
# Or each of the many processes that tests start compiles all that it imports.
unset PYTHONDONTWRITEBYTECODE

"$root/scripts/setup.sh"
cd "$root"
PATH=$root/.venv/bin:$PATH
# One more than there are CPUs: much is waited for, such as lifetimes that end and servers that come back.
exec python -m pytest -n "$(($(nproc) + 1))" --dist worksteal "${selection[@]}" "$@"
