"""A flow that runs: its checkpoint, its query, and what is done with each batch. Runs in the driver.

    <checkpoint>/<pipeline>/<flow>/query       Spark's checkpoint of the flow's query
    <checkpoint>/<pipeline>/<flow>/state       what the flow itself keeps (`Context.state_dir`)
    <checkpoint>/<pipeline>/<flow>/flow.json   what must stay the same as long as the checkpoint lives

A batch is a call of `FlowQuery.batch`, in a thread of Spark's: `split`, then one write to all topics, then the
tables. Each of them finds out by itself if it did this batch before, so that a batch that is replayed has every row
once, after a crash as well as after a failure. What fails in Spark is given a second try (`retries_allowed`).

Invariant: a batch that has begun to write is never interrupted by a stop that was asked for; none begins after it.
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
    within,
)
from headrace.pipelines.progress import Progress, Written, batch_progress
from headrace.pipelines.run_settings import RunSettings
from headrace.pipelines.sources import read_source, read_sources
from headrace.pipelines.tables import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "headrace"
_ALL = "all of them"
_POLL = 0.02
_OBSERVED_LATER = 1.0
"""What a write observed is told by another thread of Spark's, at about the time when the write returns."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """What the flows of a run have in common."""

    pipeline: Pipeline
    spark: "SparkSession"
    settings: RunSettings
    chosen: dict[str, Setting]
    """The pipeline's settings."""
    clock: Clock
    cores: int
    """That Spark has for tasks."""
    stopping: threading.Event = field(default_factory=threading.Event)


class _StoppedBetweenBatches(Exception):
    """A batch began after the stop was asked for: it ends before it did anything, and is the first of the next run."""


