"""The options of a tree, in a module that is cheap to import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel

if TYPE_CHECKING:
    from kfs.tree.lines.index_store import LineIndexStore

#: More than for the data they are rendered from: the lines of a block are half as large again as its columns.
DEFAULT_RENDERED_BYTES: Final = 48 * 1024 * 1024


class TreeOptions(NamedTuple):
    """How the tree is shown: ``views`` lists the names that otherwise only resolve.

    ``index_store`` makes, once, what keeps the indexes of closed segments between mounts. ``isolation`` applies to the
    whole tree.
    """

    views: bool = False
    on_damage: DamagePolicy = DamagePolicy.FAIL
    rendered_bytes: int = DEFAULT_RENDERED_BYTES
    index_store: Callable[[], LineIndexStore] | None = None
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
