"""The view over everything that LOG_DIR arguments name, as topics and partitions."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kfs.errors import CorruptData, SourceLost, UnusableSource
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.uuid import Uuid
from kfs.log.directory_name import LEGAL_TOPIC, DirectoryKind, DirectoryName, parse_directory_name
from kfs.log.log import Log
from kfs.log.log_dir import CHECKPOINTS, LogDir, is_log_dir
from kfs.log.log_segments import LOOK_AGAIN_SECONDS
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import PARTITION_METADATA, PartitionDirectory
from kfs.log.problem import Problem, ProblemKind, Problems
from kfs.log.storage import Storage
from kfs.storage.listing import list_directory, list_names
from kfs.storage.side_file import read_side_file
from kfs.storage.status import PathKind, is_there, kind_at, status_at

if TYPE_CHECKING:
    from kfs.log.completion import Healed
    from kfs.log.remote_offsets import Tier
    from kfs.log.segment_files import SegmentKey
    from kfs.log.topic_ids import TopicIds

_SEGMENT = re.compile(r"[0-9]{20}\.(log|index|timeindex)(\.swap|\.deleted|\.cleaned)?\Z")
#: Of how many removed partitions to know that the next one at the path is another.
_REMOVED_KEPT = 10_000


class DeletedPart(NamedTuple):
    """What was deleted of a partition, its name in the topic's directory, and the function that returns its offsets."""

    name: str
    log: Log
    choose: Callable[[Log], OffsetRange]


@dataclass(slots=True)
class _Partitions:
    """What is on disk at one moment: copies by partition, sorted partitions by sorted topic, deleted partitions.

    ``directories`` lists all partition directories.
    """

    directories: list[PartitionDirectory] = field(default_factory=list)
    copies: dict[tuple[str, int], list[PartitionDirectory]] = field(default_factory=lambda: defaultdict(list))
    topics: dict[str, list[int]] = field(default_factory=dict)
    deleted: dict[tuple[str, str], PartitionDirectory] = field(default_factory=dict)


class _OtherCopies(NamedTuple):
    """The :class:`~kfs.log.completion.OtherCopies` of a directory."""

    directory: PartitionDirectory
    others: Callable[[], Sequence[PartitionDirectory]]

    def healed(self, storage: Storage) -> dict[SegmentKey, Healed]:
        from kfs.log.healing import Healer  # only here: most logs have lost nothing

        return Healer(self.directory, self.others).healed(storage)


