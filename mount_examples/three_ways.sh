#!/usr/bin/env bash
# One question to a topic, asked in three ways: of an export, with DuckDB and Spark; of Spark's data source; of Spark over a
# mount. All without a broker. Needs nothing but Debian and Python; sets up the rest. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh" test
# shellcheck source-path=SCRIPTDIR source=../scripts/servers.sh
source "$root/scripts/servers.sh"

configure_spark
make_growing_topic
cp "$root/mount_examples/three_ways.py" .
mkdir mnt
cat >revenue.sql <<'END'
copy (
    select date, count(*) as orders, round(sum((decode(value)::json ->> 'total')::double), 2) as revenue
    from read_parquet('lake/topic=*/date=*/*.parquet', hive_partitioning = true)
    where topic = 'orders' and decode(value)::json ->> 'status' = 'paid'
    group by date order by date
) to 'by-duckdb.csv'
END

tell "An export: Parquet files by topic and day, for whatever reads Parquet."
show "kfs export data lake --topic orders"
show "ls lake/topic=orders"

tell "The broker has written more. The same command again takes only that: the dataset knows how far it goes."
append_orders
show "kfs export data lake --topic orders"
show "kfs offsets show sqlite:lake/_kfs/progress.db data"

tell "A question, asked of the export with DuckDB."
show "cat revenue.sql"
show "python -c 'import duckdb; duckdb.execute(open(\"revenue.sql\").read())'"
show "cat by-duckdb.csv"

tell "The same in Spark: of Kafka's own files through the data source, of lines of JSON in a mount, and of the export."
show "kfs mount data mnt"
show "sed -n '/^def from/,/topic = /p' three_ways.py"
show "python three_ways.py data mnt lake"
show "kfs umount mnt"

tell "They all say the same."
show "for each in source mount dataset; do cmp by-duckdb.csv by-\$each.csv && echo \$each; done"
