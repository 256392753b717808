"""The writers behind `df.write` and `df.writeStream`.

1. The driver creates a writer when it plans a write. The writer checks its options and is pickled to the tasks.
2. In each task, `write` receives the rows as Arrow batches.
3. `commit` or `abort` runs in the driver. A stream creates a new writer for it, so all data that it needs is in the
   messages of the tasks.

Planning runs in a separate process, so modules that only tasks need are imported in the tasks.

Each task writes its part in its own transaction (`writing`). No transaction spans all tasks. If only some tasks of a
batch succeed, the next attempt finds their markers and writes the rest.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.common.errors import ConfigError, KafkaError
from headrace.common.ids import make_random, random_uuid
from headrace.spark import markers
from headrace.spark.sink_options import SinkOptions, check_columns, sink_options

__all__ = ["BatchWriter", "StreamWriter", "TaskDone", "batch_writer", "stream_writer"]

_logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""Spark uses the run id of a stream as the job group of its jobs, including those of foreachBatch."""
_ABORT_MS = 10_000
_known_runs: set[tuple[str, str, str]] = set()
"""The query runs that this process has taken part in. A replayed batch is always the first batch of its run."""


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """The message of a successful task to the driver."""

    query: str
    batch_id: int
    rows: int
    skipped: bool
    is_first: bool
    """True if this process had not taken part in the query run before, so that the batch may be a replay."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """Returns the writer for `df.write`. Topics can only be appended to."""
    if overwrite:
        raise ConfigError("a topic cannot be overwritten: expected mode('append')")
    checked = sink_options(options, streaming=False)
    check_columns(schema, checked)
    return BatchWriter(checked, f"job-{random_uuid(make_random())}")


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: ARG001
    """Returns the writer for `df.writeStream`. All output modes append every row of a batch."""
    checked = sink_options(options, streaming=True)
    check_columns(schema, checked)
    return StreamWriter(checked)


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of `df.write`. The options `queryId` and `batchId` make it exactly once in foreachBatch."""

    def __init__(self, options: SinkOptions, job_id: str):
        self._options = options
        self._query = options.query_id or job_id
        self._batch_id = options.batch_id or 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        from headrace.spark.fetch import quick_ack

        self.__dict__.update(state)
        quick_ack()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        return _write(self._options, self._query, self._batch_id, iterator)

    def commit(self, messages: list[TaskDone | None]) -> None:  # type: ignore[override]
        if self._options.query_id is not None:
            _check_tasks(self._options, messages)

    def abort(self, messages: list[TaskDone | None]) -> None:  # type: ignore[override]
        """Aborts transactions that failed tasks may have left open, so that no reader waits for them. Does nothing if a
        later run uses the same names: it aborts them itself, and may have started already."""
        if self._options.query_id is None:
            _fence(self._options, self._query, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of `df.writeStream`."""

    def __init__(self, options: SinkOptions):
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        from headrace.spark.fetch import quick_ack

        self.__dict__.update(state)
        quick_ack()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        query, batch_id = _property(_QUERY_ID), _property(_BATCH_ID)
        if self._options.exactly_once and (query is None or batch_id is None):
            raise RuntimeError(
                f"Spark does not provide the batch id: expected the local properties {_QUERY_ID} and {_BATCH_ID}"
            )
        return _write(self._options, query or "", int(batch_id or 0), iterator)

    def commit(self, messages: list[TaskDone | None], batchId: int) -> None:  # type: ignore[override]  # noqa: ARG002, N803
        _check_tasks(self._options, messages)

    def abort(self, messages: list[TaskDone | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Does nothing: the next start of the query aborts open transactions, and may have started already."""


def _write(options: SinkOptions, query: str, batch_id: int, rows: Iterator[pa.RecordBatch]) -> TaskDone:
    from headrace.spark.garbage import freeze_imports
    from headrace.spark.worker_input import check_end, find_input
    from headrace.spark.writing import TaskPart, write_at_least_once, write_exactly_once

    freeze_imports()
    if not options.exactly_once:
        written = write_at_least_once(options, rows)
        return TaskDone(query, batch_id, written.rows, skipped=False, is_first=False)
    context = TaskContext.get()
    part = TaskPart(query, options.sink_name, batch_id, 0 if context is None else context.partitionId())
    stream = find_input()
    written = write_exactly_once(options, part, rows, lambda: check_end(stream))
    run = _property(_RUN_ID)
    key = (part.query, part.sink, run or "")
    is_first = run is None or key not in _known_runs
    _known_runs.add(key)
    return TaskDone(query, batch_id, written.rows, written.skipped, is_first)


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _check_tasks(options: SinkOptions, messages: Sequence[TaskDone | None]) -> None:
    from headrace.spark.writing import sink_admin

    successful = [message for message in messages if message is not None]
    if not options.exactly_once or not any(message.is_first for message in successful):
        return
    prefix = markers.names_prefix(successful[0].query, options.sink_name)
    markers.check_tasks(sink_admin(options), prefix, len(messages), successful[0].batch_id)


def _fence(options: SinkOptions, query: str, messages: Sequence[TaskDone | None]) -> None:
    """Fences the tasks that did not report success, and aborts their transactions."""
    from headrace.spark.writing import sink_admin

    if not options.exactly_once:
        return
    names = [
        markers.task_name(query, options.sink_name, partition)
        for partition, message in enumerate(messages)
        if message is None
    ]
    try:
        sink_admin(options).fence_producers(names, timeout_ms=_ABORT_MS)
    except KafkaError as error:
        _logger.info(
            "Spark sink: cannot abort the transactions of failed tasks of %s; they end by transaction.timeout.ms: %s",
            query,
            error,
        )
