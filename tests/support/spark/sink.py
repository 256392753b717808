"""Shared parts of the tests of Spark's sink: writing, reading back, and a sink whose tasks fail at a chosen point.

Spark's workers import this module, so it may import only packages that the workers have.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import headrace
from headrace.spark import clients
from headrace.spark.source import HeadraceDataSource


def read_records(bootstrap: str, *topics: str, isolation: str = "read_committed") -> list[Any]:
    """Returns every record of the topics, in order within a partition."""
    found: list[Any] = []
    with headrace.Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
    ) as consumer:
        tps = [
            headrace.TopicPartition(topic, number)
            for topic in topics
            for number in consumer.partitions_for_topic(topic) or ()
        ]
        ends = consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning()
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(records)
    return found


def numbers(bootstrap: str, *topics: str, isolation: str = "read_committed") -> list[int]:
    """Returns the values of all records, which are numbers, sorted."""
    return sorted(int(each.value) for each in read_records(bootstrap, *topics, isolation=isolation))


def save(frame: Any, bootstrap: str, source: str = "headrace", **options: object) -> None:
    writer = frame.write.format(source).mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).options(**options).save()


class FaultySource(HeadraceDataSource):
    """`format("headrace-faulty")`: like `headrace`, but the first attempt of each task of a write has the fault
    `fault`:

    raise-after     the rows are committed, and the task fails
    kill-after      the rows are committed, and the worker dies
    kill-before     the worker dies after the last row is sent, before the commit
    stand-still     its rows are sent but not committed while the file `while` exists, which it creates
    fail-task-1     every attempt of task 1 fails before its first row while the file `while` exists
    """

    @classmethod
    def name(cls) -> str:
        return "headrace-faulty"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        inner = super().writer(schema, overwrite)
        return FaultyWriter(inner, self.options["fault"], self.options.get("while", ""))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        inner = super().streamWriter(schema, overwrite)
        return FaultyStreamWriter(inner, self.options["fault"], self.options.get("while", ""))


class _Faults:
    def __init__(self, inner: Any, fault: str, file: str):
        self.inner = inner
        self.fault = fault
        self.file = file

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        fault = self.fault if context.attemptNumber() == 0 else ""
        if self.fault == "fail-task-1" and context.partitionId() == 1 and os.path.exists(self.file):
            raise RuntimeError("this task was to fail")
        if fault == "kill-before":
            iterator = _then_die(iterator)
        elif fault == "stand-still":
            iterator = _then_wait(iterator, Path(self.file))
        done = self.inner.write(iterator)
        if fault == "raise-after":
            raise RuntimeError("this attempt was to fail")
        if fault == "kill-after":
            os.kill(os.getpid(), signal.SIGKILL)
        found: WriterCommitMessage = done
        return found


class FaultyWriter(_Faults, DataSourceArrowWriter):
    def commit(self, messages: Any) -> None:
        self.inner.commit(messages)

    def abort(self, messages: Any) -> None:
        self.inner.abort(messages)


class FaultyStreamWriter(_Faults, DataSourceStreamArrowWriter):
    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        self.inner.commit(messages, batchId)

    def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        self.inner.abort(messages, batchId)


def _then_die(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows
    _flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _then_wait(rows: Iterator[pa.RecordBatch], file: Path) -> Iterator[pa.RecordBatch]:
    yield from rows
    _flush()
    file.touch()
    while file.exists():
        time.sleep(0.02)


def _flush() -> None:
    """Flushes the producers of the process."""
    for client in clients._clients.values():
        if hasattr(client, "producer"):
            client.producer.flush(timeout_ms=30_000)
