"""``.kfs/cluster/``: the cluster as the metadata log describes it; see :mod:`kfs.internal.cluster.rows`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from kfs.errors import NotFound
from kfs.internal.cluster.cluster import Cluster
from kfs.internal.cluster.entity_rows import Row
from kfs.internal.cluster.rows import ClusterRows
from kfs.internal.message_json import Json
from kfs.tree.context import NOBODY, Owner, TreeContext, status_of
from kfs.tree.files import FixedDirectory, GeneratedFile, Maker
from kfs.tree.meta_dir import json_lines
from kfs.tree.names import ABOUT, topic_name, tree_name

_PATH: Final = f"{ABOUT}/cluster"
_SUFFIX: Final = ".json"
_LISTS: Final[Mapping[str, Callable[[ClusterRows], Iterable[Row]]]] = {
    "brokers.jsonl": ClusterRows.brokers,
    "topics.jsonl": ClusterRows.topics,
    "configs.jsonl": ClusterRows.configs,
    "users.jsonl": ClusterRows.users,
    "acls.jsonl": ClusterRows.acls,
    "quotas.jsonl": ClusterRows.quotas,
    "tokens.jsonl": ClusterRows.tokens,
    "directories.jsonl": ClusterRows.directories,
    "snapshots.jsonl": ClusterRows.snapshots,
    "problems.jsonl": ClusterRows.problems,
}


def cluster_directory(context: TreeContext, cluster: Cluster) -> FixedDirectory:
    """Return ``.kfs/cluster``. Nothing is read before one of its files is accessed."""
    rows = ClusterRows(cluster)

    def file(name: str, produce: Callable[[], bytes]) -> GeneratedFile:
        owner, mtime_ns = _source(cluster)
        return GeneratedFile(context, f"{_PATH}/{name}", owner, mtime_ns, produce)

    def lines(make: Callable[[ClusterRows], Iterable[Row]]) -> bytes:
        return json_lines(make(rows))

    names: dict[str, Maker] = {
        "cluster.json": partial(file, "cluster.json", lambda: _document(rows.summary())),
        "topics": partial(_topics, context, rows),
    }
    names |= {name: partial(file, name, partial(lines, make)) for name, make in _LISTS.items()}
    return FixedDirectory(context, _PATH, context.data_dir.paths[0], names)


def _source(cluster: Cluster) -> tuple[Owner, int]:
    """Return the owner of the metadata log and its modification time; ``NOBODY`` and 0 if there is none."""
    log = cluster.metadata_log()
    if log is None:
        return status_of(cluster.data_dir.paths[0])
    segments = log.log.segments
    paths = [segments[-1].files.log.path] if segments else []
    paths += [snapshot.path for snapshot in log.snapshots()[:1]]
    return max(map(status_of, paths), key=lambda status: status[1], default=(NOBODY, 0))


def _document(row: Row) -> bytes:
    """Return an object as human-readable JSON: a line for each field, and for each object in a list of objects."""

    def shown(value: Json) -> str:
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
        return json.dumps(value)

    return (
        "{\n  " + ",\n  ".join(f"{json.dumps(name)}: {shown(value)}" for name, value in row.items()) + "\n}\n"
    ).encode()


def _topics(context: TreeContext, rows: ClusterRows) -> FixedDirectory:
    return FixedDirectory(context, f"{_PATH}/topics", context.data_dir.paths[0], _Topics(context, rows))


class _Topics(Mapping[str, Maker]):
    """A file for each topic; a look-up makes only that topic's."""

    def __init__(self, context: TreeContext, rows: ClusterRows) -> None:
        self._context = context
        self._rows = rows

    def __getitem__(self, name: str) -> Maker:
        topic = topic_name(name.removesuffix(_SUFFIX)) if name.endswith(_SUFFIX) else None
        if topic is None or self._rows.topic(topic) is None:
            raise KeyError(name)
        return self._maker(topic)

    def _maker(self, topic: str) -> Maker:
        def produce() -> bytes:
            row = self._rows.topic(topic)
            if row is None:
                raise NotFound(f"topic {topic} no longer exists")
            return _document(row)

        def file() -> GeneratedFile:
            owner, mtime_ns = _source(self._rows.cluster)
            path = f"{_PATH}/topics/{tree_name(topic)}{_SUFFIX}"
            return GeneratedFile(self._context, path, owner, mtime_ns, produce)

        return file

    def __iter__(self) -> Iterator[str]:
        return (f"{tree_name(topic)}{_SUFFIX}" for topic in self._rows.topic_names())

    def __len__(self) -> int:
        return len(self._rows.topic_names())
