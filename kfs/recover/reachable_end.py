"""The end of a salvaged log, which a consumer has to reach that reads to the log end offset.

If nothing is left of the last segment, its base offset is the log end offset. If records before it are lost, too, no
batch leads there: the position of a consumer stays behind the last record that is left, and one that reads to the end
waits for ever.
"""

from __future__ import annotations

import os

from kfs.broker_log.log_segment import segment_path
from kfs.format.batch_header import BatchHeader
from kfs.format.layout import MAGIC_V2, MAX_INT32
from kfs.format.writer import encode_empty_batch
from kfs.log.block import Block
from kfs.log.directory_name import CLUSTER_METADATA
from kfs.log.offset_range import OffsetRange
from kfs.recover.salvage_plan import SalvagePlan
from kfs.recover.segment_plan import Fate


def make_end_reachable(plan: SalvagePlan, directory: str) -> str | None:
    """Lead consumers over the offsets without records before an empty last segment; return what was done, if anything.

    An empty record batch takes the offsets, as the log cleaner leaves one. Brokers before 0.11 don't know such batches:
    a log of messages (v0, v1) ends at the offsets instead, and so does one whose gap no batch can span. The controller
    can't read an empty batch either, and the metadata log has no consumers: it stays as it is.

    Raises:
        CorruptData: a source file changed meanwhile.
        OSError: a file can't be written.
    """
    log = plan.arrangement.log
    gap = _unreachable(plan)
    if gap is None or log.topic == CLUSTER_METADATA:
        return None
    header = _last_kept_header(plan)
    content, what = b"", f"the log ends at {gap.start} instead of {gap.end}, and brokers assign these offsets again"
    if header.magic == MAGIC_V2 and gap.end - gap.start <= MAX_INT32:
        content = encode_empty_batch(gap.start, gap.end - 1, partition_leader_epoch=header.leader_epoch)
        what = f"an empty record batch leads to the end of the log at {gap.end}"
    os.unlink(segment_path(directory, gap.end, ".log"))
    with open(segment_path(directory, gap.start, ".log"), "xb") as file:
        file.write(content)
    return f"no record is left of offsets {gap.start} to {gap.end - 1}: {what}"


def _unreachable(plan: SalvagePlan) -> OffsetRange | None:
    """Return the offsets without batches between what is kept and an empty last segment, None if there are none."""
    ends = [kept.last_offset + 1 for segment in plan.segments for kept in segment.of_fate(Fate.KEPT)]
    if not ends or plan.segments[-1].of_fate(Fate.KEPT):
        return None
    last = plan.segments[-1].segment
    start = max(*ends, plan.arrangement.log.log_start_offset)
    return OffsetRange(start, last.base_offset) if start < last.base_offset else None


def _last_kept_header(plan: SalvagePlan) -> BatchHeader:
    """Return the header of the last batch that is kept; there is one."""
    kept = [(each.segment, stretch) for each in plan.segments for stretch in each.of_fate(Fate.KEPT)]
    segment, stretch = max(kept, key=lambda pair: pair[1].last_offset)
    blocks = (item for item in segment.walk_from(stretch.last_offset) if isinstance(item, Block))
    return next(block.header for block in blocks if block.header.last_offset >= stretch.last_offset)
