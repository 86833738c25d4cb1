"""``.kfs/transactions/``, what ``__transaction_state`` says of transactional ids, and a partition's transactions.

Nothing of that topic, or of any other, is read for it before somebody looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from kfs.errors import NotFound
from kfs.internal.hanging import Judge
from kfs.internal.transaction_json import history_json, transactional_id_json, unread_json
from kfs.internal.transaction_state import TRANSACTION_STATE_TOPIC, TransactionalId
from kfs.tree.context import Owner, TreeContext, status_of
from kfs.tree.files import CostlyGeneratedFile, FixedDirectory, Maker
from kfs.tree.meta_dir import json_lines, problem_lines
from kfs.tree.names import file_name, topic_name
from kfs.tree.partition_view import PartitionView

_JSON: Final = ".json"
_PROBLEMS: Final = "problems.jsonl"
#: What stands for a broker that nobody has named.
_BOOTSTRAP_SERVER: Final = "localhost:9092"


def transactions_directory(context: TreeContext, path: str) -> FixedDirectory:
    """Return the directory at ``path``."""
    return FixedDirectory(context, path, _source(context), _TransactionalIdNames(context, path))


def _source(context: TreeContext) -> str:
    """Return the path whose owner and times all of this takes: where the state is kept, if that is here."""
    data_dir = context.data_dir
    logs = (data_dir.log(TRANSACTION_STATE_TOPIC, each) for each in data_dir.partitions(TRANSACTION_STATE_TOPIC))
    return next((log.directory.path for log in logs if log is not None), data_dir.paths[0])


class _TransactionalIdNames(Mapping[str, Maker]):
    """A file of each transactional id, and what is wrong with what they are kept in."""

    def __init__(self, context: TreeContext, path: str) -> None:
        self._context = context
        self._path = path

    def __getitem__(self, name: str) -> Maker:
        if name == _PROBLEMS:
            return partial(self._file, name, partial(_problem_lines, self._context))
        transactional_id = self._id_of(name) if name.endswith(_JSON) else None
        if transactional_id is None:
            raise KeyError(name)
        return partial(self._file, name, partial(_id_line, self._context, transactional_id))

    def _id_of(self, name: str) -> str | None:
        """Return the transactional id that a file is of, None where there is none."""
        ids, stem = self._context.transactional_ids, name.removesuffix(_JSON)
        plain = topic_name(stem)
        if plain is not None:
            return plain if file_name(plain) == stem and ids.get(plain) is not None else None
        return next((each for each in ids.names() if file_name(each) == stem), None)

    def _file(self, name: str, produce: Callable[[], bytes]) -> CostlyGeneratedFile:
        owner, mtime_ns = status_of(_source(self._context))
        return CostlyGeneratedFile(
            self._context, self._context.ids.of_path(f"{self._path}/{name}"), owner, mtime_ns, produce
        )

    def __iter__(self) -> Iterator[str]:
        for name in self._context.transactional_ids.names():
            yield file_name(name) + _JSON
        yield _PROBLEMS

    def __len__(self) -> int:
        return len(self._context.transactional_ids.names()) + 1


def _id_line(context: TreeContext, name: str) -> bytes:
    known: TransactionalId | None = context.transactional_ids.get(name)
    if known is None:
        raise NotFound(f"no transactional id {name!r}")
    return json_lines([transactional_id_json(known, _now_ms())])


def _problem_lines(context: TreeContext) -> bytes:
    """Records that can't be read, as they were written, and damage to the logs."""
    ids = context.transactional_ids
    own = json_lines(unread_json(log, record) for log, record in ids.unread())
    return own + b"".join(problem_lines(log.problems) for log in ids.logs())


def partition_transactions(partition: PartitionView, path: str) -> CostlyGeneratedFile:
    """Return ``transactions.json`` at ``path``: all transactions of a partition, the latest of them by name."""
    context = partition.context
    owner: Owner = status_of(partition.log.directory.path)[0]
    produce = partial(_transactions, partition)
    return CostlyGeneratedFile(context, context.ids.of_path(path), owner, partition.mtime_ns, produce)


def _transactions(partition: PartitionView) -> bytes:
    judge = Judge(partition.context.transactional_ids, _now_ms())
    history = partition.history.now()
    return json_lines([history_json(partition.log.topic_partition, history, judge, _BOOTSTRAP_SERVER)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
