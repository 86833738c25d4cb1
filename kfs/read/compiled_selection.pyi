from array import array
from collections.abc import Sequence

from kfs.format.columns import RecordColumns

class CompiledRows:
    @staticmethod
    def wanted(
        columns: RecordColumns,
        among: Sequence[int],
        since: int | None,
        before: int | None,
        keys: frozenset[bytes] | None,
        text: bytes | None,
    ) -> array[int]: ...
    @staticmethod
    def taken(columns: RecordColumns, indexes: Sequence[int]) -> RecordColumns: ...
