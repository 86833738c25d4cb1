"""The CSV file from which ``kafka-consumer-groups --reset-offsets --from-file`` takes the positions of groups."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping

from kfs.errors import OffsetStoreError
from kfs.format.checkpoint import TopicPartition


def is_reset_plan(place: str) -> bool:
    """Whether a place to copy positions to is such a file, and no store."""
    return place.endswith(".csv") and re.match("[a-z]+:", place) is None


def reset_plan(positions: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """Return the content of the file with the positions of each group.

    A line has the topic, the partition and the offset; if there are several groups, the group comes first. It has no
    head. The tool takes the group of shorter lines from its only ``--group`` (``ConsumerGroupCommand.parseResetPlan``).

    Raises:
        OffsetStoreError: the name of one of several groups has a line break: the tool reads the file by lines.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for group, offsets in positions.items():
        named = [group] if len(positions) > 1 else []
        if any(len(name.splitlines()) > 1 for name in named):
            raise OffsetStoreError(f"group {group!r}: its name has a line break: copy it alone")
        lines.writerows([*named, *partition, offset] for partition, offset in sorted(offsets.items()))
    return text.getvalue()
