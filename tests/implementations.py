"""What there is in Python and, where it was built, compiled: held to the same tests."""

from __future__ import annotations

import pytest

from kfs.cat.output import Fields, python_fields
from kfs.dump.batch_text import BatchLines, BatchText
from kfs.errors import KfsError
from kfs.format.decode import PythonDecoder
from kfs.format.decoders import BlockDecoder
from kfs.read.selection import PythonRows, Rows
from kfs.render.arrow_builder import ArrowBuilder, PythonArrowBuilder
from kfs.render.record_json import RecordJson, SequencedJson
from kfs.render.renderers import LineRenderer, SequencedRenderer

DECODERS: list[type[BlockDecoder]] = [PythonDecoder]
RENDERERS: list[type[LineRenderer]] = [RecordJson]
BATCH_TEXTS: list[type[BatchLines]] = [BatchText]
ARROW_BUILDERS: list[type[ArrowBuilder]] = [PythonArrowBuilder]
FIELDS: list[Fields] = [python_fields]
ROWS: list[type[Rows]] = [PythonRows]
SEQUENCED: list[type[SequencedRenderer]] = [SequencedJson]
try:
    from kfs.cat.compiled_fields import compiled_fields
    from kfs.dump.compiled_batch_text import CompiledBatchText
    from kfs.format.compiled_decode import CompiledDecoder
    from kfs.read.compiled_selection import CompiledRows
    from kfs.render.compiled_arrow import CompiledArrowBuilder
    from kfs.render.compiled_json import CompiledRecordJson, CompiledSequencedJson
except (ImportError, KfsError):
    pass
else:
    DECODERS.append(CompiledDecoder)
    RENDERERS.append(CompiledRecordJson)
    BATCH_TEXTS.append(CompiledBatchText)
    ARROW_BUILDERS.append(CompiledArrowBuilder)
    FIELDS.append(compiled_fields)
    ROWS.append(CompiledRows)
    SEQUENCED.append(CompiledSequencedJson)

EVERY_DECODER = pytest.mark.parametrize(
    "decoder",
    [implementation() for implementation in DECODERS],
    ids=[implementation.__name__ for implementation in DECODERS],
)
EVERY_RENDERER = pytest.mark.parametrize(
    "renderer", RENDERERS, ids=[implementation.__name__ for implementation in RENDERERS]
)
EVERY_ROWS = pytest.mark.parametrize("rows", ROWS, ids=[implementation.__name__ for implementation in ROWS])
EVERY_FIELDS = pytest.mark.parametrize("fields", FIELDS, ids=["python", "compiled"][: len(FIELDS)])
EVERY_BATCH_TEXT = pytest.mark.parametrize(
    "batch_text", BATCH_TEXTS, ids=[implementation.__name__ for implementation in BATCH_TEXTS]
)
EVERY_ARROW_BUILDER = pytest.mark.parametrize(
    "builder", ARROW_BUILDERS, ids=[implementation.__name__ for implementation in ARROW_BUILDERS]
)
