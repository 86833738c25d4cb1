#!/usr/bin/env bash
# A job that was written for Spark's Kafka source, moved to kfs by one word: batch and stream, with the checkpoint it has.
# Needs nothing but Debian and Python; sets up the rest, a broker of its own included. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh" test
# shellcheck source-path=SCRIPTDIR source=../scripts/servers.sh
source "$root/scripts/servers.sh"

# Sends some of the demo's orders to the broker.
send_orders() {
    kfs cat demo orders "$@" | jq -r '[.key, .value] | join("\t")' |
        kafka-console-producer --bootstrap-server "$broker" --topic orders --reader-property parse.key=true
}

configure_spark
start_broker orders=3
kfs demo demo >/dev/null
send_orders --before 2020-11-28
cp "$root/mount_examples/kafka_job.py" .

tell "A Kafka broker runs, and a job for it: a stream into an archive, and a report, a batch."
show "sed -n '/^def orders/,/^    )/p' kafka_job.py"
show "python kafka_job.py \$broker out"
show "cat out/archive/*.json | wc -l"
show "head -4 out/report/*.csv"
cat out/report/*.csv >by-kafka.csv

tell "The same job for kfs: one word, and where the broker has its files. The broker isn't asked any more."
show "sed -e 's/\"kafka\"/\"kfs\"/' -e 's|load()|load(\"broker/data\")|' kafka_job.py >kfs_job.py"
show "diff kafka_job.py kfs_job.py || true"
show "python kfs_job.py \$broker out"

tell "The report is the same. The archive is, too: the stream went on from Kafka's checkpoint, and nothing was new."
show "cmp by-kafka.csv out/report/*.csv && cat out/archive/*.json | wc -l"

tell "More orders come. Then the broker dies, and its disk is all there is."
send_orders --since 2020-11-28
show "kill $broker_process"
wait "$broker_process" 2>/dev/null || true
show "python kfs_job.py \$broker out"

tell "Each order is in the archive, and once."
show "cat out/archive/*.json | wc -l"
show "jq -c '[.partition, .offset]' out/archive/*.json | sort | uniq -d | wc -l"
