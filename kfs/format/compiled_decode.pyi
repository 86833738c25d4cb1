from typing import ClassVar

from kfs.format.batch_header import BatchHeader
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns

class CompiledDecoder:
    name: ClassVar[str]
    def decode(self, header: BatchHeader, data: bytes, limit: int) -> RecordColumns: ...
    def scan(self, buffer: bytes, at: int, position: int, seen: int, limit: int, max_size: int) -> BatchTable: ...
    def scan_messages(
        self, buffer: bytes, at: int, end: int, header: BatchHeader, last: int, limit: int
    ) -> tuple[int, int, int]: ...
    def decode_rows(self, table: BatchTable, first: int, stop: int, limit: int) -> tuple[RecordColumns, int]: ...
    def count_records(
        self, table: BatchTable, first: int, stop: int, limit: int, exact_timestamps: bool = False
    ) -> tuple[int, int]: ...
