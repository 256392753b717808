"""The writers that Spark sees, for `df.write` and `df.writeStream`.

A writer is made in the driver, when a write is planned, checks what it was given, and is pickled to the tasks, where
`write` gets the rows as Arrow batches. `commit` and `abort` run in the driver again; a stream makes a new writer for
each of them, so what they need to know comes with the tasks' messages. What only tasks need is imported there: planning
happens in a process of its own.

A task writes its part by itself, as a transaction (`writing`): there is none over all tasks. So a batch some of whose
tasks have succeeded is finished by the next attempt, which finds the markers of those that did.
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
"""Spark's streams have the id of their run as the group of their jobs, also in foreachBatch."""
_ABORT_MS = 10_000
_seen: set[tuple[str, str, str]] = set()
"""Runs of queries that this process has had a part of. A batch that is run again is the first of its run."""


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    batch_id: int
    rows: int
    skipped: bool
    is_first: bool
    """Whether the process had no part of this run of the query before: the batch may be one that is run again."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """For `df.write`. Topics are only appended to."""
    if overwrite:
        raise ConfigError("a topic cannot be overwritten: expected mode('append')")
    checked = sink_options(options, streaming=False)
    check_columns(schema, checked)
    return BatchWriter(checked, f"job-{random_uuid(make_random())}")


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: ARG001
    """For `df.writeStream`. All output modes do: each row that comes out of a batch is appended."""
    checked = sink_options(options, streaming=True)
    check_columns(schema, checked)
    return StreamWriter(checked)


class BatchWriter(DataSourceArrowWriter):
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
        """Ends what failed tasks may have left open, so that no reader waits for it. But not under a name that a later
        run has too: that one ends it by itself, and may be at work already."""
        if self._options.query_id is None:
            _fence(self._options, self._query, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions):
        self._options = options

    def __setstate__(self, state: dict[str, Any]) -> None:
        from headrace.spark.fetch import quick_ack

        self.__dict__.update(state)
        quick_ack()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        query, batch_id = _property(_QUERY_ID), _property(_BATCH_ID)
        if self._options.exactly_once and (query is None or batch_id is None):
            raise RuntimeError(f"Spark does not say which batch this is: expected {_QUERY_ID} and {_BATCH_ID}")
        return _write(self._options, query or "", int(batch_id or 0), iterator)

    def commit(self, messages: list[TaskDone | None], batchId: int) -> None:  # type: ignore[override]  # noqa: ARG002, N803
        _check_tasks(self._options, messages)

    def abort(self, messages: list[TaskDone | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """The query's next start ends what is open. It may be at work already, under the same names: nothing to do."""


def _write(options: SinkOptions, query: str, batch_id: int, rows: Iterator[pa.RecordBatch]) -> TaskDone:
    from headrace.spark.worker_input import check_end, find_input
    from headrace.spark.writing import TaskPart, write_at_least_once, write_exactly_once

    if not options.exactly_once:
        written = write_at_least_once(options, rows)
        return TaskDone(query, batch_id, written.rows, skipped=False, is_first=False)
    context = TaskContext.get()
    part = TaskPart(query, options.sink_name, batch_id, 0 if context is None else context.partitionId())
    stream = find_input()
    written = write_exactly_once(options, part, rows, lambda: check_end(stream))
    run = _property(_RUN_ID)
    key = (part.query, part.sink, run or "")
    is_first = run is None or key not in _seen
    _seen.add(key)
    return TaskDone(query, batch_id, written.rows, written.skipped, is_first)


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _check_tasks(options: SinkOptions, messages: Sequence[TaskDone | None]) -> None:
    from headrace.spark.writing import sink_admin

    done = [message for message in messages if message is not None]
    if not options.exactly_once or not any(message.is_first for message in done):
        return
    prefix = markers.names_prefix(done[0].query, options.sink_name)
    markers.check_tasks(sink_admin(options), prefix, len(messages), done[0].batch_id)


def _fence(options: SinkOptions, query: str, messages: Sequence[TaskDone | None]) -> None:
    """Shuts out the tasks that have not said that they are done, and aborts what they wrote."""
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
        _logger.info("transactions of failed tasks are left to their timeout: %s", error)
