"""Parquet tables, partitioned by day and hour, that have each batch exactly once. Runs in the driver.

    <warehouse>/<table>/day=2026-11-16/hour=06/<query>-<batch>-<n>.parquet      the table, for any reader of Parquet
    <warehouse>/<table>/_headrace/<query>/<batch>/day=.../hour=.../*.parquet    what the tasks of a batch have written
    <warehouse>/<table>/_headrace/<query>/<batch>.json                          the journal: which file goes where

A batch is written beside the table; then the journal is written, and with that the batch is decided; then the files are
moved. A batch that is replayed finds its journal and only finishes the moves, or finds none and begins anew. Readers
pass over names that begin with `_`. While files are moved a reader may see a part of the batch.

Invariant: a file of the table is named in a journal before it is there, and is never written twice.
"""

import json
from typing import TYPE_CHECKING

from headrace.pipelines.file_tree import FileTree
from headrace.pipelines.pipeline import PipelineError, Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DAY, HOUR = "day", "hour"
_JOURNALS = "_headrace"
_KEPT = 2
"""Journals of a query that stay: Spark replays its last batch at most."""


def write_table(
    frame: "DataFrame", table: Table, warehouse: str, *, query_id: str, batch_id: int, files_per_hour: int
) -> int | None:
    """Adds the rows of a batch to a table; returns how many, or None if the batch was there already."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    files = FileTree(frame.sparkSession, f"{warehouse}/{table.name}")
    home = f"{files.root}/{_JOURNALS}/{query_id}"
    staged, journal = f"{home}/{batch_id:010}", f"{home}/{batch_id:010}.json"
    if files.exists(journal):
        _finish(files, staged, journal)
        return None
    files.delete(staged)
    counted = Observation()
    rows = with_day_and_hour(frame, table).observe(counted, sf.count("*").alias("rows"))
    rows.coalesce(files_per_hour).write.partitionBy(DAY, HOUR).parquet(staged)
    count = int(counted.get["rows"])
    moves = _moves(files.tree(staged), f"{query_id}-{batch_id:010}")
    if count and not moves:
        raise PipelineError(
            f"table {table.name}: tasks wrote {count} rows, but {files.root} is empty as the driver sees it: "
            "the warehouse must be on storage that driver and workers share"
        )
    files.write(journal, json.dumps({"rows": count, "moves": moves}, indent=0).encode())
    _finish(files, staged, journal)
    _forget(files, home, batch_id)
    return count


def with_day_and_hour(frame: "DataFrame", table: Table) -> "DataFrame":
    """The frame with the two columns that the table is partitioned by."""
    from pyspark.sql import functions as sf

    for name in (DAY, HOUR):
        if name in frame.columns:
            raise PipelineError(f"table {table.name}: the frame has a column {name!r}, which the table makes itself")
    time = _time(frame, table)
    return frame.withColumn(DAY, sf.date_format(time, "yyyy-MM-dd")).withColumn(HOUR, sf.date_format(time, "HH"))


def _time(frame: "DataFrame", table: Table) -> "Column":
    from pyspark.sql import functions as sf

    if table.time not in frame.columns:
        raise PipelineError(f"table {table.name}: its time is the column {table.time!r}, which the frame does not have")
    kind = frame.schema[table.time].dataType.simpleString()
    if kind in ("timestamp", "timestamp_ntz", "date"):
        return sf.col(table.time).cast("timestamp")
    if kind in ("bigint", "int"):
        return sf.timestamp_millis(sf.col(table.time).cast("long"))
    raise PipelineError(
        f"table {table.name}: its time {table.time!r} is a {kind}, expected a timestamp or milliseconds"
    )


def _moves(staged: list[str], prefix: str) -> dict[str, str]:
    """From the path of each staged file to its path in the table."""
    written = [
        name for name in staged if name.endswith(".parquet") and not name.rpartition("/")[2].startswith(("_", "."))
    ]
    return {name: f"{name.rpartition('/')[0]}/{prefix}-{number:05}.parquet" for number, name in enumerate(written)}


def _finish(files: FileTree, staged: str, journal: str) -> None:
    """Moves what is not in its place yet. What is neither here nor there was moved, and then deleted by the user."""
    moves: dict[str, str] = json.loads(files.read(journal))["moves"]
    for directory in sorted({new.rpartition("/")[0] for new in moves.values()}):
        files.make_directory(f"{files.root}/{directory}")
    for old, new in moves.items():
        if files.exists(f"{staged}/{old}"):
            files.delete(f"{files.root}/{new}")
            files.rename(f"{staged}/{old}", f"{files.root}/{new}")
    files.delete(staged)


def _forget(files: FileTree, home: str, batch_id: int) -> None:
    """Removes journals of batches that cannot come again."""
    for name in files.names(home):
        number = name.partition(".")[0]
        if number.isdigit() and int(number) <= batch_id - _KEPT:
            files.delete(f"{home}/{name}")
