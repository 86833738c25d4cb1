#!/usr/bin/env bash
# A first look: makes a small Kafka data directory, mounts it, and reads it with the tools that everybody knows.
# Needs nothing but Debian and Python; sets up the rest. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh"

tell "A data directory as a broker leaves it on its disk."
show "kfs demo data"

tell "Mount it. No broker is needed, and nothing is ever written to it."
show "mkdir mnt"
show "kfs mount data mnt"

tell "A directory for each topic, in it one for each partition, in it the messages."
show "ls mnt"
show "ls mnt/launch_info mnt/launch_info/0"
show "ls mnt/launch_info/0/offset | head -3"

tell "Every message is a file with one line of JSON, dated with the message's own time."
show "cat mnt/launch_info/0/offset/368776.json"
show "TZ=UTC ls -l --time-style=long-iso mnt/launch_info/0/offset/368776.json"

tell "So grep finds the messages that hold a text ..."
show "grep -rl 'Bicycle bell' mnt/orders/1/offset | head -3"

tell "... find selects them by time ..."
show "find mnt/payments/*/offset -newermt '2020-11-28 09:00 UTC' ! -newermt '2020-11-28 10:00 UTC' | sort -V"

tell "... and jq looks into them. segment/*.jsonl are the same lines, all those of a segment in one file."
show "jq -c '{key, time} + (.value | fromjson | {status, total})' mnt/orders/0/offset/7.json"
show "cat mnt/orders/*/segment/*.jsonl | jq -r '.value | fromjson | .status' | sort | uniq -c"

tell "What Kafka keeps about a log is there as well."
show "jq . mnt/launch_info/0/meta/log.json"
show "head -2 mnt/payments/0/meta/aborted-transactions.jsonl"

tell "Take it away again."
show "kfs umount mnt"
show "ls mnt | wc -l"
