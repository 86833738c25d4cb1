"""Keys or values one after another, by each implementation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kfs.cat.output import Fields
from kfs.format.record import Record
from tests.format.some_records import batches
from tests.implementations import EVERY_FIELDS
from tests.read.test_selection import columns_of


@EVERY_FIELDS
@given(records=batches(), delimiter=st.none() | st.binary(max_size=3), data=st.data())
def test_fields_are_those_of_the_records(
    fields: Fields, records: list[Record], delimiter: bytes | None, data: st.DataObject
) -> None:
    columns = columns_of(records)
    numbers = st.integers(0, len(records) - 1)
    indexes = data.draw(st.builds(range, numbers, numbers, st.integers(1, 2)) | st.lists(numbers, unique=True))
    for starts, lengths, name in (
        (columns.key_starts, columns.key_lengths, "key"),
        (columns.value_starts, columns.value_lengths, "value"),
    ):
        expected = b""
        for index in indexes:
            field: bytes | None = getattr(records[index], name)
            if delimiter is None:
                expected += (-1 if field is None else len(field)).to_bytes(4, "big", signed=True)
            expected += (field or b"") + (delimiter or b"")
        assert fields(columns.buffer, starts, lengths, indexes, delimiter) == expected
