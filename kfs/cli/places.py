"""Resolves the PATHs of ``kfs cat`` to logs of topics and partitions, each with its path in the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kfs.errors import NotFound, SourceLost
from kfs.tree.names import ABOUT, topic_name, tree_name

if TYPE_CHECKING:
    from kfs.cat.records import Place
    from kfs.format.checkpoint import TopicPartition
    from kfs.log.data_dir import DataDir

_DELETED = f"{ABOUT}/deleted"


class Records(NamedTuple):
    """A topic, or one of its partitions."""

    topic: str
    partition: int | None = None


def records_at(path: str) -> Records | None:
    """Return the topic or partition that a path names; None for any other path."""
    names = [name for name in path.split("/") if name]
    topic = topic_name(names[0]) if names and names[0] != ABOUT else None
    if topic is None or len(names) > 2:
        return None
    if len(names) == 1:
        return Records(topic)
    return Records(topic, int(names[1])) if re.fullmatch(r"0|[1-9][0-9]{0,9}", names[1]) else None


def places_of(data_dir: DataDir, wanted: Sequence[Records], *, deleted: bool) -> list[Place]:
    """Return the places of the wanted records, or of all topics if none are named; with ``deleted`` also deleted ones.

    Raises:
        NotFound: a topic or partition doesn't exist.
        SourceLost: no LOG_DIR can be listed any more.
    """
    if wanted:
        return [place for each in wanted for place in _named(data_dir, each, deleted)]
    topics = set(data_dir.topics())
    if deleted:
        topics |= data_dir.deleted_topics()
    return [place for topic in sorted(topics) for place in _of(data_dir, Records(topic), deleted)]


def partitions_of(data_dir: DataDir, wanted: Sequence[Records]) -> Iterator[TopicPartition]:
    """Yield those partitions of the wanted records that exist now, or all partitions if none are named.

    Raises:
        SourceLost: no LOG_DIR can be listed any more.
    """
    from kfs.format.checkpoint import TopicPartition  # only here: paths need none

    for topic, partition in wanted or map(Records, data_dir.topics()):
        for number in data_dir.partitions(topic):
            if partition in (None, number):
                yield TopicPartition(topic, number)


def _named(data_dir: DataDir, wanted: Records, deleted: bool) -> Iterator[Place]:
    places = list(_of(data_dir, wanted, deleted))
    if not places:
        topic, partition = wanted
        raise NotFound(f"no topic {topic!r}" if partition is None else f"no partition {partition} of {topic!r}")
    yield from places


def _of(data_dir: DataDir, wanted: Records, deleted: bool) -> Iterator[Place]:
    from kfs.cat.records import Place  # only here: a file of the tree needs none
    from kfs.log.log import Log

    topic, partition = wanted
    name = tree_name(topic)
    for number in data_dir.partitions(topic) if partition is None else [partition]:
        log = data_dir.log(topic, number)
        if log is None:
            continue
        yield Place(log, f"{name}/{number}")
        if deleted:
            with suppress(SourceLost):  # reading the log itself reports it
                for part in data_dir.deleted_parts(log):
                    yield Place(part.log, f"{_DELETED}/{name}/{part.name}", part.choose)
    if deleted:
        for directory, log in data_dir.deleted(topic):
            if partition in (None, log.partition):
                yield Place(log, f"{_DELETED}/{name}/{directory}", Log.visible)
