"""``.kfs/transactions/``: transactional ids, from ``__transaction_state``; and a partition's transactions.

All topics are read on demand only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from kfs.errors import NotFound
from kfs.internal.hanging import Judge
from kfs.internal.transaction_json import history_json, transactional_id_json
from kfs.internal.transaction_state import TRANSACTION_STATE_TOPIC, TransactionalId
from kfs.tree.context import Owner, TreeContext, source_of, status_of
from kfs.tree.files import CostlyGeneratedFile, FixedDirectory, Maker
from kfs.tree.meta_dir import json_lines
from kfs.tree.names import file_name, text_of_name
from kfs.tree.partition_view import PartitionView

_JSON: Final = ".json"
_PROBLEMS: Final = "problems.jsonl"
#: The placeholder for a broker without a name.
_BOOTSTRAP_SERVER: Final = "localhost:9092"


def transactions_directory(context: TreeContext, path: str) -> FixedDirectory:
    """Return the directory at ``path``."""
    return FixedDirectory(
        context, path, source_of(context, TRANSACTION_STATE_TOPIC), _TransactionalIdNames(context, path)
    )


class _TransactionalIdNames(Mapping[str, Maker]):
    """A file for each transactional id, and the problems of their topic."""

    def __init__(self, context: TreeContext, path: str) -> None:
        self._context = context
        self._path = path

    def __getitem__(self, name: str) -> Maker:
        if name == _PROBLEMS:
            return partial(
                self._file, name, lambda: json_lines(self._context.broker.transactional_ids.state_problems().rows())
            )
        transactional_id = self._id_of(name) if name.endswith(_JSON) else None
        if transactional_id is None:
            raise KeyError(name)
        return partial(self._file, name, partial(_id_line, self._context, transactional_id))

    def _id_of(self, name: str) -> str | None:
        """Return the transactional id of a file's name, or None."""
        ids = self._context.broker.transactional_ids
        text = text_of_name(name.removesuffix(_JSON), ids.names)
        return text if text is not None and ids.get(text) is not None else None

    def _file(self, name: str, produce: Callable[[], bytes]) -> CostlyGeneratedFile:
        owner, mtime_ns = status_of(source_of(self._context, TRANSACTION_STATE_TOPIC))
        return CostlyGeneratedFile(self._context, f"{self._path}/{name}", owner, mtime_ns, produce)

    def __iter__(self) -> Iterator[str]:
        for name in self._context.broker.transactional_ids.names():
            yield file_name(name) + _JSON
        yield _PROBLEMS

    def __len__(self) -> int:
        return len(self._context.broker.transactional_ids.names()) + 1


def _id_line(context: TreeContext, name: str) -> bytes:
    known: TransactionalId | None = context.broker.transactional_ids.get(name)
    if known is None:
        raise NotFound(f"no transactional id {name!r}")
    return json_lines([transactional_id_json(known, context.now_ms())])


def partition_transactions(partition: PartitionView, path: str) -> CostlyGeneratedFile:
    """Return ``transactions.json`` at ``path``: all transactions of a partition, the latest of them by name."""
    context = partition.context
    owner: Owner = status_of(partition.log.directory.path)[0]
    produce = partial(_transactions, partition)
    return CostlyGeneratedFile(context, path, owner, partition.mtime_ns, produce)


def _transactions(partition: PartitionView) -> bytes:
    judge = Judge(partition.context.broker.transactional_ids, partition.context.now_ms())
    history = partition.history.now()
    return json_lines([history_json(partition.log.topic_partition, history, judge, _BOOTSTRAP_SERVER)])
