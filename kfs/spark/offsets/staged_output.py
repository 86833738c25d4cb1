"""Output in files, of which every record counts once, whenever the process that writes it is killed.

A batch goes through these steps; each is done again, or undone, by the next writer:

1. its files are written below the staging directory, and brought to the disk;
2. their names and the ranges of offsets go into the store, in one compare-and-set: from here on they are output;
3. they are renamed into the dataset, which is brought to the disk;
4. the store notes that this is done.

Who begins takes the group first, which keeps everybody else from reaching step 2. A batch in the store is then taken
through steps 3 and 4, and whatever else is staged belongs to an unknown batch, and is removed. Each writer
stages in a directory of its own, so that one which was taken over can't touch the files of the next.

Each step is logged (DEBUG) when it is done, from ``begins`` to ``done``: a process that died between these two died
inside of the commit.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote

from kfs.errors import Fenced, KfsError, OutputLost, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.log.identity import Identity
from kfs.spark.offsets.progress import ConsumedRange, Fence, PendingBatch, StagedFile
from kfs.spark.offsets.store import WritableStore
from kfs.storage.atomic_file import sync_directory

_LOG = logging.getLogger("kfs.spark.offsets")
_SUFFIX: Final = ".staging"


def range_file_name(consumed: ConsumedRange, suffix: str) -> str:
    """Return the name of the file with the records of a range: ``orders-0-<from>-<until>.jsonl``, sorted by offset."""
    return f"{consumed.topic}-{consumed.partition}-{consumed.from_offset:020d}-{consumed.until_offset:020d}{suffix}"


@dataclass(frozen=True, slots=True)
class Staging:
    """Where one writer's files are before they are output.

    It can be pickled, and used by several processes, on other machines too: the staging directory has to
    lie on the same path there.
    """

    root: str
    directory: str

    def path(self, final: str) -> str:
        """Return a path at which nothing is, for the file that will be ``final`` in the dataset."""
        return os.path.join(self.root, self.directory, f"{uuid.uuid4().hex}-{os.path.basename(final)}")

    def keep(self, path: str, final: str) -> StagedFile:
        """Bring a file that was written at :meth:`path` to the disk; return it, for :meth:`StagedOutput.commit`.

        Raises:
            Fenced: it is gone, as is what a writer has staged whose group another one took over.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_directory(os.path.dirname(path))
        except FileNotFoundError:
            raise _gone(path) from None
        return StagedFile(os.path.relpath(path, self.root), final)

    def write(self, final: str, content: Iterable[bytes]) -> StagedFile:
        """Write a file that will be ``final`` in the dataset; raise :class:`Fenced` where the directory is gone."""
        path = self.path(final)
        try:
            with open(path, "xb") as file:
                file.writelines(content)
        except FileNotFoundError:
            raise _gone(path) from None
        return self.keep(path, final)


