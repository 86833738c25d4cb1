"""What is asked of every view, and what the walk says is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from tests.log.damages import Parts, is_ambiguous
from tests.read.views import VIEWS, Asked, Shown, View

#: Of so many cases, one in which each view opens the log directories for itself, as another process would.
_ONE_OPENS_ANEW = 16


def is_judged(parts: Parts) -> bool:
    """Whether what is damaged can't be taken for what it was."""
    return not any(part.is_moved for part in parts) and not is_ambiguous(parts)


@contextmanager
def asked_at_random(asked: Asked, random: Random) -> Iterator[Asked]:
    """Open the log directories once for all views that are asked; or, now and then, have each do it for itself."""
    if random.randrange(_ONE_OPENS_ANEW):
        with asked.shared() as shared:
            yield shared
    else:
        yield asked


def shown_by_all(asked: Asked, views: Sequence[View] = VIEWS) -> Shown:
    """Return what every view shows; they are asked in this order."""
    first = views[0](asked)
    for view in views[1:]:
        shown = view(asked)
        assert shown == first, f"{view.__name__} and {views[0].__name__}: {differences(shown, first)}"
    return first


def shown_at_random(asked: Asked, random: Random) -> Shown:
    """Return what every view shows, asked in any order: none leaves something behind that another trips over."""
    with asked_at_random(asked, random) as either:
        return shown_by_all(either, random.sample(VIEWS, len(VIEWS)))


def differences(shown: Shown, expected: Shown) -> str:
    """Say which offsets one shows and the other doesn't, and where the values differ."""
    both = shown.keys() & expected.keys()
    return (
        f"offsets more {sorted(shown.keys() - expected.keys())}, less {sorted(expected.keys() - shown.keys())}, "
        f"of another value {sorted(offset for offset in both if shown[offset] != expected[offset])}"
    )


def lost_ranges(log: Log, start: int) -> list[OffsetRange]:
    """Return what each damage may hide from an offset on, as the walk over the whole log tells it."""
    walked = log.walk(OffsetRange(start, MAX_INT64))
    return [item.lost for _, item in walked if not isinstance(item, Block) and item.lost is not None]
