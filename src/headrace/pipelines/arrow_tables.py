"""Stages the rows of an Arrow flow as Parquet files. Runs in Spark's Python workers.

A task writes to the staging directory that `tables` describes, one file per day and hour, and returns the names of its
files. The driver commits the files of all successful tasks. Names are unique, so files of failed attempts are never
committed.
"""

import uuid
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.pipeline import PipelineError, Table
from headrace.pipelines.tables import DAY, HOUR, staging_directory
from headrace.pipelines.worker_files import open_directory

__all__ = ["StagedTable", "with_day_and_hour"]

_FILE_BYTES = 32 * 1024 * 1024
"""Rows are written to a file when they have about this size in memory."""
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name of the directory for nulls."""


@dataclass
class StagedTable:
    """The rows of one task for one table."""

    table: Table
    root: str
    """The directory of the table."""
    query_id: str
    batch_id: int
    rows: int = 0
    files: list[str] = field(default_factory=list)
    """The names of the written files, relative to the staging directory."""
    _waiting: list[pa.Table] = field(default_factory=list)
    _waiting_bytes: int = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(with_day_and_hour(rows, self.table))
        self._waiting_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._waiting_bytes >= _FILE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the rows that are not written yet."""
        from pyarrow import parquet

        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        fs, directory = open_directory(staging_directory(self.root, self.query_id, self.batch_id))
        hours = rows.select([DAY, HOUR]).group_by([DAY, HOUR]).aggregate([]).to_pylist()
        content = rows.drop_columns([DAY, HOUR])
        for hour in hours:
            if len(hours) == 1:
                part = content
            else:
                part = content.filter(pc.and_(pc.equal(rows[DAY], hour[DAY]), pc.equal(rows[HOUR], hour[HOUR])))
            place = f"{DAY}={hour[DAY]}/{HOUR}={hour[HOUR]}"
            name = f"{place}/{uuid.uuid4().hex}.parquet"
            fs.create_dir(f"{directory}/{place}", recursive=True)
            parquet.write_table(part, f"{directory}/{name}", filesystem=fs, compression="snappy")
            self.files.append(name)


def with_day_and_hour(rows: pa.Table, table: Table) -> pa.Table:
    """Returns the rows with the partition columns day and hour (UTC)."""
    for name in (DAY, HOUR):
        if name in rows.column_names:
            raise PipelineError(
                f"table {table.name}: the rows have a column {name!r}, which is reserved for the table's partitions"
            )
    if table.time not in rows.column_names:
        raise PipelineError(f"table {table.name}: the time column {table.time!r} is not in the rows")
    time = _time(rows.column(table.time), table)
    return rows.append_column(DAY, _format(time, "%Y-%m-%d")).append_column(HOUR, _format(time, "%H"))


def _format(time: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.strftime(time, pattern), _NULL_PARTITION)


def _time(column: pa.ChunkedArray, table: Table) -> pa.ChunkedArray:
    """Returns the time of each row, without a time zone, in UTC."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp(kind.unit)).cast(pa.timestamp("s"), safe=False)
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("s"))
    if pa.types.is_integer(kind):
        return pc.floor_temporal(column.cast(pa.int64()).cast(pa.timestamp("ms")), unit="second").cast(
            pa.timestamp("s")
        )
    raise PipelineError(
        f"table {table.name}: the time column {table.time!r} has type {kind}; expected a timestamp or milliseconds"
    )
