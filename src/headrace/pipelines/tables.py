"""Parquet tables, partitioned by day and hour, that contain each batch exactly once. Runs in the driver.

    <warehouse>/<table>/day=2026-11-16/hour=06/<query>-<batch>-<n>.parquet      the table, for any Parquet reader
    <warehouse>/<table>/_headrace/<query>/<batch>/day=.../hour=.../*.parquet    the staged files of a batch
    <warehouse>/<table>/_headrace/<query>/<batch>.json                          the journal: the target of every file

A batch is written in three steps:

1. Write its files to the staging directory.
2. Write the journal. This commits the batch.
3. Move the files to the table. Meanwhile, a reader may see a part of the batch.

A replayed batch with a journal only finishes the moves. Without a journal, it starts over. Readers ignore names that
begin with `_`.

Invariant: a journal names a file of the table before the file exists, and no file is written twice.
"""

import json
from typing import TYPE_CHECKING

from headrace.pipelines.file_tree import FileTree
from headrace.pipelines.pipeline import PipelineError, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DAY, HOUR = "day", "hour"
_JOURNALS = "_headrace"
_JOURNALS_TO_KEEP = 2
"""The number of journals to keep per query. Spark replays at most its last batch."""


def write_table(
    frame: "DataFrame", table: Table, warehouse: str, *, query_id: str, batch_id: int, files_per_hour: int
) -> int | None:
    """Adds the rows of a batch to a table. Returns their number, or None if the table has the batch already."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    batch = TableBatch(frame.sparkSession, table, warehouse, query_id=query_id, batch_id=batch_id)
    if not batch.begin():
        return None
    observation = Observation()
    rows = with_day_and_hour(frame, table).observe(observation, sf.count("*").alias("rows"))
    rows.coalesce(files_per_hour).write.partitionBy(DAY, HOUR).parquet(batch.staged)
    count = int(observation.get["rows"])
    batch.commit(count, batch.staged_files())
    return count


def staging_directory(table_root: str, query_id: str, batch_id: int) -> str:
    """Returns the directory of the staged files of a batch."""
    return f"{table_root}/{_JOURNALS}/{query_id}/{batch_id:010}"


class TableBatch:
    """A batch of a table: its staged files and its journal."""

    def __init__(self, spark: "SparkSession", table: Table, warehouse: str, *, query_id: str, batch_id: int) -> None:
        self._table = table
        self._files = FileTree(spark, f"{warehouse}/{table.name}")
        self._prefix = f"{query_id}-{batch_id:010}"
        self._batch_id = batch_id
        self.staged = staging_directory(self._files.root, query_id, batch_id)
        self._journal = f"{self.staged}.json"

    def begin(self) -> bool:
        """Prepares an empty staging directory. If the table has the batch already, completes it and returns False."""
        if self._files.exists(self._journal):
            _finish_moves(self._files, self.staged, self._journal)
            return False
        self._files.delete(self.staged)
        return True

    def discard(self) -> None:
        """Deletes the staged files of a replay, if the table has the batch already."""
        self._files.delete(self.staged)

    def staged_files(self) -> list[str]:
        """Returns the Parquet files in the staging directory, relative to it."""
        return [
            name
            for name in self._files.tree(self.staged)
            if name.endswith(".parquet") and not name.rpartition("/")[2].startswith(("_", "."))
        ]

    def commit(self, rows: int, staged_files: list[str]) -> None:
        """Adds staged files with this number of rows to the table."""
        moves = {
            name: f"{name.rpartition('/')[0]}/{self._prefix}-{number:05}.parquet"
            for number, name in enumerate(sorted(staged_files))
        }
        if rows and not (moves and all(self._files.exists(f"{self.staged}/{name}") for name in moves)):
            raise PipelineError(
                f"table {self._table.name}: tasks wrote {rows} rows, but the driver does not see their files in "
                f"{self._files.root}: the warehouse must be on storage that the driver and all workers share"
            )
        self._files.write(self._journal, json.dumps({"rows": rows, "moves": moves}, indent=0).encode())
        _finish_moves(self._files, self.staged, self._journal)
        _delete_old_journals(self._files, self.staged.rpartition("/")[0], self._batch_id)


def with_day_and_hour(frame: "DataFrame", table: Table) -> "DataFrame":
    """Returns the frame with the partition columns day and hour."""
    from pyspark.sql import functions as sf

    for name in (DAY, HOUR):
        if name in frame.columns:
            raise PipelineError(
                f"table {table.name}: the frame has a column {name!r}, which is reserved for the table's partitions"
            )
    time = _time(frame, table)
    return frame.withColumn(DAY, sf.date_format(time, "yyyy-MM-dd")).withColumn(HOUR, sf.date_format(time, "HH"))


def _time(frame: "DataFrame", table: Table) -> "Column":
    from pyspark.sql import functions as sf

    if table.time not in frame.columns:
        raise PipelineError(f"table {table.name}: the time column {table.time!r} is not in the frame")
    type_name = frame.schema[table.time].dataType.simpleString()
    if type_name in ("timestamp", "timestamp_ntz", "date"):
        return sf.col(table.time).cast("timestamp")
    if type_name in ("bigint", "int"):
        return sf.timestamp_millis(sf.col(table.time).cast("long"))
    raise PipelineError(
        f"table {table.name}: the time column {table.time!r} has type {type_name}; expected a timestamp or milliseconds"
    )


def _finish_moves(files: FileTree, staged: str, journal: str) -> None:
    """Moves the staged files that are left. A file that is missing on both sides was moved, and then deleted by the
    user."""
    moves: dict[str, str] = json.loads(files.read(journal))["moves"]
    for directory in sorted({target.rpartition("/")[0] for target in moves.values()}):
        files.make_directory(f"{files.root}/{directory}")
    for source, target in moves.items():
        if files.exists(f"{staged}/{source}"):
            files.delete(f"{files.root}/{target}")
            files.rename(f"{staged}/{source}", f"{files.root}/{target}")
    files.delete(staged)


def _delete_old_journals(files: FileTree, journal_directory: str, batch_id: int) -> None:
    """Deletes the journals of batches that can no longer be replayed."""
    for name in files.names(journal_directory):
        number = name.partition(".")[0]
        if number.isdigit() and int(number) <= batch_id - _JOURNALS_TO_KEEP:
            files.delete(f"{journal_directory}/{name}")
