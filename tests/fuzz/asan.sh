#!/usr/bin/env bash
# Runs the fuzzer over the compiled code with AddressSanitizer and UndefinedBehaviorSanitizer in them.
#
#   tests/fuzz/asan.sh [arguments of python -m tests.fuzz]
#
# PYTHON names the interpreter, which needs kfs's dependencies, Cython and setuptools (default: the one on the PATH).
# KFS_ASAN_BUILD is a directory for the build that is kept for the next time (default: one that is thrown away).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
build=${KFS_ASAN_BUILD:-}
if [[ -z $build ]]; then
    build=$(mktemp -d)
    trap 'rm -rf "$build"' EXIT
fi

# A copy, so that the extensions in the working tree stay as they are.
mkdir -p "$build"
tar -C "$root" --exclude='*.so' --exclude='*.c' --exclude=__pycache__ -cf - kfs tests setup.py pyproject.toml README.md LICENSE |
    tar -C "$build" -xf -
sanitizers="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"
(
    cd "$build"
    CFLAGS="$sanitizers" LDFLAGS="$sanitizers" "$python" setup.py -q build_ext --inplace
)

# Python isn't built with the sanitizer, so it has to be there first; its own allocator would hide what is out of bounds.
compiler=${CC:-gcc}
preload="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
LD_PRELOAD=$preload PYTHONMALLOC=malloc PYTHONPATH=$build \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "$python" -P -m tests.fuzz "$@"
