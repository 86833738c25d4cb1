#!/usr/bin/env bash
# Sets up what is missing, then runs the tests.
#
#   tests/run.sh [--long] [pytest arguments]
#
# --long  includes the tests that are too slow for every day.
# Tests whose needs this machine can't meet (without root and a Debian package, /dev/fuse, the network) are skipped, and
# the end of the run names each reason. With KFS_REQUIRE_ALL=1 they fail. Each test process starts servers of its own on
# free ports, and stops them.
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

"$root/scripts/setup.sh" test
cd "$root"
PATH=$root/.venv/bin:$PATH
python -m tests.servers.kept_classes
# One more than there are CPUs: much is waited for, such as lifetimes that end and servers that come back.
exec python -m pytest -n "$(($(nproc) + 1))" --dist worksteal "${selection[@]}" "$@"
