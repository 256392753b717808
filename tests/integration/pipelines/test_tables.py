"""Parquet tables: partitions, and each batch exactly once, wherever the previous run ended."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines import PipelineError, Table, tables
from headrace.pipelines.file_tree import FileTree
from headrace.pipelines.tables import write_table
from headrace.shop.state_store import StateDirectory

MS = 1772600767089  # 2026-03-04 05:06:07.089
TABLE = Table("clicks", time="ts")


def rows(spark: Any, ids: range, ts: int = MS) -> Any:
    return spark.createDataFrame([(number, ts) for number in ids], "id bigint, ts bigint")


def write(spark: Any, warehouse: Path, ids: range, batch_id: int, ts: int = MS) -> int | None:
    return write_table(
        rows(spark, ids, ts), TABLE, str(warehouse), query_id="query", batch_id=batch_id, files_per_hour=1
    )


def ids_of(spark: Any, warehouse: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(str(warehouse / "clicks")).collect())


def test_writes_files_atomically(spark: Any, tmp_path: Path) -> None:
    """Applies to the files of the runner and of flows."""
    (tmp_path / "one.tmp").write_bytes(b"of a process that was killed")
    files = StateDirectory(spark, str(tmp_path))
    assert files.list() == []
    content = bytes(range(256)) * 1000
    files.store("one", content)
    files.write(f"{files.root}/two", b"")
    assert (files.list(), files.load("one"), files.read(f"{files.root}/two")) == (["one", "two"], content, b"")
    assert [path.name for path in tmp_path.glob("*.tmp")] == []
    files.remove("one")
    files.remove("never there")
    assert files.list() == ["two"]


def test_partitions_rows_by_day_and_hour(spark: Any, tmp_path: Path) -> None:
    assert write(spark, tmp_path, range(3), 0) == 3
    assert write(spark, tmp_path, range(3, 5), 1, ts=MS + 7_200_000) == 2
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("clicks/day=*/hour=*/*.parquet"))
    assert found == [
        "clicks/day=2026-03-04/hour=05/query-0000000000-00000.parquet",
        "clicks/day=2026-03-04/hour=07/query-0000000001-00000.parquet",
    ]
    table = spark.read.parquet(str(tmp_path / "clicks"))
    assert table.columns == ["id", "ts", "day", "hour"]
    assert sorted(row.id for row in table.where("hour = 7").collect()) == [3, 4]
    assert [path.name for path in tmp_path.glob("clicks/_headrace/query/*") if path.is_dir()] == []


def test_does_not_write_a_batch_twice(spark: Any, tmp_path: Path) -> None:
    write(spark, tmp_path, range(3), 0)
    assert write(spark, tmp_path, range(3), 0) is None
    assert ids_of(spark, tmp_path) == [0, 1, 2]


def test_batch_without_journal_starts_over(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FileTree, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            write(spark, tmp_path, range(3), 0)
    assert list(tmp_path.glob("clicks/day=*")) == []
    assert write(spark, tmp_path, range(3), 0) == 3
    assert ids_of(spark, tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_batch_with_journal_finishes_its_moves(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    frame = rows(spark, range(2)).union(rows(spark, range(2, 5), MS + 3_600_000)).coalesce(1)
    renames = []
    rename = FileTree.rename

    def crash(self: FileTree, old: str, new: str) -> None:
        if new.endswith(".parquet"):
            if len(renames) == moved:
                raise KeyboardInterrupt
            renames.append(new)
        rename(self, old, new)

    def write_frame() -> int | None:
        return write_table(frame, TABLE, str(tmp_path), query_id="query", batch_id=7, files_per_hour=1)

    with monkeypatch.context() as patch:
        patch.setattr(FileTree, "rename", crash)
        if moved < 2:
            with pytest.raises(KeyboardInterrupt):
                write_frame()
        else:
            assert write_frame() == 5
    assert len(list(tmp_path.glob("clicks/day=*/hour=*/*.parquet"))) == moved
    assert write_frame() is None
    assert ids_of(spark, tmp_path) == [0, 1, 2, 3, 4]
    assert not (tmp_path / "clicks/_headrace/query/0000000007").exists()


def test_replay_does_not_restore_deleted_files(spark: Any, tmp_path: Path) -> None:
    write(spark, tmp_path, range(3), 0)
    for file in tmp_path.glob("clicks/day=*/hour=*/*"):
        file.unlink()
    assert write(spark, tmp_path, range(3), 0) is None
    assert list(tmp_path.glob("clicks/day=*/hour=*/*.parquet")) == []


def test_deletes_old_journals(spark: Any, tmp_path: Path) -> None:
    home = tmp_path / "clicks/_headrace/query"
    home.mkdir(parents=True)
    for batch_id in range(4):
        (home / f"{batch_id:010}.json").write_text(json.dumps({"moves": {}}))
    assert write(spark, tmp_path, range(1), 4) == 1
    assert sorted(path.name for path in home.glob("*.json")) == ["0000000003.json", "0000000004.json"]


def test_empty_batch_leaves_the_table_unchanged(spark: Any, tmp_path: Path) -> None:
    assert write(spark, tmp_path, range(0), 0) == 0
    assert list(tmp_path.glob("clicks/day=*")) == []


def test_time_column_may_be_a_timestamp(spark: Any) -> None:
    when = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    frame = spark.createDataFrame([(when,)], "at timestamp")
    (row,) = tables.with_day_and_hour(frame, Table("t", time="at")).collect()
    assert (row.day, row.hour) == ("2026-12-31", "23")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id bigint", "the time column 'ts' is not in the frame"),
        ("ts string", "has type string; expected a timestamp or milliseconds"),
        ("ts bigint, day string", "a column 'day', which is reserved"),
    ],
)
def test_rejects_frames_that_do_not_fit_the_table(spark: Any, schema: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        tables.with_day_and_hour(spark.createDataFrame([], schema), TABLE)


def test_rejects_a_warehouse_that_the_driver_cannot_see(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileTree, "tree", lambda *_: [])
    with pytest.raises(PipelineError, match="must be on storage that the driver and all workers share"):
        write(spark, tmp_path, range(3), 0)
