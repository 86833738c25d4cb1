"""Kafka's milliseconds as ISO 8601, and what a person may write for a time."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.render.timestamps import FIRST_MILLISECOND, LAST_MILLISECOND, age_text, has_time, iso_time, parse_time
from tests.format.integers import int64s


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (1606446771205, "2020-11-27T03:12:51.205Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, None),
        (-2, "1969-12-31T23:59:59.998Z"),
        (-1000, "1969-12-31T23:59:59.000Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, None),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        (-62135596800001, None),
        (-59011459200000, "0100-01-01T00:00:00.000Z"),
        (-30610224000000, "1000-01-01T00:00:00.000Z"),
        (2**63 - 1, None),
        (-(2**63), None),
        (1583020799999, "2020-02-29T23:59:59.999Z"),
    ],
)
def test_a_timestamp_as_text(timestamp: int, expected: str | None) -> None:
    assert iso_time(timestamp) == expected
    assert has_time(timestamp) == (expected is not None)


def test_the_calendar_ends_where_python_says() -> None:
    assert (FIRST_MILLISECOND, LAST_MILLISECOND) == (-62135596800000, 253402300799999)


@given(st.integers(FIRST_MILLISECOND, LAST_MILLISECOND).filter(lambda timestamp: timestamp != -1))
def test_the_text_is_that_of_the_calendar_and_leads_back(timestamp: int) -> None:
    text = iso_time(timestamp)
    assert text is not None
    assert len(text) == 24
    moment = datetime.fromisoformat(text)
    assert calendar.timegm(moment.utctimetuple()) * 1000 + moment.microsecond // 1000 == timestamp
    assert parse_time(text) == timestamp


@given(int64s)
def test_any_timestamp_is_answered(timestamp: int) -> None:
    assert (iso_time(timestamp) is not None) == has_time(timestamp)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-11-27T03:12:51.205Z", 1606446771205),
        ("2020-11-27T03:12:51.205", 1606446771205),
        ("2020-11-27 03:12:51.205", 1606446771205),
        ("2020-11-27T03:12:51.205+00:00", 1606446771205),
        ("2020-11-27T04:12:51.205+01:00", 1606446771205),
        ("2020-11-26T22:12:51.205-05:00", 1606446771205),
        ("2020-11-27T08:42:51.205+05:30", 1606446771205),
        ("20201127T031251.205Z", 1606446771205),
        ("2020-11-27T03:12:51Z", 1606446771000),
        ("2020-11-27T03:12", 1606446720000),
        ("2020-11-27T03", 1606446000000),
        ("2020-11-27", 1606435200000),
        ("20201127", 1606435200000),
        ("2020-W48-5", 1606435200000),
        ("2020-11", 1604188800000),
        ("2020", 1577836800000),
        ("1606446771205", 1606446771205),
        ("-1606446771205", -1606446771205),
        ("160644677", 160644677),
        # Rounded up: the lowest millisecond that is not before it.
        ("1970-01-01T00:00:00.000001", 1),
        ("1969-12-31T23:59:59.9995", 0),
    ],
)
def test_what_a_person_may_write(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "yesterday",
        "2020-13-01",
        "2020-02-30",
        "2020-11-27T25:00",
        "27.11.2020",
        "11/27/2020",
        "1e9",
        "--1606446771205",
        "+1606446771205",
        "1606446771205 ",
        "1606446771205\n",
        "\N{FULLWIDTH DIGIT TWO}020",
        "\N{ARABIC-INDIC DIGIT TWO}020-11-27",
        "0000-01-01",
        "10000-01-01",
        "9" * 5000,
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        parse_time(text)


@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)),
    st.integers(-23 * 60, 23 * 60),
)
def test_a_time_of_any_zone_is_the_instant_it_names(moment: datetime, minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    text = f"{moment.isoformat()}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    microseconds = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    microseconds -= minutes * 60_000_000
    assert parse_time(text) == -(-microseconds // 1000)


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (0, "0s"),
        (59_999, "59s"),
        (60_000, "1m0s"),
        (3_599_999, "59m59s"),
        (7_260_000, "2h1m"),
        (90_000_000, "1d1h"),
        (-999, "0s"),
        (-5000, "-5s"),
        (2**63, "106751991167d7h"),
    ],
)
def test_an_age_is_its_two_largest_units(milliseconds: int, expected: str) -> None:
    assert age_text(milliseconds) == expected
