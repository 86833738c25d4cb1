"""Apache Kafka's log directories as a filesystem: no broker needed, nothing ever written.

>>> import kfs
>>> with kfs.open("data") as data:
...     print(data["launch_info"][0][368776].value)
b'4567890'

See ``docs/PYTHON.md`` for more. Everything here but the version is imported at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kfs.api import DamagePolicy, Data, PartitionLog, Record, SegmentFile, Topic, open  # noqa: A004
    from kfs.api.groups import Group, GroupOffset, Groups
    from kfs.api.transactions import Transaction, TransactionalIds
    from kfs.errors import CorruptData, KfsError, NotFound, Shortage, SourceLost, UnusableSource
    from kfs.format.record import TimestampType
    from kfs.log.problem import Problem
    from kfs.read.isolation_level import IsolationLevel

#: Also the version of the package: the build reads it here.
__version__ = "0.1.0"

__all__ = [
    "CorruptData",
    "DamagePolicy",
    "Data",
    "Group",
    "GroupOffset",
    "Groups",
    "IsolationLevel",
    "KfsError",
    "NotFound",
    "PartitionLog",
    "Problem",
    "Record",
    "SegmentFile",
    "Shortage",
    "SourceLost",
    "TimestampType",
    "Topic",
    "Transaction",
    "TransactionalIds",
    "UnusableSource",
    "__version__",
    "open",
]

#: The modules of the names.
_MODULES: Final = {
    "CorruptData": "kfs.errors",
    "Data": "kfs.api",
    "Group": "kfs.api.groups",
    "GroupOffset": "kfs.api.groups",
    "Groups": "kfs.api.groups",
    "IsolationLevel": "kfs.read.isolation_level",
    "KfsError": "kfs.errors",
    "NotFound": "kfs.errors",
    "DamagePolicy": "kfs.api",
    "PartitionLog": "kfs.api",
    "Problem": "kfs.log.problem",
    "Record": "kfs.api",
    "SegmentFile": "kfs.api",
    "Shortage": "kfs.errors",
    "SourceLost": "kfs.errors",
    "TimestampType": "kfs.format.record",
    "Topic": "kfs.api",
    "Transaction": "kfs.api.transactions",
    "TransactionalIds": "kfs.api.transactions",
    "UnusableSource": "kfs.errors",
    "open": "kfs.api",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # the next access finds it without calling this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