class StagedOutput:
    """A dataset, a directory of files, and the group whose positions say what is in it.

    ::

        with StagedOutput(store, "export", "/data/orders") as output:
            while ranges := what_comes_next(output.progress.positions):
                output.commit(ranges, [output.staging.write(name, lines) for name, lines in records_of(ranges)])

    ``staging`` is the staging directory, by default beside the dataset; it has to be on the same filesystem.
    """

    def __init__(self, store: WritableStore, group: str, dataset: str, staging: str | None = None) -> None:
        """Take the group, complete what was begun, and remove what belongs to nothing.

        Raises:
            KfsError: the directories won't do, or the store can't be had.
            OutputLost: files that are part of the output are gone.
        """
        self.store = store
        self.group = group
        self.dataset = os.path.abspath(dataset)
        root = os.path.abspath(staging or self.dataset + _SUFFIX)
        self._root = os.path.join(root, quote(group, safe=" ").replace(".", "%2E"))
        self._make_directories()
        self._fence, self.progress = store.acquire(group)
        self.staging = Staging(self._root, _directory_of(self._fence))
        begun = self.progress.batch
        if begun is not None:
            self._complete(begun)
            _LOG.info("%s: completed a batch of %d files", self.dataset, len(begun.files))
        self._discard()
        make_durable_directories(os.path.join(self._root, self.staging.directory))

    def commit(
        self,
        ranges: Sequence[ConsumedRange],
        files: Sequence[StagedFile],
        identities: Mapping[TopicPartition, Identity] | None = None,
    ) -> None:
        """Make ``files``, which hold the records of ``ranges``, part of the output; move the positions over these.

        ``identities`` say which logs the new positions are of.

        Raises:
            Fenced: another writer has the group; this one has to stop.
            PositionMoved: a range doesn't begin where its partition's position is.
            StoreUnreachable: whether the files are part of the output is known when a writer begins anew.
            KfsError: there is a file of such a name in the dataset.
        """
        self._check(files)
        if files:
            _log_step(len(files), "begins")
        self.progress = self.store.save(self._fence, ranges, files, identities)
        if self.progress.batch is not None:
            self._complete(self.progress.batch)

    def check(self) -> None:
        """Raise :class:`Fenced` where another writer has the group."""
        self.store.check(self._fence)

    def clear(self) -> None:
        """Remove what this writer has staged and not committed, such as what tasks left that were done twice."""
        own = os.path.join(self._root, self.staging.directory)
        with suppress(FileNotFoundError):  # the group was taken over
            for entry in os.scandir(own):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def close(self) -> None:
        """Give the group back, unless another writer has it, and remove what is staged.

        Raises:
            StoreUnreachable: there is no answer.
        """
        progress = self.store.release(self._fence)
        # What is part of the output, and has no name yet, is left for the one who completes it.
        own = os.path.join(self.staging.directory, "")
        if progress.batch is None or not any(file.staged.startswith(own) for file in progress.batch.files):
            shutil.rmtree(os.path.join(self._root, own), ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if not isinstance(error, StoreUnreachable):  # it was asked long enough
            self.close()

    def _check(self, files: Sequence[StagedFile]) -> None:
        if len({file.final for file in files}) < len(files):
            raise KfsError(f"{self.dataset}: a batch with two files of one name")
        for file in files:
            if not os.path.lexists(os.path.join(self._root, file.staged)):
                raise _gone(os.path.join(self._root, file.staged))
            if os.path.lexists(self._final(file)):
                self.check()  # or the one who took the group over has written it
                raise KfsError(
                    f"{self._final(file)}: is there already, so these offsets were written before: "
                    "remove what belongs to them from the dataset, or set the positions behind them"
                )

    def _make_directories(self) -> None:
        for path in (self.dataset, self._root):
            try:
                make_durable_directories(path)
            except OSError as error:
                raise KfsError(f"{path}: {error.strerror}") from error
        if os.stat(self.dataset).st_dev != os.stat(self._root).st_dev:
            raise KfsError(
                f"{self._root}: lies on another filesystem than {self.dataset}, and nothing can be renamed from one to "
                "the other: name a staging directory on the same"
            )

    def _complete(self, batch: PendingBatch) -> None:
        """Give the files of a batch that is in the store their names, and tell the store."""
        count = len(batch.files)
        _log_step(count, "stored")
        directories = {os.path.dirname(self._final(file)) for file in batch.files}
        for directory in sorted(directories):
            make_durable_directories(directory)
        for file in batch.files:
            self._rename(file)
            _log_step(count, "renamed", file.final)
        for directory in sorted(directories):
            sync_directory(directory)
        _log_step(count, "synced")
        self.progress = self.store.finish(self._fence)
        _log_step(count, "done")

    def _rename(self, file: StagedFile) -> None:
        try:
            os.rename(os.path.join(self._root, file.staged), self._final(file))
        except FileNotFoundError:
            # Done before, by this writer or by the one that took the group over.
            if not os.path.lexists(self._final(file)):
                raise OutputLost(
                    f"{self._final(file)}: part of the output of group {self.group}, as {self.store.name} has it, and "
                    f"neither there nor staged in {self._root}: was the job started with another directory?"
                ) from None
        except OSError as error:
            raise KfsError(f"{self._final(file)}: {error.strerror}") from error

    def _discard(self) -> None:
        """Remove what other writers have staged, but not those that came later."""
        for name in os.listdir(self._root):
            epoch, _, _ = name.partition("-")
            if not (epoch.isdecimal() and int(epoch) > self._fence.epoch):
                shutil.rmtree(os.path.join(self._root, name), ignore_errors=True)

    def _final(self, file: StagedFile) -> str:
        return os.path.join(self.dataset, file.final)


def make_durable_directories(path: str) -> None:
    """Make a directory, and those above it, so that they are on the disk."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        os.makedirs(directory, exist_ok=True)
        sync_directory(os.path.dirname(directory))


def _directory_of(fence: Fence) -> str:
    return f"{fence.epoch:010d}-{fence.token}"


def _log_step(count: int, step: str, what: str = "") -> None:
    _LOG.debug("commit of %d files: %s %s", count, step, what)


def _gone(path: str) -> Fenced:
    return Fenced(f"{path}: is gone: another writer has taken the group over, and this one has to stop")
