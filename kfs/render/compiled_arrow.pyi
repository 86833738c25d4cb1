from collections.abc import Sequence

from kfs.format.columns import RecordColumns
from kfs.render.arrow_columns import BatchFields, Column
from kfs.render.arrow_gather import Gathered

class CompiledArrowGather:
    def __init__(
        self, columns: Sequence[Column], topic: bytes, partition: int, segment: int, arena: CompiledArena | None = None
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def add(self, columns: RecordColumns, indexes: Sequence[int], fields: BatchFields = ...) -> None: ...
    def take(self) -> Gathered: ...

class CompiledArena:
    used: int
    def use(self, memory: memoryview | None) -> None: ...
