"""``time/`` and ``at/``: records by their timestamps, compared with a look at every record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData, NotFound
from kfs.format.record import Record
from kfs.render.record_line import parse_line
from kfs.render.timestamps import iso_time
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory
from tests.corpus import corpus_names
from tests.log.some_logs import some_segments
from tests.logs import (
    START,
    Batch,
    batch,
    content_of,
    dense,
    directory_at,
    names,
    open_tree,
    record,
    set_log_start,
    target_of,
    write_log,
    write_partition,
)

HOUR = 3_600_000


def day_and_hour(timestamp: int) -> str:
    """Return where in ``time/`` a record of that timestamp is, by the calendar's own arithmetic."""
    try:
        moment = datetime.fromtimestamp(timestamp // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "none"
    return "none" if timestamp == -1 else f"{moment.year:04d}-{moment:%m-%d}/{moment:%H}"


def shown_records(tree: KafkaTree, path: str) -> list[Record]:
    """Return the records of a partition that can be read, from the files in ``offset/``."""
    entries = directory_at(tree, f"{path}/offset").entries()
    return [
        parse_line(content_of(tree, f"{path}/offset/{entry.name}"))[2]
        for entry in entries
        if entry.attributes is not None
    ]


def links_by_time(tree: KafkaTree, path: str) -> dict[str, list[str]]:
    """Return the names in every directory below ``time/`` that has any."""
    found: dict[str, list[str]] = {}
    for day in names(directory_at(tree, f"{path}/time")):
        if day == "none":
            found[day] = names(directory_at(tree, f"{path}/time/none"))
            continue
        for hour in names(directory_at(tree, f"{path}/time/{day}")):
            found[f"{day}/{hour}"] = names(directory_at(tree, f"{path}/time/{day}/{hour}"))
    return found


def assert_times_are_those_of_the_records(tree: KafkaTree, path: str) -> None:
    expected: dict[str, list[str]] = {}
    shown = shown_records(tree, path)
    for one in shown:
        expected.setdefault(day_and_hour(one.timestamp), []).append(f"{one.offset}.json")
    found = links_by_time(tree, path)
    assert found == expected, path
    days = [day for day in dict.fromkeys(place.split("/")[0] for place in found) if day != "none"]
    assert days == sorted(days)
    for place, listed in expected.items():
        up = "../../" if place == "none" else "../../../"
        for name in (listed[0], listed[-1]):
            assert target_of(tree, f"{path}/time/{place}/{name}") == f"{up}offset/{name}"


def assert_at_leads_where_a_look_at_every_record_leads(tree: KafkaTree, path: str, timestamp: int) -> None:
    text = iso_time(timestamp)
    expected = next(
        (one.offset for one in shown_records(tree, path) if one.timestamp >= timestamp and one.timestamp != -1), None
    )
    if expected is None:
        with pytest.raises(NotFound):
            tree.resolve(f"{path}/at/{text}.json")
    else:
        assert target_of(tree, f"{path}/at/{text}.json") == f"../offset/{expected}.json", text


def partitions_of(tree: KafkaTree) -> list[str]:
    """Return the paths of all partitions, and of those parts of them that were deleted."""
    found = [f"{topic}/{name}" for topic in names(tree.root) for name in names(directory_at(tree, topic))]
    for topic in names(directory_at(tree, ".kfs/deleted")):
        found += [f".kfs/deleted/{topic}/{name}" for name in names(directory_at(tree, f".kfs/deleted/{topic}"))]
    return found


# --- every corpus ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", corpus_names())
def test_the_hours_of_a_corpus_hold_its_records(name: str, corpus: Callable[[str], Path]) -> None:
    tree = open_tree(corpus(name) / "data")
    for path in partitions_of(tree):
        assert_times_are_those_of_the_records(tree, path)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", corpus_names())
def test_any_time_in_a_corpus_leads_to_its_first_record(name: str, corpus: Callable[[str], Path]) -> None:
    tree = open_tree(corpus(name) / "data")
    for path in partitions_of(tree):
        shown = [one for one in shown_records(tree, path) if one.timestamp != -1]
        latest = -1
        # The lowest offset at or after a time changes only where a record is later than all before it.
        changes = [-1]
        for one in shown:
            if one.timestamp > latest:
                latest = one.timestamp
                changes.append(latest)
        step = max(len(changes) // 12, 1)
        asked = {change + near for change in [*changes[::step], latest] for near in (0, 1)} - {-1}
        for timestamp in asked:
            expected = next((one.offset for one in shown if one.timestamp >= timestamp), None)
            link = f"{path}/at/{iso_time(timestamp)}.json"
            if expected is None:
                with pytest.raises(NotFound):
                    tree.resolve(link)
            else:
                assert target_of(tree, link) == f"../offset/{expected}.json", link


# --- logs made to order ---------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(segments=some_segments(), data=st.data())
def test_the_times_of_any_log_are_those_of_its_records(
    tmp_path_factory: pytest.TempPathFactory, segments: dict[int, list[Batch]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("root")
    write_partition(root / "t-0", segments)
    tree = open_tree(root)
    assert_times_are_those_of_the_records(tree, "t/0")
    for after in data.draw(st.lists(st.integers(-1, 31), max_size=5)):
        assert_at_leads_where_a_look_at_every_record_leads(tree, "t/0", START + after * 1000)


def at_times(*timestamps: int, first: int = 0) -> list[Batch]:
    return [batch([record(first + at, timestamp=timestamp)]) for at, timestamp in enumerate(timestamps)]


def test_hours_are_those_of_utc(tmp_path: Path) -> None:
    new_year = 1_704_067_200_000  # 2024-01-01T00:00:00Z
    write_partition(tmp_path / "t-0", {0: at_times(new_year - 1, new_year, new_year + HOUR - 1, new_year + HOUR)})
    tree = open_tree(tmp_path)
    assert links_by_time(tree, "t/0") == {
        "2023-12-31/23": ["0.json"],
        "2024-01-01/00": ["1.json", "2.json"],
        "2024-01-01/01": ["3.json"],
    }


@pytest.mark.parametrize(
    ("timestamp", "place"),
    [
        (0, "1970-01-01/00"),
        (-2, "1969-12-31/23"),
        (-HOUR, "1969-12-31/23"),
        (-HOUR - 1, "1969-12-31/22"),
        (-62135596800000, "0001-01-01/00"),
        (253402300799999, "9999-12-31/23"),
        (-1, "none"),
        (253402300800000, "none"),
        (-62135596800001, "none"),
        (2**63 - 1, "none"),
        (-(2**63), "none"),
    ],
)
def test_the_calendar_has_a_place_for_every_timestamp(timestamp: int, place: str, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: at_times(timestamp)})
    assert links_by_time(open_tree(tmp_path), "t/0") == {place: ["0.json"]}


def test_records_of_v0_have_no_time(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4, magic=0), 5: at_times(START, first=5)})
    tree = open_tree(tmp_path)
    assert links_by_time(tree, "t/0")["none"] == [f"{at}.json" for at in range(5)]
    assert target_of(tree, "t/0/time/none/3.json") == "../../offset/3.json"
    assert target_of(tree, "t/0/at/1970.json") == "../offset/5.json"


def test_a_link_is_of_the_time_of_its_record(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    tree = open_tree(tmp_path)
    for path in ("time/2023-11-14/22/3.json", f"at/{iso_time(START + 3000)}.json"):
        attributes = tree.resolve(f"t/0/{path}").attributes()
        assert attributes.mtime_ns == (START + 3000) * 1_000_000
        assert attributes.size == len(target_of(tree, f"t/0/{path}"))


@pytest.mark.parametrize(
    "path",
    [
        "time/2023-11-13",
        "time/2023-11-15",
        "time/2023-1-14",
        "time/None",
        "time/none",
        "time/2023-11-14/21",
        "time/2023-11-14/2",
        "time/2023-11-14/24",
        "time/2023-11-14/22/5.json",
        "time/2023-11-14/22/03.json",
        "time/2023-11-14/22/3",
        "time/2023-11-14/22/x",
    ],
)
def test_other_times_are_not_there(path: str, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    with pytest.raises(NotFound):
        open_tree(tmp_path).resolve(f"t/0/{path}")


def test_a_record_is_in_its_own_hour_only(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: at_times(START, START + HOUR, START)})
    tree = open_tree(tmp_path)
    assert links_by_time(tree, "t/0") == {"2023-11-14/22": ["0.json", "2.json"], "2023-11-14/23": ["1.json"]}
    with pytest.raises(NotFound):
        tree.resolve("t/0/time/2023-11-14/22/1.json")


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("2023-11-14T22:13:20.000Z", 0),
        ("2023-11-14T22:13:23.000Z", 3),
        ("2023-11-14T22:13:22.001Z", 3),
        ("2023-11-14T22:13:22.0005", 3),
        ("2023-11-14T22:13:23", 3),
        ("2023-11-14 22:13:23", 3),
        ("20231114T221323Z", 3),
        ("2023-11-14T23:13:23+01:00", 3),
        ("2023-11-14T17:13:23-05:00", 3),
        ("2023-11-14T22:13", 0),
        ("2023-11-14T22", 0),
        ("2023-11-14", 0),
        ("2023-11", 0),
        ("2023", 0),
        ("0001-01-01", 0),
        ("1700000003000", 3),
        ("2023-11-14T22:13:24.000Z", 4),
        ("2023-11-14T22:13:24.001Z", None),
        ("2023-11-15", None),
        ("9999-12-31T23:59:59.999Z", None),
    ],
)
def test_any_way_to_write_a_time_leads_to_the_first_record_at_or_after_it(
    text: str, offset: int | None, tmp_path: Path
) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    tree = open_tree(tmp_path)
    if offset is None:
        with pytest.raises(NotFound, match="no record at or after"):
            tree.resolve(f"t/0/at/{text}.json")
    else:
        assert target_of(tree, f"t/0/at/{text}.json") == f"../offset/{offset}.json"


