from datetime import timedelta
from pathlib import Path

import click
import pytest

from headrace.cli.common.tool import Failure
from headrace.cli.groups.group_resets import parse_datetime, parse_duration, parse_topics, read_plan
from headrace.common.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1H", timedelta(hours=1)),
        ("P7D", timedelta(days=7)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT0S", timedelta()),
    ],
)
def test_parses_durations(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1D", "-PT1H", "PT1.5H"])
def test_rejects_invalid_durations(text: str) -> None:
    with pytest.raises(click.UsageError, match="expected an ISO 8601 duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+0100", 0),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_parses_datetimes(text: str, expected: int) -> None:
    assert parse_datetime(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "2020-01-01", "2020-13-01T00:00:00"])
def test_rejects_invalid_datetimes(text: str) -> None:
    with pytest.raises(click.UsageError, match="expected YYYY-MM-DDThh:mm:ss"):
        parse_datetime(text)


def test_parses_topics() -> None:
    assert parse_topics(["a", "b:0,2"]) == {"a": None, "b": [0, 2]}
    with pytest.raises(click.UsageError):
        parse_topics(["a:first"])


def test_reads_plans_from_files(tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("t,0,5\n\nt,1,7\n")
    expected = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    assert read_plan(str(file), ["g"]) == {"g": expected}
    file.write_text("g,t,0,5\nh,t,1,7\nother,t,0,0\n")
    assert read_plan(str(file), ["g", "h"]) == {"g": {TopicPartition("t", 0): 5}, "h": {TopicPartition("t", 1): 7}}
    file.write_text("t,0,5\nt,zero,5\n")
    with pytest.raises(Failure, match="line 2"):
        read_plan(str(file), ["g"])
    file.write_text("other,t,0,5\n")
    with pytest.raises(Failure, match="has no row for group 'g'"):
        read_plan(str(file), ["g"])
    with pytest.raises(Failure, match="has no row for any of the groups 'g', 'h'"):
        read_plan(str(file), ["g", "h"])
    with pytest.raises(click.UsageError, match="none: No such file or directory"):
        read_plan(str(tmp_path / "none"), ["g"])
    with pytest.raises(click.UsageError, match="Is a directory"):
        read_plan(str(tmp_path), ["g"])
