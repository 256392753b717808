"""The streaming query of one flow: its checkpoint, its batches, and its restart after a failure. Runs in the driver.

    <checkpoint>/<pipeline>/<flow>/query       Spark's checkpoint of the flow's query
    <checkpoint>/<pipeline>/<flow>/state       the flow's own state (`Context.state_dir`)
    <checkpoint>/<pipeline>/<flow>/flow.json   values that must not change while the checkpoint exists

Spark calls `FlowQuery.process_batch` for every batch, in a separate thread. The two kinds of flows process it in
different ways: see `frame_query` and `arrow_query`. Each write detects a batch that it has already written. So a
replayed batch has every row once, after a crash as well as after a failure. Temporary failures are retried
(`retries_allowed`).

Invariant: a requested stop never interrupts a batch that has begun to write, and no batch begins after it.
"""

import contextlib
import json
import logging
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.common.clock import Clock
from headrace.pipelines.failures import describe_failure, retries_allowed
from headrace.pipelines.file_tree import FileTree
from headrace.pipelines.pipeline import AnyFlow, Pipeline, PipelineError, Setting
from headrace.pipelines.progress import BatchResult, Progress, batch_progress
from headrace.pipelines.run_settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "headrace"
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


class FlowQuery(ABC):
    """The streaming query of a flow. `process_batch` runs in a thread of Spark's, everything else in the runner's
    thread."""

    def __init__(self, run: Run, flow: AnyFlow) -> None:
        self.flow = flow
        self._run = run
        settings = run.settings
        self._directory = f"{settings.checkpoint.rstrip('/')}/{run.pipeline.name}/{flow.name}"
        self._write_tasks = self._check_flow_file()
        self._unfinished_batch = self._find_unfinished_batch()
        self._failures = 0
        """The number of failures in a row, without a completed batch between them."""
        self._batch_in_progress: int | None = None
        self._last_batch: int | None = None
        self._failure: BaseException | None = None
        self._stop_called = False
        self._written: dict[int, BatchResult] = {}
        self._last_report = ""
        options = {"maxOffsetsPerTrigger": str(settings.max_rows_per_batch), **settings.source_options}
        stream = self._create_stream({**options, **settings.spark_options()})
        writer = stream.writeStream.queryName(f"{run.pipeline.name}/{flow.name}").outputMode(self._output_mode)
        writer = writer.option("checkpointLocation", f"{self._directory}/query").foreachBatch(self.process_batch)
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger is not None:
            writer = writer.trigger(processingTime=settings.trigger)
        self._writer = writer
        self._query = writer.start()

    @property
    def _output_mode(self) -> str:
        return "append"

    @abstractmethod
    def _create_stream(self, options: dict[str, str]) -> "DataFrame":
        """Returns the stream of the flow. `options` are the source options of the run."""

    @abstractmethod
    def _write(self, frame: "DataFrame", batch_id: int, query_id: str) -> BatchResult:
        """Processes a batch and returns what it wrote."""

    def _flow_values(self) -> dict[str, Any]:
        """Returns the values that must not change while the checkpoint exists."""
        return {"sources": list(self.flow.sources)}

    def _check_flow_file(self) -> int:
        """Returns the number of writing tasks, which is fixed when the checkpoint is created. Raises `PipelineError` if
        the flow has changed since then."""
        flow, values = self.flow, self._flow_values()
        files = FileTree(self._run.spark, self._directory)
        name = f"{files.root}/flow.json"
        if files.exists(name):
            stored = json.loads(files.read(name))
            if stored["sources"] != values["sources"]:
                raise PipelineError(
                    f"flow {flow.name} reads {', '.join(flow.sources)}, but its checkpoint {self._directory} was "
                    f"created for {', '.join(stored['sources'])}: use a new checkpoint directory"
                )
            if stored.get("streams") != values.get("streams"):
                raise PipelineError(
                    f"flow {flow.name} is another kind of flow, or groups its sources differently, than when its "
                    f"checkpoint {self._directory} was created: use a new checkpoint directory"
                )
            return int(stored["write_tasks"])
        tasks = self._run.settings.write_tasks or self._run.cores
        files.make_directory(files.root)
        files.write(name, json.dumps({**values, "write_tasks": tasks}).encode())
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

    def process_batch(self, frame: "DataFrame", batch_id: int) -> None:
        """Processes a micro-batch. Spark calls this."""
        self._batch_in_progress = batch_id
        try:
            if self._run.stopping.is_set():
                raise _StoppedBetweenBatches
            query_id = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
            self._written[batch_id] = self._write(frame, batch_id, query_id)
            self._last_batch = batch_id
            self._failures = 0
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._batch_in_progress = None

    @property
    def ids(self) -> tuple[str, str]:
        """Spark's ids of the query and of its last start."""
        return str(self._query.id), str(self._query.runId)

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

    def has_given_up(self) -> bool:
        """Returns True if the query failed and must not be restarted."""
        return self.failed is not None and not self.may_restart()

    def restart(self) -> str:
        """Restarts the query from its checkpoint, which replays the failed batch. Returns the error of the failure."""
        cause = self.failed
        assert cause is not None
        error = describe_failure(cause)
        _logger.warning(
            "Pipeline %s: flow %s failed and restarts from its checkpoint: %s",
            self._run.pipeline.name,
            self.flow.name,
            error,
        )
        self._await_termination()
        self._failures += 1
        self._failure, self._last_report = None, ""
        self._unfinished_batch = self._find_unfinished_batch()
        self._query = self._writer.start()
        return error

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