@pytest.mark.parametrize(
    "name", ["now.json", "2023-11-14", "2023-13-01.json", ".json", "2023.jsonl", "9" * 5000 + ".json"]
)
def test_what_is_no_time_is_not_there(name: str, tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    with pytest.raises(NotFound):
        open_tree(tmp_path).resolve(f"t/0/at/{name}")


def test_at_lists_nothing(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 4)})
    assert names(directory_at(open_tree(tmp_path), "t/0/at")) == []


def test_an_empty_partition_has_no_times(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 0, b"")
    tree = open_tree(tmp_path)
    assert links_by_time(tree, "t/0") == {}
    with pytest.raises(NotFound):
        tree.resolve("t/0/at/2023.json")


def test_times_begin_at_the_log_start_offset(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: at_times(START - 2 * HOUR, START - HOUR, START, START + HOUR)})
    set_log_start(tmp_path, "t", 0, 2)
    tree = open_tree(tmp_path)
    assert links_by_time(tree, "t/0") == {"2023-11-14/22": ["2.json"], "2023-11-14/23": ["3.json"]}
    assert links_by_time(tree, ".kfs/deleted/t/0") == {"2023-11-14/20": ["0.json"], "2023-11-14/21": ["1.json"]}
    assert target_of(tree, "t/0/at/2000.json") == "../offset/2.json"
    assert target_of(tree, ".kfs/deleted/t/0/at/2000.json") == "../offset/0.json"
    with pytest.raises(NotFound):
        tree.resolve(".kfs/deleted/t/0/at/2023-11-14T22.json")


