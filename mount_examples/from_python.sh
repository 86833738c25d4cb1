#!/usr/bin/env bash
# Kafka's files from Python, without a mount: records as objects, and kfs:// in pandas and DuckDB.
# Needs nothing but Debian and Python; sets up the rest. Each command is shown before it runs.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../scripts/demonstrate.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/demonstrate.sh"

kfs demo data >/dev/null

tell "A record by its topic, partition and offset; and those between two times."
show "python <<'END'
import kfs

with kfs.open('data') as data:
    log = data['launch_info'][0]
    print(log.log_start_offset, log.log_end_offset, log[368776].value)
    for record in log.read(since='2020-11-27T03:00', before='2020-11-27T04:00'):
        print(record.offset, record.time.isoformat(), record.value, dict(record.headers))
END"

tell "What became of the orders: the last record of each key counts."
show "python <<'END'
import json
from collections import Counter

import kfs

with kfs.open('data') as data:
    latest = {record.key: json.loads(record.value) for record in data['orders'].read()}
    for status, orders in Counter(order['status'] for order in latest.values()).most_common():
        print(status, orders)
END"

tell "Only what a consumer at read_committed gets, and the transactions that it doesn't."
show "python <<'END'
import kfs

with kfs.open('data') as data:
    log = data['payments'][0]
    print(len(list(log)), 'records,', len(list(log.read(isolation='read_committed'))), 'of them committed')
END"

tell "The same tree as a mount shows, for everything that knows fsspec: pandas ..."
show "python <<'END'
import os

import pandas

url = f'kfs://clickstream/0/records.jsonl::file://{os.path.abspath(\"data\")}'
frame = pandas.read_json(url, lines=True)
print(frame.groupby(pandas.to_datetime(frame['time']).dt.date)['offset'].agg(['min', 'max', 'count']))
END"

tell "... and DuckDB, which asks for the files that match a pattern."
show "python <<'END'
import duckdb
import fsspec

duckdb.register_filesystem(fsspec.filesystem('kfs', log_dirs='data'))
for row in duckdb.sql('''
    select value::json->>'status' as status, count(*) as changes, round(sum((value::json->>'total')::double), 2) as total
    from read_json('kfs://orders/*/segment/*.jsonl')
    group by status order by status
''').fetchall():
    print(*row)
END"
