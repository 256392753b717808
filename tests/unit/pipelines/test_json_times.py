"""Times as `from_json` reads them. The expected values were checked with Spark 4.3."""

import pytest

from headrace.pipelines.json_times import parse_database_time, parse_date, parse_time, write_date, write_time

JANUARY_31 = 1_769_817_600_000_000
AT_FOUR = JANUARY_31 + (4 * 3600 + 5 * 60 + 6) * 1_000_000
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026", 1_767_225_600_000_000),
        ("2026-1", 1_767_225_600_000_000),
        ("2026-01-31", JANUARY_31),
        ("2026-01-31 ", JANUARY_31),
        ("2026-1-3 4:5:6", 1_767_413_106_000_000),
        ("2026-01-31 04", JANUARY_31 + 4 * HOUR),
        ("2026-01-31 04:05", JANUARY_31 + 4 * HOUR + 300_000_000),
        *((f"2026-01-31T04:05:06{zone}", AT_FOUR) for zone in ("", "Z", " Z", "UTC", " GMT", ".", "-00:00", "\n")),
        *(
            (f"2026-01-31 04:05:06{zone}", AT_FOUR - HOUR)
            for zone in ("+1", "+01", "+0100", " GMT+1", "UT+1", " +01:00")
        ),
        ("2026-01-31T04:05:06+1:5", AT_FOUR - HOUR - 300_000_000),
        ("2026-01-31T04:05:06-01:00:30", AT_FOUR + HOUR + 30_000_000),
        ("2026-01-31T04:05:06+18:00", AT_FOUR - 18 * HOUR),
        ("2026-01-31T04:05:06.123456789+01:00", AT_FOUR - HOUR + 123_456),
        ("02026-01-31", JANUARY_31),
        ("0000-01-01", -62_167_219_200_000_000),
        ("-0001-01-01 00:00:00", -62_198_755_200_000_000),
        ("294247-01-01", 9_223_371_244_800_000_000),
        ("12345", 327_403_382_400_000_000),
    ],
)
def test_reads_times(text: str, micros: int) -> None:
    assert parse_time(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "2026-01-31T", "2026-01-31T04:05:06z", "2026-01-31T04:05:06+18:01", "2026-01-31T04:05:06+00:60"),
        *("2026-01-31T04:05:60", "2026-01-31T24:00:00", "2026-02-30", "300000-01-01", "1234567-01-01", "2026-01-31Z"),
        *("2026-01-31T04:05+01:00", "2026-01-31T04:05:06,5", "20260131T040506Z", "2026-001-01", "2026-01-31t04:05:06"),
        *("２０２６-01-31", "04:05:06", "2026-01-31T04:05:06 Europe/Berlin"),
    ],
)
def test_rejects_other_text(text: str) -> None:
    assert parse_time(text) is None


def test_times_of_databases() -> None:
    assert parse_database_time("2026-01-31 04:05:06") == AT_FOUR
    assert parse_database_time("2026-01-31 04:05:06.25") == AT_FOUR + 250_000
    for text in (
        "2026-01-31T04:05:06",
        "2026-01-31",
        "2026-01-31 04:05:06Z",
        "2026-02-29 00:00:00",
        "2026-01-31 4:05:06",
    ):
        assert parse_database_time(text) is None


def test_dates() -> None:
    dates = {
        "2026": 20454,
        "2026-1": 20454,
        "2026-01-31 x": 20484,
        " 2026-01-31 ": 20484,
        "-0001-01-01": -719893,
        "7": 7,
    }
    assert {text: parse_date(text) for text in dates} == dates
    assert [parse_date(text) for text in ("2026-02-30", "2026-01-31Z", "x", "")] == [None] * 4


def test_writes_any_year() -> None:
    assert [write_date(days) for days in (20484, -719893, 2932897)] == ["2026-01-31", "-0001-01-01", "+10000-01-01"]
    assert write_time(AT_FOUR + 250_999) == "2026-01-31T04:05:06.250Z"
    assert write_time(-1) == "1969-12-31T23:59:59.999Z"
