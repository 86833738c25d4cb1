"""The file that sets positions in another cluster, as the tool takes it: line by line."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import OffsetStoreError
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets.reset_plan import is_reset_plan, reset_plan

_NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=20)
_POSITIONS = st.dictionaries(
    st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    min_size=1,
    max_size=4,
)


@given(st.dictionaries(_NAMES, _POSITIONS, min_size=1, max_size=4))
def test_each_line_has_what_the_tool_takes_from_it(positions: dict[str, dict[TopicPartition, int]]) -> None:
    found: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for line in reset_plan(positions).split("\n")[:-1]:
        [cells] = csv.reader([line])
        *group, topic, partition, offset = cells
        assert len(group) == (len(positions) > 1)
        found[group[0] if group else next(iter(positions))][TopicPartition(topic, int(partition))] = int(offset)
    assert found == positions


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "\u2028b"])
def test_a_name_with_a_line_break_is_refused_where_it_is_written(name: str) -> None:
    here = {TopicPartition("t", 0): 7}
    assert reset_plan({name: here}) == "t,0,7\n"
    with pytest.raises(OffsetStoreError, match="its name has a line break"):
        reset_plan({name: here, "b": here})


def test_a_store_is_no_file() -> None:
    assert is_reset_plan("reset.csv")
    assert is_reset_plan("/tmp/a.csv")
    assert not is_reset_plan("sqlite:positions.csv")
    assert not is_reset_plan("reset.db")