class FlowQuery:
    """A flow's query. `batch` runs in a thread of Spark's, everything else in that of the runner's user."""

    def __init__(self, run: Run, flow: Flow) -> None:
        self.flow = flow
        self._run = run
        settings = run.settings
        self._home = f"{settings.checkpoint.rstrip('/')}/{run.pipeline.name}/{flow.name}"
        self._tasks = self._remembered(flow)
        self._unfinished = self._begun_before()
        self._failures = 0
        """In a row, without a batch that was done."""
        self._at_work: int | None = None
        self._done: int | None = None
        self._failure: BaseException | None = None
        self._told_to_stop = False
        self._written: dict[int, Written] = {}
        self._seen = ""
        context = self._context(Context)
        options = {"maxOffsetsPerTrigger": str(settings.max_rows_per_batch), **settings.source_options}
        options |= settings.spark_options()
        if flow.prepare is None:
            stream = read_sources(run.spark, FORMAT, flow, options)
        else:
            frames = {name: read_source(run.spark, FORMAT, topic, options) for name, topic in flow.sources.items()}
            stream = flow.prepare(frames, context)
            if not getattr(stream, "isStreaming", False):
                raise PipelineError(f"flow {flow.name}: prepare returned {type(stream).__name__}, expected one stream")
        writer = stream.writeStream.queryName(f"{run.pipeline.name}/{flow.name}").outputMode(flow.output_mode)
        writer = writer.option("checkpointLocation", f"{self._home}/query").foreachBatch(self.batch)
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger is not None:
            writer = writer.trigger(processingTime=settings.trigger)
        self._writer = writer
        self._query = writer.start()

    def _remembered(self, flow: Flow) -> int:
        """The number of writing tasks, fixed when the checkpoint was new. Sources must be the same as then."""
        files = FileTree(self._run.spark, self._home)
        name = f"{files.root}/flow.json"
        if files.exists(name):
            known = json.loads(files.read(name))
            if known["sources"] != list(flow.sources):
                raise PipelineError(
                    f"flow {flow.name} has other sources ({', '.join(flow.sources)}) than its checkpoint "
                    f"{self._home} ({', '.join(known['sources'])}): give a new checkpoint"
                )
            return int(known["write_tasks"])
        tasks = self._run.settings.write_tasks or self._run.cores
        files.make_directory(files.root)
        files.write(name, json.dumps({"sources": list(flow.sources), "write_tasks": tasks}).encode())
        return tasks

    def _begun_before(self) -> int | None:
        """The batch that an earlier run began and did not finish, if there is one: Spark keeps a file for each."""
        files = FileTree(self._run.spark, self._home)
        begun, done = (
            {int(name) for name in files.names(f"{self._home}/query/{log}") if name.isdigit()}
            for log in ("offsets", "commits")
        )
        return max(begun - done, default=None)

    def _context(self, kind: Callable[..., Any], **more: Any) -> Any:
        run = self._run
        return kind(
            spark=more.pop("spark", run.spark),
            pipeline=run.pipeline,
            flow=self.flow.name,
            settings=run.chosen,
            bootstrap_servers=run.settings.bootstrap_servers,
            state_dir=f"{self._home}/state",
            **more,
        )

    def batch(self, frame: "DataFrame", batch_id: int) -> None:
        """What Spark calls with each micro-batch."""
        self._at_work = batch_id
        try:
            if self._run.stopping.is_set():
                raise _StoppedBetweenBatches
            self._written[batch_id] = self._write(frame, batch_id)
            self._done = batch_id
            self._failures = 0
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._at_work = None

    def _write(self, frame: "DataFrame", batch_id: int) -> Written:
        spark = frame.sparkSession
        query_id = str(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        batch = self._context(Batch, spark=spark, id=batch_id, query_id=query_id)
        with within(batch):
            frames = self._split(frame, batch)
            check_outputs(self._run.pipeline, frames)
            to_topics = topic_frames(self._run.pipeline, frames)
            to_tables = table_frames(self._run.pipeline, frames)
            if len(to_topics) + len(to_tables) > 1:
                batch.keep(frame)  # or each of them would read the sources again
            written = Written(replayed=batch_id == self._unfinished)
            if to_topics:
                self._write_topics(to_topics, batch, written)
            for table, rows in to_tables:
                warehouse = str(self._run.settings.warehouse)
                count = write_table(
                    rows, table, warehouse, query_id=query_id, batch_id=batch_id, files_per_hour=self._tasks
                )
                written.outputs[table.name] = written.outputs.get(table.name, 0) + (count or 0)
            written.figures.update(batch.figures)
            for observation in batch.observed:
                written.figures.update(self._figures(observation))
        return written

    def _figures(self, observation: Any) -> dict[str, Any]:
        """What was observed; nothing if the frame was not written, as that of a table which had the batch already."""
        deadline = self._run.clock.monotonic() + _OBSERVED_LATER
        while not observation._jo.future().isCompleted():
            if self._run.clock.monotonic() >= deadline:
                return {}
            self._run.clock.sleep(_POLL)
        return dict(observation.get)

    def _split(self, frame: "DataFrame", batch: Batch) -> Frames:
        if self.flow.split is not None:
            return self.flow.split(frame, batch)
        (output,) = (name for name in self._run.pipeline.outputs if name != DEAD_LETTERS)
        return {output: frame}

    def _write_topics(self, frames: list["DataFrame"], batch: Batch, written: Written) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        rows = merge_records(frames, self._tasks, ordered=self.flow.ordered)
        by_topic, counted = dict(batch.rows_by_topic), Observation()
        if not by_topic:
            names = [str(topic.name) for topic in self._run.pipeline.topics]
            counts = [sf.count_if(sf.col("topic") == name).alias(name) for name in names]
            rows = rows.observe(counted, sf.count("*").alias(_ALL), *counts)
        options = {**self._run.settings.spark_options(), "queryId": batch.query_id, "batchId": str(batch.id)}
        rows.write.format(FORMAT).options(**options).mode("append").save()
        if not by_topic:
            by_topic = {name: int(count) for name, count in counted.get.items()}
            by_topic["other topics"] = by_topic.pop(_ALL) - sum(by_topic.values())
        written.outputs.update({name: count for name, count in by_topic.items() if count})

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def failed(self) -> BaseException | None:
        """Why the query ended, if it was not meant to. What went wrong in a batch is known first hand."""
        error = None if self.active else self._query.exception()
        if error is None or self._told_to_stop or isinstance(self._failure, _StoppedBetweenBatches):
            return None
        return self._failure or error

    def may_start_again(self) -> bool:
        """It failed, in a way that may pass, and did not do so time and again."""
        cause = self.failed
        return cause is not None and self._failures < retries_allowed(cause)

    def start_again(self) -> None:
        """From the checkpoint: the batch that failed is replayed."""
        cause = self.failed
        assert cause is not None
        _logger.warning("flow %s failed, and goes on from its checkpoint: %s", self.flow.name, describe_failure(cause))
        self._ended()
        self._failures += 1
        self._failure, self._seen = None, ""
        self._unfinished = self._begun_before()
        self._query = self._writer.start()

    def _ended(self) -> None:
        """Waits until Spark has forgotten a query that failed, and its name is free."""
        from pyspark.errors import StreamingQueryException

        with contextlib.suppress(StreamingQueryException):  # which is why it is started again
            self._query.awaitTermination()

    def new_progress(self) -> list[Progress]:
        """Batches that were committed since the last call."""
        jvm_query = self._query._jsq  # a thousand calls into the JVM less than `recentProgress`
        reports = jvm_query.recentProgress()
        found: list[Progress] = []
        newest = ""
        for position in reversed(range(len(reports))):
            reported = json.loads(reports[position].json())
            mark = f"{reported['timestamp']}/{reported['batchId']}"
            newest = newest or mark
            if mark == self._seen:
                break
            if "addBatch" in reported.get("durationMs", {}):
                written = self._written.pop(reported["batchId"], Written())
                found.append(batch_progress(self._run.pipeline.name, self.flow.name, reported, written))
        self._seen = newest or self._seen
        return found[::-1]

    def stopped_if_idle(self) -> bool:
        """Stops the query if no batch is at work; True if it has ended."""
        if not self.active:
            return True
        if self._at_work is not None or not self._committed() or self.initializing:
            return False
        self._told_to_stop = True
        self._query.stop()
        return True

    @property
    def initializing(self) -> bool:
        """Its sources are being started: not a moment to interrupt it, and a short one."""
        return str(self._query.status["message"]).startswith("Initializing")

    def _committed(self) -> bool:
        """The last batch that was written is in the checkpoint too."""
        last = self._query._jsq.lastProgress()
        return self._done is None or (last is not None and int(last.batchId()) >= self._done)
