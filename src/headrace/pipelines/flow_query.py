"""The streaming query of one flow: its checkpoint, its batches, and its restart after a failure. Runs in the driver.

    <checkpoint>/<pipeline>/<flow>/query       Spark's checkpoint of the flow's query
    <checkpoint>/<pipeline>/<flow>/state       the flow's own state (`Context.state_dir`)
    <checkpoint>/<pipeline>/<flow>/flow.json   values that must not change while the checkpoint exists

Spark calls `FlowQuery.process_batch` for every batch, in a separate thread:

1. It calls the flow's `split`.
2. It writes all topics at once.
3. It writes the tables.

Each write detects a batch that it has already written. So a replayed batch has every row once, after a crash as well
as after a failure. Temporary failures are retried (`retries_allowed`).

Invariant: a requested stop never interrupts a batch that has begun to write, and no batch begins after it.
"""

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.common.clock import Clock
from headrace.pipelines.failures import describe_failure, retries_allowed
from headrace.pipelines.file_tree import FileTree
from headrace.pipelines.outputs import check_outputs, merge_records, table_frames, topic_frames
from headrace.pipelines.pipeline import (
    DEAD_LETTERS,
    Batch,
    Context,
    Flow,
    Frames,
    Pipeline,
    PipelineError,
    Setting,
    batch_scope,
)
from headrace.pipelines.progress import BatchResult, Progress, batch_progress
from headrace.pipelines.run_settings import RunSettings
from headrace.pipelines.sources import read_source, read_sources
from headrace.pipelines.tables import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "headrace"
_ALL_ROWS = "all of them"
_POLL_SECONDS = 0.02
_OBSERVATION_SECONDS = 1.0
"""How long to wait for observed aggregates. Another thread of Spark's delivers them at about the end of a write."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """The parts of a run that all its flows share."""

    pipeline: Pipeline
    spark: "SparkSession"
    settings: RunSettings
    pipeline_settings: dict[str, Setting]
    clock: Clock
    cores: int
    """The number of cores that Spark has for tasks."""
    stopping: threading.Event = field(default_factory=threading.Event)


class _StoppedBetweenBatches(Exception):
    """A batch began after a stop was requested. It ends before it does anything. The next run begins with it."""


class FlowQuery:
    """The streaming query of a flow. `process_batch` runs in a thread of Spark's, everything else in the runner's
    thread."""

    def __init__(self, run: Run, flow: Flow) -> None:
        self.flow = flow
        self._run = run
        settings = run.settings
        self._directory = f"{settings.checkpoint.rstrip('/')}/{run.pipeline.name}/{flow.name}"
        self._write_tasks = self._check_flow_file(flow)
        self._unfinished_batch = self._find_unfinished_batch()
        self._failures = 0
        """The number of failures in a row, without a completed batch between them."""
        self._batch_in_progress: int | None = None
        self._last_batch: int | None = None
        self._failure: BaseException | None = None
        self._stop_called = False
        self._written: dict[int, BatchResult] = {}
        self._last_report = ""
        context = self._context(Context)
        options = {"maxOffsetsPerTrigger": str(settings.max_rows_per_batch), **settings.source_options}
        options |= settings.spark_options()
        if flow.prepare is None:
            stream = read_sources(run.spark, FORMAT, flow, options)
        else:
            frames = {name: read_source(run.spark, FORMAT, topic, options) for name, topic in flow.sources.items()}
            stream = flow.prepare(frames, context)
            if not getattr(stream, "isStreaming", False):
                raise PipelineError(
                    f"flow {flow.name}: prepare returned {type(stream).__name__}; expected one streaming frame"
                )
        writer = stream.writeStream.queryName(f"{run.pipeline.name}/{flow.name}").outputMode(flow.output_mode)
        writer = writer.option("checkpointLocation", f"{self._directory}/query").foreachBatch(self.process_batch)
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger is not None:
            writer = writer.trigger(processingTime=settings.trigger)
        self._writer = writer
        self._query = writer.start()

    def _check_flow_file(self, flow: Flow) -> int:
        """Returns the number of writing tasks, which is fixed when the checkpoint is created. Raises `PipelineError` if
        the flow's sources have changed since then."""
        files = FileTree(self._run.spark, self._directory)
        name = f"{files.root}/flow.json"
        if files.exists(name):
            stored = json.loads(files.read(name))
            if stored["sources"] != list(flow.sources):
                raise PipelineError(
                    f"flow {flow.name} reads {', '.join(flow.sources)}, but its checkpoint {self._directory} was "
                    f"created for {', '.join(stored['sources'])}: use a new checkpoint directory"
                )
            return int(stored["write_tasks"])
        tasks = self._run.settings.write_tasks or self._run.cores
        files.make_directory(files.root)
        files.write(name, json.dumps({"sources": list(flow.sources), "write_tasks": tasks}).encode())
        return tasks

    def _find_unfinished_batch(self) -> int | None:
        """Returns the batch that an earlier run began and did not finish, or None. Spark stores a file per begun batch
        and per committed batch."""
        files = FileTree(self._run.spark, self._directory)
        begun, committed = (
            {int(name) for name in files.names(f"{self._directory}/query/{log}") if name.isdigit()}
            for log in ("offsets", "commits")
        )
        return max(begun - committed, default=None)

    def _context(self, create: Callable[..., Any], **fields: Any) -> Any:
        run = self._run
        return create(
            spark=fields.pop("spark", run.spark),
            pipeline=run.pipeline,
            flow=self.flow.name,
            settings=run.pipeline_settings,
            bootstrap_servers=run.settings.bootstrap_servers,
            state_dir=f"{self._directory}/state",
            **fields,
        )

    def process_batch(self, frame: "DataFrame", batch_id: int) -> None:
        """Processes a micro-batch. Spark calls this."""
        self._batch_in_progress = batch_id
        try:
            if self._run.stopping.is_set():
                raise _StoppedBetweenBatches
            self._written[batch_id] = self._write(frame, batch_id)
            self._last_batch = batch_id
            self._failures = 0
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._batch_in_progress = None

    def _write(self, frame: "DataFrame", batch_id: int) -> BatchResult:
        spark = frame.sparkSession
        query_id = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        batch = self._context(Batch, spark=spark, id=batch_id, query_id=query_id)
        with batch_scope(batch):
            frames = self._split(frame, batch)
            check_outputs(self._run.pipeline, frames)
            to_topics = topic_frames(self._run.pipeline, frames)
            to_tables = table_frames(self._run.pipeline, frames)
            if len(to_topics) + len(to_tables) > 1:
                batch.keep(frame)  # otherwise every write would read the sources again
            written = BatchResult(replayed=batch_id == self._unfinished_batch)
            if to_topics:
                self._write_topics(to_topics, batch, written)
            for table, rows in to_tables:
                warehouse = str(self._run.settings.warehouse)
                count = write_table(
                    rows, table, warehouse, query_id=query_id, batch_id=batch_id, files_per_hour=self._write_tasks
                )
                written.outputs[table.name] = written.outputs.get(table.name, 0) + (count or 0)
            written.figures.update(batch.figures)
            for observation in batch.observed:
                written.figures.update(self._figures(observation))
        return written

    def _figures(self, observation: Any) -> dict[str, Any]:
        """Returns the observed aggregates. The dict is empty if the frame was not written because the table already has
        the batch."""
        deadline = self._run.clock.monotonic() + _OBSERVATION_SECONDS
        while not observation._jo.future().isCompleted():
            if self._run.clock.monotonic() >= deadline:
                return {}
            self._run.clock.sleep(_POLL_SECONDS)
        return dict(observation.get)

    def _split(self, frame: "DataFrame", batch: Batch) -> Frames:
        if self.flow.split is not None:
            return self.flow.split(frame, batch)
        (output,) = (name for name in self._run.pipeline.outputs if name != DEAD_LETTERS)
        return {output: frame}

    def _write_topics(self, frames: list["DataFrame"], batch: Batch, written: BatchResult) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        rows = merge_records(frames, self._write_tasks, ordered=self.flow.ordered)
        by_topic, counted = dict(batch.rows_by_topic), Observation()
        if not by_topic:
            names = [str(topic.name) for topic in self._run.pipeline.topics]
            counts = [sf.count_if(sf.col("topic") == name).alias(name) for name in names]
            rows = rows.observe(counted, sf.count("*").alias(_ALL_ROWS), *counts)
        options = {**self._run.settings.spark_options(), "queryId": batch.query_id, "batchId": str(batch.id)}
        rows.write.format(FORMAT).options(**options).mode("append").save()
        if not by_topic:
            by_topic = {name: int(count) for name, count in counted.get.items()}
            by_topic["other topics"] = by_topic.pop(_ALL_ROWS) - sum(by_topic.values())
        written.outputs.update({name: count for name, count in by_topic.items() if count})

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def failed(self) -> BaseException | None:
        """The error that ended the query, or None. An error of `process_batch` is preferred over Spark's report of
        it."""
        error = None if self.active else self._query.exception()
        if error is None or self._stop_called or isinstance(self._failure, _StoppedBetweenBatches):
            return None
        return self._failure or error

    def may_restart(self) -> bool:
        """Returns True if the query failed, the error may be temporary, and it has not occurred too often in a row."""
        error = self.failed
        return error is not None and self._failures < retries_allowed(error)

    def restart(self) -> None:
        """Restarts the query from its checkpoint, which replays the failed batch."""
        error = self.failed
        assert error is not None
        _logger.warning(
            "Pipeline %s: flow %s failed and restarts from its checkpoint: %s",
            self._run.pipeline.name,
            self.flow.name,
            describe_failure(error),
        )
        self._await_termination()
        self._failures += 1
        self._failure, self._last_report = None, ""
        self._unfinished_batch = self._find_unfinished_batch()
        self._query = self._writer.start()

    def _await_termination(self) -> None:
        """Waits until Spark has removed the failed query, so that its name is free."""
        from pyspark.errors import StreamingQueryException

        with contextlib.suppress(StreamingQueryException):  # the failure that is being handled
            self._query.awaitTermination()

    def new_progress(self) -> list[Progress]:
        """Returns the batches that were committed since the last call."""
        jvm_query = self._query._jsq  # saves a thousand JVM calls compared with `recentProgress`
        reports = jvm_query.recentProgress()
        batches: list[Progress] = []
        newest = ""
        for position in reversed(range(len(reports))):
            reported = json.loads(reports[position].json())
            mark = f"{reported['timestamp']}/{reported['batchId']}"
            newest = newest or mark
            if mark == self._last_report:
                break
            if "addBatch" in reported.get("durationMs", {}):
                written = self._written.pop(reported["batchId"], BatchResult())
                batches.append(batch_progress(self._run.pipeline.name, self.flow.name, reported, written))
        self._last_report = newest or self._last_report
        return batches[::-1]

    def stop_if_idle(self) -> bool:
        """Stops the query unless a batch is in progress. Returns True if the query has ended."""
        if not self.active:
            return True
        if self._batch_in_progress is not None or not self._committed() or self.initializing:
            return False
        self._stop_called = True
        self._query.stop()
        return True

    @property
    def initializing(self) -> bool:
        """True while the query starts its sources. It must not be interrupted during this short time."""
        return str(self._query.status["message"]).startswith("Initializing")

    def _committed(self) -> bool:
        """Returns True if the checkpoint contains the last batch that was written."""
        last = self._query._jsq.lastProgress()
        return self._last_batch is None or (last is not None and int(last.batchId()) >= self._last_batch)
