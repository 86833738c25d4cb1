from collections.abc import Sequence

from kfs.format.columns import RecordColumns
from kfs.render.arrow_builder import ArrowBuffers
from kfs.render.arrow_columns import BatchFields, Column

class CompiledArrowBuilder:
    def __init__(
        self, columns: Sequence[Column], topic: bytes, partition: int, segment: int, arena: CompiledArena | None = None
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def add(self, columns: RecordColumns, indexes: Sequence[int], fields: BatchFields = ...) -> None: ...
    def finish(self) -> ArrowBuffers: ...

class CompiledArena:
    used: int
    def use(self, memory: memoryview | None) -> None: ...
