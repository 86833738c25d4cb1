#!/usr/bin/env bash
# A streaming word count in Spark: lines that a Kafka broker writes are read from its log directory, how far the job got is
# in Redis, the counts go to another topic. It is killed in the middle and started again, and every line counts once.
# Needs nothing but Debian and Python; sets up the rest, a broker and a Redis server of its own included. Each command is
# shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh" test
# shellcheck source-path=SCRIPTDIR source=../scripts/servers.sh
source "$root/scripts/servers.sh"

configure_spark
start_redis --appendonly yes --appendfsync always --maxmemory-policy noeviction
start_broker lines=2 word-counts=1
cp "$root/mount_examples/word_count.py" .
cat "$root"/README.md "$root"/docs/*.md >text
split --number l/2 --numeric-suffixes=1 --suffix-length 1 text text.

tell "A Kafka broker and a Redis server run. The job reads the broker's log directory, which grows under it:"
job=(python word_count.py --follow broker/data counts "$redis" "$broker")
printf '\n$ %s &\n' "${job[*]}"
setsid "${job[@]}" >job.log 2>&1 &
servers+=($!)
job_group=$!

show "nl -ba -w 1 text.1 | kafka-console-producer --bootstrap-server \$broker --topic lines --reader-property parse.key=true"

tell "After its first batch it is killed, driver and executor at once."
show "until grep -q offsets job.log; do sleep 0.1; done"
show "kill -KILL -- -$job_group"
wait "$job_group" 2>/dev/null || true
show "cat job.log"

tell "Redis has where it got to; the broker goes on writing."
show "kfs offsets show \$redis broker/data --group word-count"
show "nl -ba -w 1 text.2 | kafka-console-producer --bootstrap-server \$broker --topic lines --reader-property parse.key=true"

tell "Started again, it goes on from there, now up to the end."
show "python word_count.py broker/data counts \$redis \$broker"
show "kfs offsets show \$redis broker/data --group word-count"

tell "The counts are in the broker's other topic, and kfs reads that as well: the largest number sent for a word is its total."
show "kfs cat broker/data word-counts | jq -r '[.key, .value] | @tsv' | sort -k 2 -rn | sort -su -k 1,1 >counted"
show "sort -rn -k 2 counted | head -5"

tell "Every line once: the same as sort and uniq make of the text in one go."
show "tr -cs 'A-Za-z' '\n' <text | tr A-Z a-z | grep . | sort | uniq -c | awk '{print \$2 \"\t\" \$1}' >expected"
show "LC_ALL=C sort counted | cmp - <(LC_ALL=C sort expected) && wc -l <counted"
