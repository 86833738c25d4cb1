"""Output files with exactly-once records, even if the writing process is killed at any time.

A batch goes through these steps; the next writer repeats or undoes an interrupted one:

1. its files are written below the staging directory and synced to disk;
2. their names and the ranges of offsets are stored in one compare-and-set: from here on they are output;
3. they are renamed into the dataset, which is synced to disk;
4. the store notes that this is done.

A writer first acquires the group, which keeps all others from reaching step 2. It takes a batch in the store through
steps 3 and 4; all other staged files belong to unknown batches, and it removes them. Each writer stages in its own
directory, so that a fenced one can't touch the files of the next.

Each step is logged (DEBUG) when it is done, from ``begins`` to ``done``: a process that died between these two died
during the commit.
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
    """The place of one writer's files before they are output.

    It can be pickled and used by several processes, also on other machines if the staging directory has the same path
    there.
    """

    root: str
    directory: str

    def path(self, final: str) -> str:
        """Return an unused path for the file that will be ``final`` in the dataset."""
        return os.path.join(self.root, self.directory, f"{uuid.uuid4().hex}-{os.path.basename(final)}")

    def keep(self, path: str, final: str) -> StagedFile:
        """Sync a file written at :meth:`path` to disk; return it, for :meth:`StagedOutput.commit`.

        Raises:
            Fenced: it is gone, like all staged files of a writer whose group another one took over.
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
        """Write a file that will be ``final`` in the dataset; raise :class:`Fenced` if the directory is gone."""
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
        """Acquire the group, complete a batch in the store, and remove other staged files.

        Raises:
            KfsError: the directories are unusable, or the store is unavailable.
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

        ``identities`` are those of the new positions' logs.

        Raises:
            Fenced: another writer has the group; this process must stop.
            PositionMoved: a range doesn't begin at its partition's position.
            StoreUnreachable: the next writer to start learns whether the files are part of the output.
            KfsError: the dataset already has a file of such a name.
        """
        self._check(files)
        if files:
            _log_step(len(files), "begins")
        self.progress = self.store.save(self._fence, ranges, files, identities)
        if self.progress.batch is not None:
            self._complete(self.progress.batch)

    def check(self) -> None:
        """Raise :class:`Fenced` if another writer has the group."""
        self.store.check(self._fence)

    def clear(self) -> None:
        """Remove this writer's uncommitted staged files, such as those of tasks that ran twice."""
        own = os.path.join(self._root, self.staging.directory)
        with suppress(FileNotFoundError):  # the group was taken over
            for entry in os.scandir(own):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def close(self) -> None:
        """Release the group, unless another writer has it, and remove staged files.

        Raises:
            StoreUnreachable: the store doesn't answer.
        """
        progress = self.store.release(self._fence)
        # Files of the output that have no final name yet are left for the next writer to complete.
        own = os.path.join(self.staging.directory, "")
        if progress.batch is None or not any(file.staged.startswith(own) for file in progress.batch.files):
            shutil.rmtree(os.path.join(self._root, own), ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if not isinstance(error, StoreUnreachable):  # it was retried long enough
            self.close()

    def _check(self, files: Sequence[StagedFile]) -> None:
        if len({file.final for file in files}) < len(files):
            raise KfsError(f"{self.dataset}: a batch with two files of one name")
        for file in files:
            if not os.path.lexists(os.path.join(self._root, file.staged)):
                raise _gone(os.path.join(self._root, file.staged))
            if os.path.lexists(self._final(file)):
                self.check()  # or the writer that took the group over has written it
                raise KfsError(
                    f"{self._final(file)}: already exists, so these offsets were written before: "
                    "remove their records from the dataset, or set the positions after them"
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
        """Rename the files of a batch in the store to their final names, and note that in the store."""
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
            # Renamed before, by this writer or by the one that took the group over.
            if not os.path.lexists(self._final(file)):
                raise OutputLost(
                    f"{self._final(file)}: part of the output of group {self.group}, as {self.store.name} has it, and "
                    f"neither there nor staged in {self._root}: was the job started with another directory?"
                ) from None
        except OSError as error:
            raise KfsError(f"{self._final(file)}: {error.strerror}") from error

    def _discard(self) -> None:
        """Remove the staged files of other writers, except of later ones."""
        for name in os.listdir(self._root):
            epoch, _, _ = name.partition("-")
            if not (epoch.isdecimal() and int(epoch) > self._fence.epoch):
                shutil.rmtree(os.path.join(self._root, name), ignore_errors=True)

    def _final(self, file: StagedFile) -> str:
        return os.path.join(self.dataset, file.final)


def make_durable_directories(path: str) -> None:
    """Make a directory and its parents, durably."""
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
    return Fenced(f"{path}: is gone: another writer took over the group: this process must stop")
