"""``.kfs/groups/``: consumer groups, from ``__consumer_offsets`` and ``__share_group_state``.

These topics are read on demand only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import groupby

from kfs.errors import NotFound
from kfs.internal.group_json import group_json, partition_json
from kfs.internal.groups import OFFSETS_TOPIC, Group, GroupPartition
from kfs.tree.context import TreeContext, source_of, status_of
from kfs.tree.files import CostlyGeneratedFile, FixedDirectory, Link, Maker
from kfs.tree.meta_dir import json_lines
from kfs.tree.names import file_name, group_name, group_of_name, tree_name
from kfs.tree.node import Node

_JSON = ".json"
_NEXT = ".next.json"
_PROBLEMS = "problems.jsonl"


def groups_directory(context: TreeContext, path: str) -> FixedDirectory:
    """Return the directory at ``path``."""
    return FixedDirectory(context, path, source_of(context, OFFSETS_TOPIC), _GroupNames(context, path))


class _GroupNames(Mapping[str, Maker]):
    """A directory and a file for each group, and the problems of the groups' topics."""

    def __init__(self, context: TreeContext, path: str) -> None:
        self._context = context
        self._path = path

    def __getitem__(self, name: str) -> Maker:
        if name == _PROBLEMS:
            return self._problems
        groups = self._context.broker.groups
        group = group_of_name(name.removesuffix(_JSON), groups.names())
        if group is None or group not in groups:
            raise KeyError(name)
        return partial(self._file if name.endswith(_JSON) else self._directory, group)

    def __iter__(self) -> Iterator[str]:
        for group in self._context.broker.groups.names():
            name = group_name(group)
            yield name
            yield name + _JSON
        yield _PROBLEMS

    def __len__(self) -> int:
        return 2 * len(self._context.broker.groups.names()) + 1

    def _problems(self) -> Node:
        def produce() -> bytes:
            return json_lines(self._context.broker.groups.state_problems().rows())

        return _state_file(self._context, f"{self._path}/{_PROBLEMS}", produce)

    def _file(self, group: str) -> Node:
        produce = partial(_group_line, self._context, group)
        return _state_file(self._context, f"{self._path}/{group_name(group)}{_JSON}", produce)

    def _directory(self, name: str) -> Node:
        group = _group(self._context, name)
        path = f"{self._path}/{group_name(name)}"
        topics: dict[str, Maker] = {
            file_name(topic): partial(_topic_directory, self._context, f"{path}/{file_name(topic)}", name, topic)
            for topic, _ in groupby(group.partitions, key=lambda partition: partition.topic)
        }
        return FixedDirectory(self._context, path, source_of(self._context, OFFSETS_TOPIC), topics)


def _state_file(context: TreeContext, path: str, produce: Callable[[], bytes]) -> CostlyGeneratedFile:
    owner, mtime_ns = status_of(source_of(context, OFFSETS_TOPIC))
    return CostlyGeneratedFile(context, path, owner, mtime_ns, produce)


def _group(context: TreeContext, name: str) -> Group:
    group = context.broker.groups.group(name)
    if group is None:
        raise NotFound(f"no group {name!r}")
    return group


def _partition(group: Group, topic: str, number: int) -> GroupPartition:
    for partition in group.partitions:
        if (partition.topic, partition.partition) == (topic, number):
            return partition
    raise NotFound(f"group {group.name!r} has no partition {number} of {topic!r}")


def _topic_directory(context: TreeContext, path: str, name: str, topic: str) -> FixedDirectory:
    names: dict[str, Maker] = {}
    for partition in _group(context, name).partitions:
        if partition.topic == topic:
            number = partition.partition
            line = partial(_partition_line, context, name, topic, number)
            names[f"{number}{_JSON}"] = partial(_state_file, context, f"{path}/{number}{_JSON}", line)
            names[f"{number}{_NEXT}"] = partial(_next_link, context, f"{path}/{number}{_NEXT}", partition)
    return FixedDirectory(context, path, source_of(context, OFFSETS_TOPIC), names)


def _next_link(context: TreeContext, path: str, partition: GroupPartition) -> Link:
    """Return a link to the record that the group reads next: at its offset, or the first one above."""
    offset = context.broker.groups.standing(partition).next_offset
    if offset is None:
        raise NotFound(f"{path}: no record to read next")
    owner, mtime_ns = status_of(source_of(context, OFFSETS_TOPIC))
    target = f"../../../../{tree_name(partition.topic)}/{partition.partition}/offset/{offset}.json"
    return Link(context.ids.of_path(path), target, owner, mtime_ns)


def _group_line(context: TreeContext, name: str) -> bytes:
    group = _group(context, name)
    return json_lines([group_json(group, [*map(context.broker.groups.standing, group.partitions)], time.time())])


def _partition_line(context: TreeContext, name: str, topic: str, number: int) -> bytes:
    group = _group(context, name)
    partition = _partition(group, topic, number)
    return json_lines([partition_json(group, partition, context.broker.groups.standing(partition), time.time())])
