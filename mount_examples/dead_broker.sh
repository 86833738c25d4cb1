#!/usr/bin/env bash
# A broker is gone, and this is a copy of its disk, not in the best state: what is on it, what is broken, what can be
# saved. Needs nothing but Debian and Python; sets up the rest. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh"

# What the crash did: no clean-shutdown marker, a byte changed in the middle of one log, the end of another torn off.
make_broken_disk() {
    kfs demo disk >/dev/null
    rm disk/.kafka_cleanshutdown
    local logs=(disk/orders-1/*.log)
    printf '\377' | dd of="${logs[1]}" bs=1 seek=20000 conv=notrunc status=none
    logs=(disk/clickstream-0/*.log)
    truncate -s -100 "${logs[-1]}"
}

fingerprint() { (cd disk && find . -type f -exec sha256sum {} + | sort | sha256sum); }

make_broken_disk
before=$(fingerprint)
mkdir mnt saved

tell "The disk is only ever read: mount it."
show "kfs mount disk mnt"
show "jq . mnt/.kfs/log-dirs.jsonl"

tell "How far does each log go, and how far had the broker promised (the high watermark)?"
show "cat mnt/*/*/meta/log.json | jq -r '[\"\\(.topic)-\\(.partition)\", .logStartOffset, .logEndOffset, .highWatermarkCheckpoint] | @tsv'"

tell "clickstream-0 ends before its high watermark: its last batch is torn. The others are whole, by their headers. Are they?"
show "cat mnt/*/*/segment/*.jsonl > /dev/null || echo 'not all could be read'"

tell "One batch cannot be read. Where, and why:"
show "cat mnt/*/*/meta/problems.jsonl | jq ."

tell "Everything else can. Mounted with --on-damage skip, lines that are lost are left out; then cp takes all the rest."
show "kfs umount mnt"
show "kfs mount --on-damage skip disk mnt"
# shellcheck disable=SC2016
show 'cd mnt && for partition in */*; do
    mkdir -p "../saved/$partition"
    cp "$partition/records.jsonl" "$partition/meta/problems.jsonl" "../saved/$partition/"
done'
show "cat saved/*/*/records.jsonl | wc -l"
show "cat saved/*/*/problems.jsonl | wc -l"

tell "Which offsets are lost? Those that are missing between the first and the last."
show "jq .offset saved/orders/1/records.jsonl | awk 'NR > 1 && \$1 != last + 1 { print last + 1 \" to \" \$1 - 1 } { last = \$1 }'"

tell "And the disk is as it was."
show "kfs umount mnt"
[[ $(fingerprint) == "$before" ]]
echo "nothing on it has changed"
