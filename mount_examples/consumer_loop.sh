#!/usr/bin/env bash
# A consumer-style loop over a mount, with a saved position: it is killed in the middle and started again, messages are
# appended, and every one of them counts once. Needs nothing but Debian and Python; sets up the rest. Each command is
# shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh"

export store=sqlite:progress.db
cp "$root/mount_examples/consumer_loop.py" .
make_growing_topic
mkdir mnt

tell "A topic that a broker is writing, and a loop that reads it through the mount."
show "kfs mount data mnt"
show "sed -n '/^def main/,/^\$/p' consumer_loop.py"

tell "The positions are kept in SQLite, in a file beside the output. Killed in its third round, the loop stops here:"
show "python consumer_loop.py mnt/orders paid \$store 3 || echo \"killed: exit code \$?\""
show "kfs offsets show \$store data"

tell "Files of the third round were written, but nobody knows them: they don't count."
show "ls paid"
show "find paid.staging -name '*.jsonl' | wc -l"

tell "Started again, it goes on where it stopped."
show "python consumer_loop.py mnt/orders paid \$store"

tell "The broker has written more in the meantime. Another run takes only that."
append_orders
sleep 1 # a mount may be that late to see what is appended
show "python consumer_loop.py mnt/orders paid \$store"
show "kfs offsets show \$store data"

tell "Every message once: what is in the output is what kfs cat finds in one go."
show "cat paid/*.jsonl | jq -c '[.partition, .offset]' | sort >found"
show "kfs cat data orders | jq -c 'select(.value | fromjson | .status == \"paid\") | [.partition, .offset]' | sort >expected"
show "cmp found expected && wc -l <found"

tell "To do it all over from some time on: reset the positions. What is in the dataset already is never written twice."
show "kfs offsets reset \$store data --group paid-orders --to 2020-11-29 --dry-run"

show "kfs umount mnt"
