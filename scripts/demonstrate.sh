# shellcheck shell=bash
# What the examples have in common, which source this file. It sets everything up, gives them a scratch directory that
# goes away in the end, with whatever is mounted in it and runs for it, and shows each command before running it.
#
#   source demonstrate.sh [EXTRA]      EXTRA: what scripts/setup.sh is to install
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh" "$@"
PATH=$root/.venv/bin:$PATH

scratch=$(mktemp -d "${TMPDIR:-/tmp}/kfs-example.XXXXXX")
cd "$scratch"

# Processes that end with the example.
servers=()

clean_up() {
    local mounted
    cd /
    if ((${#servers[@]})); then
        kill "${servers[@]}" 2>/dev/null || true
        wait "${servers[@]}" 2>/dev/null || true
    fi
    for mounted in "$scratch"/*; do
        if mountpoint -q "$mounted"; then kfs umount "$mounted" || umount -l "$mounted"; fi
    done
    # Never into something that is still mounted.
    rm -rf --one-file-system "$scratch"
}
trap clean_up EXIT

# Explains what comes next.
tell() { printf '\n# %s\n' "$@"; }

# Shows a command as one would type it, then runs it. In a shell of its own, where `| head` is no failure.
show() {
    printf '\n$ %s\n' "$1"
    bash -c "$1"
}

# The demo's data in data, as if a broker was still writing: orders has not got its last segments yet.
make_growing_topic() {
    local partition segments segment
    kfs demo all >/dev/null
    cp -a all data
    for partition in data/orders-*; do
        segments=("$partition"/*.log)
        segment=${segments[-1]%.log}
        rm "$segment".*
    done
}

# The broker has written these, too.
append_orders() { cp -a all/orders-* data/; }
