"""``kfs txn``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Final

import click

from kfs.cli.messages import messages, say_what_is_logged, shown
from kfs.cli.options import json_option, max_batch_bytes_option, topic_option, until_option
from kfs.cli.state_problems import say_state_problems
from kfs.cli.tables import print_table
from kfs.errors import CorruptData
from kfs.internal.broker_state import BrokerState
from kfs.internal.hanging import Judge, TransactionVerdict
from kfs.internal.message_json import Json
from kfs.internal.transaction_json import ended_json, open_json, transactional_id_json
from kfs.internal.transaction_state import TRANSACTION_STATE_TOPIC, TransactionalIds
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.log import Log
from kfs.log.storage import Storage
from kfs.read.transactions import MAX_TRANSACTION_TIMEOUT_MS, ended_transactions, open_transactions
from kfs.render.timestamps import age_text

_EXIT_INCOMPLETE: Final = 1
_MINUTE_MS: Final = 60_000
_COLUMNS: Final = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "STATE": "state",
    "PRODUCER-ID": "producerId",
    "EPOCH": "producerEpoch",
    "START-OFFSET": "startOffset",
    "END-OFFSET": "endOffset",
    "AGE": "ageMs",
    "LSO": "lastStableOffset",
    "TRANSACTIONAL-ID": "transactionalId",
}
#: The columns if the output isn't a terminal; those for which a terminal has no room come last.
_PIPED_COLUMNS: Final = _COLUMNS | {
    "LAST-OFFSET": "lastOffset",
    "STARTED": "startTime",
    "LAST": "lastTime",
    "ENDED": "endTime",
    "COORDINATOR-EPOCH": "coordinatorEpoch",
    "COORDINATOR-STATE": "coordinatorState",
    "ABORT-COMMAND": "abortCommand",
}
_ID_COLUMNS: Final = {
    "TRANSACTIONAL-ID": "transactionalId",
    "COORDINATOR": "coordinator",
    "PRODUCER-ID": "producerId",
    "EPOCH": "producerEpoch",
    "STATE": "state",
    "TIMEOUT-MS": "timeoutMs",
    "STARTED": "startTime",
    "DURATION": "durationMs",
    "LAST-UPDATE": "lastUpdateTime",
    "PARTITIONS": "partitions",
}
_Row = dict[str, Json]


@click.command()
@click.argument("paths", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@topic_option
@click.option(
    "--all", "with_ended", is_flag=True, help="Also show committed and aborted ones: this reads the whole logs."
)
@click.option(
    "--ids", "of_ids", is_flag=True, help="Show transactional ids and their state instead, from their coordinators."
)
@json_option("One JSON object a transaction, with all fields.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(0),
    default=MAX_TRANSACTION_TIMEOUT_MS // _MINUTE_MS,
    show_default=True,
    metavar="MINUTES",
    help="The longest time that brokers let a transaction take; one idle for longer may be hanging.",
)
@click.option(
    "--bootstrap-server",
    default="localhost:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="The broker to name in the printed commands. Nothing is sent to it.",
)
@until_option("Where logs end: at their end, or the high watermark checkpoint.")
@max_batch_bytes_option
def txn(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    with_ended: bool,
    of_ids: bool,
    as_json: bool,
    max_transaction_timeout: int,
    bootstrap_server: str,
    until: str,
    max_batch_bytes: int,
) -> None:
    """Show open transactions in the partitions of LOG_DIR..., and which of them hang.

    Open transactions hold back read_committed consumers. They are listed oldest first, with their transactional
    ids if __transaction_state has them. A transaction hangs if its coordinator doesn't know it, and so never ends it:
    the rule of kafka-transactions find-hanging. kfs prints the commands that abort it. On a terminal it prints a
    table; elsewhere tabs separate the fields, and the first line names them.

    docs/TRANSACTIONS.md says what each field means.

    \b
      kfs txn /var/lib/kafka/data
      kfs txn /var/lib/kafka/data --json | jq -r 'select(.state == "hanging") | .abortCommand'
      kfs txn /var/lib/kafka/data --ids

    \b
    Exit codes: 0 all was read, 1 something is damaged, can't be read, or isn't here.
    """
    say_what_is_logged()
    storage = Storage(max_batch_bytes=max_batch_bytes)
    data_dir = DataDir(paths, storage, until_high_watermark=until == "hw")
    ids = BrokerState(data_dir).transactional_ids
    now_ms = time.time_ns() // 1_000_000
    try:
        if of_ids:
            ids.check_here()
            _print_ids(ids, now_ms, as_json=as_json)
            needs_all = True
            is_incomplete = False
        else:
            judge = Judge(ids, now_ms, max_transaction_timeout * _MINUTE_MS)
            listing = _Listing(data_dir, topics, judge, bootstrap_server, with_ended=with_ended)
            _print_transactions(listing, as_json=as_json)
            is_incomplete, needs_all = listing.is_incomplete, listing.has_unknown
        listed = ".kfs/transactions/problems.jsonl"
        is_incomplete |= needs_all and ids.state_problems().is_partial
        if say_state_problems(ids.state_problems(), listed, with_shares=needs_all) or is_incomplete:
            raise click.exceptions.Exit(_EXIT_INCOMPLETE)
    finally:
        data_dir.close()


class _Listing:
    """The requested transactions, partition by partition."""

    def __init__(
        self, data_dir: DataDir, topics: tuple[str, ...], judge: Judge, bootstrap_server: str, *, with_ended: bool
    ) -> None:
        self._data_dir = data_dir
        self._matches = topic_filter(topics)
        self._judge = judge
        self._bootstrap_server = bootstrap_server
        self._with_ended = with_ended
        self.is_incomplete = False
        #: Whether it is unknown for a transaction if it hangs, because its coordinator's log isn't here.
        self.has_unknown = False

    def rows(self) -> Iterator[_Row]:
        """Yield the transactions as JSON; a partition that vanishes meanwhile is reported and skipped."""
        for log in self._data_dir.logs():
            if self._matches is not None and not self._matches(log.topic):
                continue
            try:
                yield from self._rows_of(log)
            except CorruptData as error:
                messages.say(str(error))
                self.is_incomplete = True
            # Remote offsets can hide only transactions that have ended: producer snapshots have the open ones.
            is_harmless = log.remote is not None and not self._with_ended
            self.is_incomplete |= len(log.problems) > is_harmless

    def _rows_of(self, log: Log) -> Iterator[_Row]:
        where: _Row = {"topic": log.topic, "partition": log.partition}
        found = open_transactions(log)
        stable: _Row = {"lastStableOffset": found.last_stable_offset}
        if self._with_ended:
            for ended in ended_transactions(log):
                yield where | ended_json(ended) | stable
        for transaction in found.transactions:
            judged = self._judge.judge(log.topic_partition, transaction)
            self.has_unknown |= judged.standing is TransactionVerdict.UNKNOWN
            yield where | open_json(judged, self._bootstrap_server) | stable


def _print_transactions(listing: _Listing, *, as_json: bool) -> None:
    if as_json:
        _print_json(listing.rows())
        return
    if not sys.stdout.isatty():
        cells = ([_cell(name, row.get(name)) for name in _PIPED_COLUMNS.values()] for row in listing.rows())
        print_table(tuple(_PIPED_COLUMNS), cells)
        return
    rows = list(listing.rows())
    if not rows:
        click.echo("No transaction is open.")
        return
    print_table(tuple(_COLUMNS), ([_cell(name, row.get(name)) for name in _COLUMNS.values()] for row in rows))
    _print_advice(rows)


def _print_advice(rows: list[_Row]) -> None:
    """Print how to end hanging transactions, and why it is unknown for some whether they hang."""
    hanging = [row for row in rows if row["state"] == TransactionVerdict.HANGING]
    for heading, field in (
        ("To abort hanging transactions:", "abortCommand"),
        ("before Kafka 3.0:", "abortCommandBefore30"),
    ):
        if hanging:
            click.echo(f"\n{heading}")
        for row in hanging:
            click.echo(f"  {shown(str(row[field]))}")
    if any(row["state"] == TransactionVerdict.UNKNOWN for row in rows):
        click.echo(
            f"\nunknown: only its coordinator knows whether it hangs, and its {TRANSACTION_STATE_TOPIC} isn't here."
        )


def _print_ids(ids: TransactionalIds, now_ms: int, *, as_json: bool) -> None:
    found = (ids.get(name) for name in ids.names())
    rows = (transactional_id_json(known, now_ms) for known in found if known is not None)
    if as_json:
        _print_json(rows)
    else:
        cells = ([_cell(name, row[name]) for name in _ID_COLUMNS.values()] for row in rows)
        print_table(tuple(_ID_COLUMNS), cells)


def _print_json(rows: Iterator[_Row]) -> None:
    for row in rows:
        click.echo(json.dumps(row, separators=(",", ":")))


def _cell(name: str, value: Json) -> str | int | None:
    if name == "partitions":
        assert isinstance(value, list)
        return ",".join(f"{each['topic']}-{number}" for each in value for number in each["partitions"]) or None
    assert value is None or isinstance(value, str | int)
    return age_text(value) if name in ("ageMs", "durationMs") and isinstance(value, int) else value
