"""``kfs cluster``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from kfs.cli.messages import messages, say_what_is_logged
from kfs.cli.options import json_option, max_batch_bytes_option, topic_option
from kfs.cli.tables import print_table
from kfs.internal.broker_state import BrokerState
from kfs.internal.cluster.entity_rows import Row
from kfs.internal.cluster.names import METADATA_VERSION
from kfs.internal.cluster.rows import ClusterRows
from kfs.internal.message_json import Json
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.storage import Storage


@dataclass(frozen=True, slots=True)
class _Section:
    """A list that the command can show: its rows, the columns of its table, and the table lines of a row."""

    rows: Callable[[ClusterRows], Iterable[Row]]
    columns: tuple[str, ...]
    lines: Callable[[Row], Iterator[Sequence[Json]]]


def _fields(*names: str) -> Callable[[Row], Iterator[Sequence[Json]]]:
    """Return a function that yields the named fields of a row as its only line."""

    def lines(row: Row) -> Iterator[Sequence[Json]]:
        yield [row[name] for name in names]

    return lines


def _topics(rows: ClusterRows) -> Iterator[Row]:
    found = (rows.topic(name) for name in rows.topic_names())
    return (row for row in found if row is not None)


def _only(topics: Iterable[Row], states: Sequence[str]) -> Iterator[Row]:
    """Leave of each topic the partitions that are in one of these states, and no topic without any."""
    for topic in topics:
        partitions: Any = topic["partitions"]
        found = [one for one in partitions if any(one[state] for state in states)]
        if found:
            yield {**topic, "partitions": found}


def _partition_lines(topic: Row) -> Iterator[Sequence[Json]]:
    partitions: Any = topic["partitions"]
    for one in partitions:
        fields = ("partition", "leader", "replicas", "isr", "eligibleLeaderReplicas", "leaderEpoch")
        yield [topic["topic"], topic["id"], *(one[field] for field in fields), _partition_state(one)]


def _partition_state(partition: Mapping[str, Json]) -> str:
    if partition["offline"] is None:
        return "-"
    words = {"offline": "offline", "underReplicated": "under-replicated"}
    said = [word for field, word in words.items() if partition[field]]
    if partition["addingReplicas"] or partition["removingReplicas"]:
        said.append("reassigning")
    if partition["leaderRecoveryState"] != "RECOVERED":
        said.append("recovering")
    return ",".join(said) or "ok"


def _broker_lines(broker: Row) -> Iterator[Sequence[Json]]:
    endpoints: Any = broker["endpoints"]
    where = None if endpoints is None else [f"{one['listener']}://{one['host']}:{one['port']}" for one in endpoints]
    yield [
        broker["id"],
        _broker_state(broker),
        where,
        broker["rack"],
        broker["brokerEpoch"],
        broker["incarnationId"],
        broker["logDirs"],
    ]


def _broker_state(broker: Mapping[str, Json]) -> str:
    if broker["fenced"] is None:
        return "-"
    state = "fenced" if broker["fenced"] else "active"
    return f"{state},shutting-down" if broker["inControlledShutdown"] else state


def _config_lines(config: Row) -> Iterator[Sequence[Json]]:
    value = "(hidden)" if config["sensitive"] else config["value"]
    yield [config["resourceType"], config["resourceName"] or "(default)", config["name"], value]


def _quota_lines(quota: Row) -> Iterator[Sequence[Json]]:
    entity: Any = quota["entity"]
    names = [f"{kind}={'(default)' if name is None else name}" for kind, name in entity.items()]
    yield [names, quota["key"], quota["value"]]


_SECTIONS: Final[Mapping[str, _Section]] = {
    "topics": _Section(
        _topics,
        ("TOPIC", "ID", "PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "LEADER-EPOCH", "STATE"),
        _partition_lines,
    ),
    "brokers": _Section(
        ClusterRows.brokers,
        ("BROKER", "STATE", "ENDPOINTS", "RACK", "EPOCH", "INCARNATION", "LOG-DIRS"),
        _broker_lines,
    ),
    "configs": _Section(ClusterRows.configs, ("RESOURCE", "NAME", "CONFIG", "VALUE"), _config_lines),
    "users": _Section(
        ClusterRows.users, ("USER", "MECHANISM", "ITERATIONS"), _fields("user", "mechanism", "iterations")
    ),
    "acls": _Section(
        ClusterRows.acls,
        ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN"),
        _fields("principal", "host", "permission", "operation", "resourceType", "resourceName", "patternType"),
    ),
    "quotas": _Section(ClusterRows.quotas, ("ENTITY", "QUOTA", "VALUE"), _quota_lines),
    "tokens": _Section(
        ClusterRows.tokens,
        ("TOKEN", "OWNER", "REQUESTER", "RENEWERS", "EXPIRES", "MAX-LIFETIME"),
        _fields("tokenId", "owner", "requester", "renewers", "expirationTime", "maxTime"),
    ),
    "directories": _Section(
        ClusterRows.directories,
        ("DIRECTORY", "TOPIC", "PARTITION", "KIND", "TOPIC-ID", "STATUS"),
        _fields("path", "topic", "partition", "kind", "topicId", "status"),
    ),
    "snapshots": _Section(
        ClusterRows.snapshots,
        ("SNAPSHOT", "END-OFFSET", "EPOCH", "WHOLE", "USED"),
        _fields("file", "endOffset", "leaderEpoch", "isWhole", "isUsed"),
    ),
    "problems": _Section(
        ClusterRows.problems,
        ("FILE", "POSITION", "OFFSET", "REASON"),
        _fields("file", "position", "offset", "reason"),
    ),
}
#: The lists that are complete without the metadata log.
_FROM_DIRECTORIES: Final = frozenset({"directories", "snapshots", "problems"})
#: The lists in which each ``--topic`` pattern must match a topic; the configs have topics and other resources.
_OF_TOPICS: Final = frozenset({"topics", "directories"})
_EXIT_INCOMPLETE: Final = 1
_HELP: Final = {
    "topics": "Every partition: leader, replicas, ISR, as kafka-topics --describe.",
    "brokers": "Registered brokers.",
    "configs": "The configs that were set; secrets are hidden.",
    "users": "SCRAM users: mechanism and iterations, no secrets.",
    "acls": "Access control entries.",
    "quotas": "Client quotas.",
    "tokens": "Delegation tokens, without their secrets.",
    "directories": "Partition directories here, and the topics that the metadata has for their ids.",
    "snapshots": "The metadata log's snapshots, and whether each is whole.",
    "problems": "Problems of the metadata's files, and records that weren't applied.",
}


def _section_options(command: Callable[..., None]) -> Callable[..., None]:
    for name in reversed([*_SECTIONS]):
        command = click.option(f"--{name}", f"show_{name}", is_flag=True, help=_HELP[name])(command)
    return command


#: Options that choose partitions by their state, and the field that says so.
_STATES: Final = {"under_replicated": "underReplicated", "offline": "offline"}


@click.command()
@click.argument("log_dirs", metavar="LOG_DIR...", nargs=-1, required=True, type=click.Path(readable=False))
@_section_options
@click.option("--under-replicated", is_flag=True, help="Of --topics, only partitions that lack replicas in the ISR.")
@click.option("--offline", is_flag=True, help="Of --topics, only partitions without a leader.")
@json_option("Print one JSON object a line.")
@topic_option
@max_batch_bytes_option
def cluster(
    log_dirs: tuple[str, ...], as_json: bool, topics: tuple[str, ...], max_batch_bytes: int, **wanted: bool
) -> None:
    """Show the cluster that LOG_DIR... belong to, from its metadata log and snapshots.

    Without an option, print a summary. Of several brokers' disks, kfs reads the metadata log that reaches furthest.
    If there is none (ZooKeeper, or a broker's disk without the log), it shows what the directories themselves have,
    and "-" for the rest. It never shows secrets.

    On a terminal it prints tables, elsewhere lines with tabs between the fields; see docs/CLUSTER.md.
    Exit codes: 0 all was read, 1 what was asked for isn't here, or some of the metadata log can't be read.

    \b
      kfs cluster /var/lib/kafka/data
      kfs cluster --topics --topic 'orders*' /mnt/broker1/kafka /mnt/broker2/kafka
      kfs cluster --under-replicated --offline /var/lib/kafka/data
      kfs cluster --configs --json /var/lib/kafka/data | jq 'select(.resourceType == "BROKER")'
    """
    say_what_is_logged()
    states = [field for option, field in _STATES.items() if wanted[option]]
    names = [name for name in _SECTIONS if wanted[f"show_{name}"] or (states and name == "topics")]
    if as_json and len(names) > 1:
        raise click.UsageError("--json shows one list at a time")
    data_dir = DataDir(log_dirs, Storage(max_batch_bytes=max_batch_bytes))
    rows = ClusterRows(BrokerState(data_dir).cluster)
    for name in names:
        found = _SECTIONS[name].rows(rows)
        if states and name == "topics":
            found = _only(found, states)
        _show(found, _SECTIONS[name], topic_filter(topics), as_json)
    is_incomplete = rows.is_cut_short or (rows.lacks_metadata and not _FROM_DIRECTORIES.issuperset(names))
    not_found = _not_found(rows, topics) if _OF_TOPICS.intersection(names) else []
    if not names:
        _show_summary(rows.summary(), as_json)
    for reason in rows.problem_reasons():
        messages.say(reason)
    for reason in not_found:
        messages.say(reason)
    data_dir.close()
    if is_incomplete or not_found:
        raise click.exceptions.Exit(_EXIT_INCOMPLETE)


def _not_found(rows: ClusterRows, patterns: Sequence[str]) -> list[str]:
    """Return a sentence for each pattern that no topic matches; without a metadata log, one may match elsewhere."""
    why = ": none that has a directory here" if rows.lacks_metadata else ""
    names = rows.topic_names()
    return [
        f"no topic matches {each!r}{why}" for each in patterns if not any(map(topic_filter((each,)) or bool, names))
    ]


def _show(rows: Iterable[Row], section: _Section, matches: Callable[[str], bool] | None, as_json: bool) -> None:
    found = (row for row in rows if matches is None or _is_of_topic(row, matches))
    if as_json:
        for row in found:
            click.echo(json.dumps(row, separators=(",", ":")))
        return
    lines = (line for row in found for line in section.lines(row))
    print_table(section.columns, ([_cell(value) for value in line] for line in lines))


def _is_of_topic(row: Row, matches: Callable[[str], bool]) -> bool:
    """Whether a row belongs to a topic that matches, or to no topic at all."""
    topic = row["resourceName"] if row.get("resourceType") == "TOPIC" else row.get("topic")
    return not isinstance(topic, str) or matches(topic)


def _cell(value: Json) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_cell, value)) or "-"
    return str(value)


def _show_summary(summary: Row, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(summary, separators=(",", ":")))
        return
    print_table(("CLUSTER", _cell(summary["clusterId"])), _summary_lines(summary))


def _summary_lines(summary: Any) -> Iterator[tuple[str, str]]:
    version, metadata, quorum, counts = (summary[key] for key in ("metadataVersion", "metadata", "quorum", "counts"))
    yield "known from", summary["source"]
    if metadata is not None:
        yield "directory", metadata["directory"]
        yield "snapshot", _cell(metadata["snapshot"])
        yield "offsets", f"below {metadata['endOffset']}, epoch {metadata['leaderEpoch']}, {_cell(metadata['time'])}"
        yield "committed", f"at least below {_cell(metadata['committedAtLeast'])}"
    if version is not None:
        yield "metadata version", f"{_cell(version['name'])} (level {version['level']})"
    others = [f"{name}={level}" for name, level in summary["features"].items() if name != METADATA_VERSION]
    yield "features", _cell(others)
    if quorum is not None:
        yield "quorum leader", f"{_cell(quorum['leaderId'])}, epoch {_cell(quorum['leaderEpoch'])}"
        yield "quorum voters", _cell(None if quorum["voters"] is None else [one["id"] for one in quorum["voters"]])
    yield "controllers", _cell([one["id"] for one in summary["controllers"]])
    yield "brokers", f"{_cell(counts['brokers'])}, fenced {_cell(counts['fencedBrokers'])}"
    yield "topics", f"{counts['topics']}, partitions {counts['partitions']}"
    yield "offline", f"{_cell(counts['offlinePartitions'])} partitions"
    yield "under-replicated", f"{_cell(counts['underReplicatedPartitions'])} partitions"
