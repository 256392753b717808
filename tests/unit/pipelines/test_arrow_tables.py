"""Staged Parquet files of a task: one per day and hour."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace.pipelines import arrow_tables
from headrace.pipelines.arrow_tables import StagedTable, with_day_and_hour
from headrace.pipelines.pipeline import PipelineError, Table

TABLE = Table("orders", time="ts")
HOUR_MS = 3_600_000


def staged(directory: Path) -> StagedTable:
    return StagedTable(TABLE, f"file:{directory}/orders", "query", 7)


def test_one_file_per_hour(tmp_path: Path) -> None:
    table = staged(tmp_path)
    table.add(pa.table({"id": [1, 2, 3], "ts": [0, HOUR_MS, 25 * HOUR_MS]}))
    table.add(pa.table({"id": [4, 5], "ts": [1, None]}))
    assert table.files == []
    table.flush()
    root = tmp_path / "orders" / "_headrace" / "query" / "0000000007"
    ids = {name.rpartition("/")[0]: parquet.ParquetFile(root / name).read().to_pydict()["id"] for name in table.files}
    assert ids == {
        "day=1970-01-01/hour=00": [1, 4],
        "day=1970-01-01/hour=01": [2],
        "day=1970-01-02/hour=01": [3],
        "day=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__": [5],
    }
    assert table.rows == 5


def test_writes_large_tables_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_tables, "_FILE_BYTES", 100)
    table = staged(tmp_path)
    for number in range(4):
        table.add(pa.table({"id": list(range(10)), "ts": [number] * 10}))
    table.flush()
    assert (len(table.files), table.rows) == (4, 40)


@pytest.mark.parametrize(
    ("times", "hour"),
    [
        (pa.array([dt.datetime(2026, 3, 4, 5, 59, 59, 999_999)], pa.timestamp("us", "UTC")), "05"),
        (pa.array([dt.datetime(2026, 3, 4, 5)], pa.timestamp("ns")), "05"),
        (pa.array([dt.datetime(2026, 3, 4, 5)], pa.timestamp("s", "America/New_York")), "05"),
        (pa.array([dt.date(2026, 3, 4)]), "00"),
        (pa.array([dt.datetime(2026, 3, 4, 5)], pa.timestamp("ms")).cast(pa.int64()), "05"),
    ],
)
def test_types_of_the_time_column(times: pa.Array, hour: str) -> None:
    rows = with_day_and_hour(pa.table({"ts": times}), TABLE)
    assert (rows["day"].to_pylist(), rows["hour"].to_pylist()) == (["2026-03-04"], [hour])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"ts": [1], "day": ["x"]}), "a column 'day', which is reserved"),
        (pa.table({"id": [1]}), "the time column 'ts' is not in the rows"),
        (pa.table({"ts": ["now"]}), "has type string; expected a timestamp or milliseconds"),
    ],
)
def test_invalid_rows(rows: pa.Table, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        with_day_and_hour(rows, TABLE)