def test_the_same_whichever_of_the_two_is_asked_first(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: at_times(START - 2 * HOUR, START)})
    set_log_start(tmp_path, "t", 0, 1)
    tree = open_tree(tmp_path)
    assert links_by_time(tree, ".kfs/deleted/t/0") == {"2023-11-14/20": ["0.json"]}
    assert links_by_time(tree, "t/0") == {"2023-11-14/22": ["1.json"]}


def test_times_grow_with_the_log(tmp_path: Path, eager: None) -> None:
    path = write_log(tmp_path / "t-0", 0, b"")
    tree = open_tree(tmp_path)
    expected: dict[str, list[str]] = {}
    for at, one in enumerate(at_times(START, START + HOUR, START, START + 3 * HOUR)):
        with path.open("ab") as log:
            log.write(one.data)
        expected.setdefault(day_and_hour(one.records[0].timestamp), []).append(f"{at}.json")
        assert links_by_time(tree, "t/0") == expected
        assert target_of(tree, f"t/0/at/{iso_time(one.records[0].timestamp)}.json").startswith("../offset/")


def test_records_that_cannot_be_read_are_at_no_time(tmp_path: Path) -> None:
    content = at_times(START, START + HOUR, START + 2 * HOUR)
    path = write_log(tmp_path / "t-0", 0, content[0].data + content[1].data[:-1] + b"\xff" + content[2].data)
    assert path.exists()
    tree = open_tree(tmp_path)
    assert list(links_by_time(tree, "t/0")) == ["2023-11-14/22", "2023-11-15/00"]
    assert target_of(tree, "t/0/at/2023-11-14T22:30.json") == "../offset/2.json"
    with pytest.raises(CorruptData):
        tree.resolve("t/0/offset/1.json")
    assert isinstance(tree.resolve("t/0/time"), Directory)