class DataDir:
    """One or several ``log.dirs``, single partition directories, or loose ``.log`` files, as one view.

    Opening it lists directories and reads no log data. If a partition has several copies, the one with the highest last
    leader epoch is served, and among these the one with the highest log end offset. The other copies are
    :meth:`replicas`. What one copy has lost is read from another copy of the same history. A directory whose topic id
    differs from the topic's is no copy: it is left over from an older topic of the same name.

    ``topic_ids`` may be set later. It returns an object that knows more than directory names tell, and is called only
    if a directory needs it.
    """

    def __init__(
        self,
        paths: Sequence[str],
        storage: Storage,
        *,
        until_high_watermark: bool = False,
        topic_filter: Callable[[str], bool] | None = None,
        heals: bool = True,
    ) -> None:
        """Open the paths; show only topics that ``topic_filter`` accepts.

        With ``heals``, what one copy of a partition has lost is read from another copy of the same history.

        Raises:
            UnusableSource: a path is missing, unreadable, or holds nothing of Kafka's.
        """
        self.paths = [os.path.abspath(path) for path in paths]
        self.storage = storage
        self.until_high_watermark = until_high_watermark
        #: The moment that is shown if it is frozen, in milliseconds since 1970: see :meth:`freeze`.
        self.frozen_ms: int | None = None
        self._topic_filter = topic_filter
        self._heals = heals
        self.topic_ids: Callable[[], TopicIds] | None = None
        self.problems = Problems(counts=storage.problems)
        self.log_dirs: list[LogDir] = []
        self._single: list[PartitionDirectory] = []
        loose: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            self._add_source(path, loose)
        for parent, files in loose.items():
            self._single.append(_loose_partition(parent, files))
        self._logs: dict[str, Log] = {}
        #: The paths of partitions that were there before and were removed.
        self._removed: dict[str, bool] = {}
        self._found = _Partitions()
        self._looked = -1.0
        self._looking = threading.Lock()
        self._names: dict[LogDir, tuple[int, list[tuple[str, DirectoryName]]]] = {}
        #: Sources that currently can't be listed: the reason, by path.
        self._lost: dict[str, str] = {}

    def _add_source(self, path: str, loose: dict[str, list[str]]) -> None:
        if kind_at(path) is PathKind.FILE:
            if ".log" not in os.path.basename(path):
                raise UnusableSource(f"{path}: not a directory, and not a .log file")
            loose[os.path.dirname(path)].append(path)
            return
        try:
            names = list_names(path)
        except OSError as error:
            raise UnusableSource(f"{path}: {error.strerror}") from None
        parsed = parse_directory_name(os.path.basename(path))
        if any(_SEGMENT.match(name) for name in names) or (parsed is not None and not is_log_dir(path, names)):
            parent = os.path.dirname(path)
            log_dir = LogDir(parent, self.problems) if _has_checkpoints(parent) else None
            name = parsed or DirectoryName(os.path.basename(path) or "log", 0)
            self._single.append(PartitionDirectory(path, name, log_dir, is_source=True))
        elif is_log_dir(path, names):
            self.log_dirs.append(LogDir(path, self.problems))
        else:
            raise UnusableSource(f"{path}: neither a Kafka log directory nor a partition directory: no segments in it")

    def freeze(self) -> None:
        """Show only what is there now, from now on: the partitions, and their logs from start to end.

        There is no instant that all partitions share: they are looked at one after another. Deleted segments, records
        and topics aren't frozen.

        Raises:
            SourceLost: no source can be listed any more.
        """
        found = self._partitions()
        for log_dir in {each.log_dir for each in found.directories} - {None} | set(self.log_dirs):
            if log_dir is not None:
                log_dir.freeze()
        for copies in found.copies.values():
            for directory in copies:
                self._log_of(directory).freeze()
        self.frozen_ms = time.time_ns() // 1_000_000

    @property
    def is_frozen(self) -> bool:
        """Whether only what was there at one moment is shown."""
        return self.frozen_ms is not None

    # -- partitions

    def topics(self) -> list[str]:
        """The topics that have at least one partition here, sorted.

        Like every method that lists partitions, it raises :class:`SourceLost` if no source can be listed any more. If
        only some sources can't be listed, they keep the partitions last seen, and the logs of those partitions raise
        it.
        """
        return list(self._partitions().topics)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, sorted; empty for an unknown one."""
        return self._partitions().topics.get(topic, [])

    def known_numbers(self) -> tuple[int, int]:
        """Return how many topics and partitions there were when last listed; only if nobody listed them, list them."""
        if self._looked < 0:
            with suppress(SourceLost):
                self._partitions()
        return len(self._found.topics), len(self._found.copies)

    def log(self, topic: str, partition: int) -> Log | None:
        """Return the served copy of a partition, or None if there is none."""
        copies = self._partitions().copies.get((topic, partition))
        return self._log_of(self._served(copies)) if copies else None

    def directory(self, topic: str, partition: int) -> PartitionDirectory | None:
        """Return the directory of :meth:`log`, without a log if there is only one copy."""
        copies = self._partitions().copies.get((topic, partition))
        return self._served(copies) if copies else None

    def replicas(self, topic: str | None = None) -> Iterator[tuple[str, Log]]:
        """Yield the copies that aren't served, of one topic or all, with names like ``0.<hex>-future`` or ``0@<n>``."""
        for (of_topic, _), copies in list(self._partitions().copies.items()):
            if len(copies) < 2 or topic not in (None, of_topic):
                continue
            served = self._served(copies)
            for directory in copies:
                if directory != served:
                    yield self._copy_name(directory), self._log_of(directory)

    def copies(self) -> Iterator[list[Log]]:
        """Yield all copies of each partition, by topic and partition; :meth:`Log.standing` picks the served one."""
        for _, copies in sorted(self._partitions().copies.items()):
            yield [self._log_of(directory) for directory in copies]

    def other_copies(self, directory: PartitionDirectory) -> list[PartitionDirectory]:
        """Return the directories with other copies of the same partition and topic; none for a deleted partition."""
        copies = self._found.copies.get((directory.name.topic, directory.name.partition), [])
        if len(copies) < 2 or directory not in copies:
            return []
        older = self._of_older_topics(copies)
        return [other for other in copies if other != directory and other not in older and other.is_whole]

    def copies_of(self, log: Log) -> list[Log]:
        """Return the other copies of the partition of ``log``."""
        return [self._log_of(other) for other in self.other_copies(log.directory)]

    def _copy_name(self, directory: PartitionDirectory) -> str:
        name = directory.name
        if name.unique_id:
            return f"{name.partition}.{name.unique_id}-{name.kind}"
        if directory.log_dir in self.log_dirs:
            return f"{name.partition}@{self.log_dirs.index(directory.log_dir)}"
        return f"{name.partition}@{len(self.log_dirs) + self._single.index(directory)}"

    def directories(self) -> list[PartitionDirectory]:
        """Return the directories of all partitions, deleted ones included, under the topics that they are shown as."""
        return list(self._partitions().directories)

    def deleted(self, topic: str | None = None) -> Iterator[tuple[str, Log]]:
        """Yield the partitions of deleted topics, of one or all, each with the rest of its name: ``0.<hex>-delete``."""
        for (of_topic, name), directory in sorted(self._partitions().deleted.items()):
            if topic in (None, of_topic):
                yield name, self._log_of(directory)

    def deleted_parts(self, log: Log) -> Iterator[DeletedPart]:
        """Yield what was deleted of a partition and is still on the disk.

        The records below the log start offset have the partition's name (``0``), deleted segments ``0.deleted``.
        """
        below = log.deleted()
        if below.start < below.end:
            yield DeletedPart(str(log.partition), log, Log.deleted)
        segments = self.deleted_segments(log)
        if segments is not None:
            yield DeletedPart(f"{log.partition}.deleted", segments, Log.visible)

    def deleted_segments(self, log: Log) -> Log | None:
        """Return the deleted segments of ``log`` that are still on disk, as a log of their own; None if there are none.

        Retention and compaction rename them to ``.deleted``, and remove them after ``file.delete.delay.ms``.
        """
        _ = log.segments
        if not log.files.deleted:
            return None
        directory = PartitionDirectory(log.directory.path, log.directory.name, None, is_of_deleted=True)
        deleted = self._log_of(directory, f"{log.directory.path}.deleted")
        if not deleted.segments:
            deleted.look_again()  # it was listed after the last ones were removed, and before these were renamed
        return deleted

    def deleted_topics(self) -> set[str]:
        """The topics of :meth:`deleted`."""
        return {topic for topic, _ in self._partitions().deleted}

    def logs(self) -> Iterator[Log]:
        """Yield the served copy of every partition, by topic and partition."""
        for topic, partition in sorted(self._partitions().copies):
            log = self.log(topic, partition)
            if log is not None:
                yield log

    def _served(self, copies: list[PartitionDirectory]) -> PartitionDirectory:
        if len(copies) == 1:
            return copies[0]
        older = self._of_older_topics(copies)
        candidates = [directory for directory in copies if directory not in older] or copies
        logs = [self._log_of(directory) for directory in candidates]
        best = max([log for log in logs if log.can_be_listed] or logs[:1], key=Log.standing)
        others = ", ".join(directory.path for directory in copies if directory != best.directory)
        reason = f"{best.topic_partition} has several copies; this one is served, not {others}"
        self.problems.add(Problem(best.directory.path, 0, 0, reason), is_settled=True)
        return best.directory

    def _log_of(self, directory: PartitionDirectory, key: str | None = None) -> Log:
        if key is None:
            key = directory.path if not directory.loose else directory.loose[0]
        log = self._logs.get(key)
        if log is None or (log.directory.loose, log.directory.name) != (directory.loose, directory.name):
            self._logs.pop(key, None)
            heals = self._heals and directory.is_whole
            made = Log(
                directory,
                self.storage,
                until_high_watermark=self.until_high_watermark,
                tier=self._tier_of,
                copies=_OtherCopies(directory, partial(self.other_copies, directory)) if heals else None,
            )
            log = self._logs.setdefault(key, made)
            if self._removed.pop(directory.path, False):
                log.changes.tell_recreated()
        return log

    def _tier_of(self, directory: PartitionDirectory) -> Tier:
        """Return what is known about tiered storage of a directory's topic."""
        from kfs.log.remote_offsets import REMOTE_LOG_INDEX_CACHE, Tier  # only here: few logs lack offsets

        if self.topic_ids is not None:
            is_tiered = self.topic_ids().is_tiered(directory.name.topic, directory.log_dir)
            if is_tiered is not None:
                return Tier.TOPIC if is_tiered else Tier.NONE
        log_dirs = {log_dir.path for log_dir in (*self.log_dirs, directory.log_dir) if log_dir is not None}
        has_cache = any(kind_at(os.path.join(path, REMOTE_LOG_INDEX_CACHE)) is PathKind.DIRECTORY for path in log_dirs)
        return Tier.BROKER if has_cache else Tier.UNKNOWN

    # -- the disk

    def _partitions(self) -> _Partitions:
        if self.frozen_ms is not None or (self._looked >= 0 and time.monotonic() - self._looked < LOOK_AGAIN_SECONDS):
            return self._found
        with self._looking:
            if self._looked >= 0 and time.monotonic() - self._looked < LOOK_AGAIN_SECONDS:
                return self._found
            changed = [self._list_names(log_dir) for log_dir in self.log_dirs]
            for directory in self._single:
                self._look_at(directory)
            self._check_not_all_lost()
            if any(changed) or not self._found.copies:
                self._found = self._collect()
            self._looked = time.monotonic()
            return self._found

    def _list_names(self, log_dir: LogDir) -> bool:
        """List one log directory if it has changed; return whether its partitions may have changed.

        A directory that can't be listed keeps its known partitions, so that reads of them fail instead of finding
        nothing.
        """
        known = self._names.get(log_dir)
        try:
            mtime_ns = status_at(log_dir.path).mtime_ns
            if known is not None and known[0] == mtime_ns and time.time_ns() - mtime_ns > 1_000_000_000:
                return False
            names, files = [], []
            for found in list_directory(log_dir.path):
                name = parse_directory_name(found.name)
                if name is not None and found.kind.may_be_directory:
                    names.append((found.path, name))
                else:
                    files.append(found.name)
            if not names:
                log_dir.check_is_there(files)
        except OSError as error:
            return self._lose(log_dir, f"{log_dir.path}: can't be listed: {error.strerror}")
        except SourceLost as error:
            return self._lose(log_dir, str(error))
        self._find(log_dir.path)
        self._names[log_dir] = (mtime_ns, sorted(names, key=lambda pair: pair[0]))
        return True

    def _lose(self, log_dir: LogDir, reason: str) -> bool:
        self._lost[log_dir.path] = reason
        told = reason.removeprefix(f"{log_dir.path}: ")
        self.problems.add(Problem(log_dir.path, 0, 0, told, ProblemKind.SOURCE_LOST))
        known = self._names.get(log_dir)
        self._names[log_dir] = (-1, known[1] if known is not None else [])
        return known is None

    def _find(self, path: str) -> None:
        if self._lost.pop(path, None) is not None:
            self.problems.forget_file(path)

    def _look_at(self, directory: PartitionDirectory) -> None:
        """Check whether a partition directory that was passed as a path still exists."""
        try:
            status_at(directory.path)
        except OSError as error:
            reason = f"can't be listed: {error.strerror}"
            self._lost[directory.path] = f"{directory.path}: {reason}"
            self.problems.add(Problem(directory.path, 0, 0, reason, ProblemKind.SOURCE_LOST))
        else:
            self._find(directory.path)

    def _check_not_all_lost(self) -> None:
        sources = [log_dir.path for log_dir in self.log_dirs] + [directory.path for directory in self._single]
        if self._lost and all(path in self._lost for path in sources):
            raise SourceLost("; ".join(self._lost.values()))

    def _collect(self) -> _Partitions:
        found = _Partitions()
        directories = [
            self._named(PartitionDirectory(path, name, log_dir))
            for log_dir in self.log_dirs
            for path, name in self._names[log_dir][1]
        ]
        found.directories = directories + self._single
        for directory in found.directories:
            name = directory.name
            if self._topic_filter is not None and not self._topic_filter(name.topic):
                continue
            if directory.is_deleted and directory not in self._single:
                found.deleted[name.topic, f"{name.partition}.{name.unique_id}-{name.kind}"] = directory
            else:
                found.copies[name.topic, name.partition].append(directory)
        self._set_strays_aside(found)
        for topic, partition in sorted(found.copies):
            found.topics.setdefault(topic, []).append(partition)
        alive = {directory.path for directory in directories} | {directory.path for directory in self._single}
        for key, log in list(self._logs.items()):  # other threads may add entries meanwhile
            if log.directory.path not in alive:
                self._logs.pop(key, None)
                log.changes.tell_removed()
                log.changes.be_silent()
                self._removed[log.directory.path] = True
                if len(self._removed) > _REMOVED_KEPT:
                    del self._removed[next(iter(self._removed))]
        return found

    # -- older topics of the same name, and truncated names

    def _named(self, directory: PartitionDirectory) -> PartitionDirectory:
        """Return the directory under its topic's full name, if the name was truncated and the full one is known."""
        if self.topic_ids is None or not directory.name.may_be_truncated:
            return directory
        topic_id = self._topic_id_of(directory)
        topic = None if topic_id is None else self.topic_ids().topic_name(topic_id)
        if topic is None or not topic.startswith(directory.name.topic):
            return directory
        return replace(directory, name=replace(directory.name, topic=topic))

    def _set_strays_aside(self, found: _Partitions) -> None:
        """Move strays of an older topic from the copies to the deleted partitions."""
        for (topic, partition), copies in list(found.copies.items()):
            if any(directory.name.kind is DirectoryKind.STRAY for directory in copies):
                older = self._of_older_topics(copies)
                for directory in older:
                    name = directory.name
                    if name.unique_id:
                        copies.remove(directory)
                        found.deleted[topic, f"{partition}.{name.unique_id}-{name.kind}"] = directory
                if not copies:
                    del found.copies[topic, partition]

    def _of_older_topics(self, copies: list[PartitionDirectory]) -> list[PartitionDirectory]:
        """Return the directories whose topic id isn't the topic's current id; empty if the current id is unknown."""
        ids = [self._topic_id_of(directory) for directory in copies]
        is_stray = any(directory.name.kind is DirectoryKind.STRAY for directory in copies)
        wanted = self._topic_id(copies, ids) if is_stray or len({*ids} - {None}) > 1 else None
        if wanted is None:
            return []
        older = [(directory, has) for directory, has in zip(copies, ids, strict=True) if has not in (None, wanted)]
        for directory, has in older:
            reason = f"of an older topic {directory.name.topic} with id {has}; the topic's id is now {wanted}"
            self.problems.add(Problem(os.path.join(directory.path, PARTITION_METADATA), 0, 0, reason))
        return [directory for directory, _ in older]

    def _topic_id(self, copies: list[PartitionDirectory], ids: list[Uuid | None]) -> Uuid | None:
        """Return the topic's id: the one in the cluster metadata, else the one that all directories in use agree on."""
        if self.topic_ids is not None:
            known = self.topic_ids()
            for directory in copies:
                topic_id = known.topic_id(directory.name.topic, directory.log_dir)
                if topic_id is not None:
                    return topic_id
        in_use = {
            has
            for directory, has in zip(copies, ids, strict=True)
            if directory.name.kind is not DirectoryKind.STRAY and has is not None
        }
        return in_use.pop() if len(in_use) == 1 else None

    def _topic_id_of(self, directory: PartitionDirectory) -> Uuid | None:
        try:
            path = os.path.join(directory.path, PARTITION_METADATA)
            metadata = read_side_file(path, parse_partition_metadata)
        except CorruptData as error:
            self.problems.add_error(error)
            return None
        return None if metadata is None else metadata.topic_id

    def close(self) -> None:
        """Close descriptors and maps."""
        self._logs.clear()
        self.storage.close()


def _has_checkpoints(path: str) -> bool:
    return any(is_there(os.path.join(path, name)) for name in CHECKPOINTS)


def _loose_partition(parent: str, files: list[str]) -> PartitionDirectory:
    """Return loose files of one directory as a partition, named after the directory if that has a partition's name."""
    base = os.path.basename(parent)
    name = parse_directory_name(base)
    if name is None:
        name = DirectoryName(base if LEGAL_TOPIC.match(base) else "log", 0)
    return PartitionDirectory(parent, name, None, tuple(sorted(set(files))))
