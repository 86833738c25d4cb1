"""What there is in Python and, where it was built, compiled: held to the same tests."""

from __future__ import annotations

import pytest

from kfs.dump.batch_text import BatchLines, BatchText
from kfs.errors import KfsError
from kfs.format.decode import BlockDecoder, PlainDecoder
from kfs.render.arrow_gather import ArrowGather, PlainArrowGather
from kfs.render.record_json import RecordJson, SequencedJson
from kfs.render.renderers import LineRenderer, SequencedRenderer

DECODERS: list[type[BlockDecoder]] = [PlainDecoder]
RENDERERS: list[type[LineRenderer]] = [RecordJson]
BATCH_TEXTS: list[type[BatchLines]] = [BatchText]
GATHERS: list[type[ArrowGather]] = [PlainArrowGather]
SEQUENCED: list[type[SequencedRenderer]] = [SequencedJson]
try:
    from kfs.dump.compiled_batch_text import CompiledBatchText
    from kfs.format.compiled_decode import CompiledDecoder
    from kfs.render.compiled_arrow import CompiledArrowGather
    from kfs.render.compiled_json import CompiledRecordJson, CompiledSequencedJson
except (ImportError, KfsError):
    pass
else:
    DECODERS.append(CompiledDecoder)
    RENDERERS.append(CompiledRecordJson)
    BATCH_TEXTS.append(CompiledBatchText)
    GATHERS.append(CompiledArrowGather)
    SEQUENCED.append(CompiledSequencedJson)

EVERY_DECODER = pytest.mark.parametrize(
    "decoder", [twin() for twin in DECODERS], ids=[twin.__name__ for twin in DECODERS]
)
EVERY_RENDERER = pytest.mark.parametrize("renderer", RENDERERS, ids=[twin.__name__ for twin in RENDERERS])
EVERY_BATCH_TEXT = pytest.mark.parametrize("batch_text", BATCH_TEXTS, ids=[twin.__name__ for twin in BATCH_TEXTS])
EVERY_GATHER = pytest.mark.parametrize("gather", GATHERS, ids=[twin.__name__ for twin in GATHERS])
