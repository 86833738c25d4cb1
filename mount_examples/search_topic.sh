#!/usr/bin/env bash
# Finding messages: by text, by key, by header, by a field of their JSON, by time, and by several of these at once.
# Needs nothing but Debian and Python; sets up the rest. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh"

kfs demo data >/dev/null
mkdir mnt
kfs mount data mnt

tell "By text. Searching the segments' lines is fastest; searching the messages' files says which offset it was."
show "grep -hc 'Teapot' mnt/orders/*/segment/*.jsonl"
show "grep -rl 'Teapot' mnt/orders/2/offset | sort -V | head -3"

tell "JSON within a message is a string in its line, so its quotes have backslashes there."
show "grep -rhF '\\\"city\\\":\\\"東京\\\"' mnt/customer-profiles/0/segment | jq -r '.value | fromjson | .name' | sort -u | head -5"

tell "By key: everything that ever happened to one of them, in order."
show "cat mnt/customer-profiles/0/segment/*.jsonl | jq -c 'select(.key == \"c-00001\") | [.offset, .time, .value]'"

tell "Deleted ones: a tombstone has a key and no value."
show "cat mnt/customer-profiles/0/segment/*.jsonl | jq -r 'select(.value == null) | .key' | head -3"

tell "By header. They are a list, because a header's name may come more than once."
show "cat mnt/orders/*/segment/*.jsonl | jq -c 'select(any(.headers[]; .key == \"source\" and .value == \"call-center\")) | [.partition, .offset, .key]' | head -3"

tell "By a field of the message's own JSON."
show "cat mnt/orders/*/segment/*.jsonl | jq -c '.value | fromjson | select(.total > 700) | [.orderId, .total]' | head -5"

tell "By time: a file is dated with the time of its message."
show "find mnt/launch_info/0/offset -newermt '2020-11-27 03:00 UTC' ! -newermt '2020-11-27 04:00 UTC' | sort"

tell "Views that ls doesn't show, but that are there: the messages of an hour, and the first at or after a moment."
show "ls mnt/launch_info/0/time/2020-11-27/03"
show "cat mnt/launch_info/0/at/2020-11-27T03:00:00Z.json"

tell "All at once: shipped orders of a morning that came in by phone."
show "find mnt/orders/*/offset -newermt '2020-11-27 06:00 UTC' ! -newermt '2020-11-27 12:00 UTC' -print0 \\
    | xargs -0 grep -lF 'call-center' | xargs grep -lF 'shipped' | sort -V"
