"""Runs a pipeline: its sources, checkpoints and sinks, its progress and its stop. Runs in the driver.

    <checkpoint>/<pipeline>/<flow>/query       Spark's checkpoint of the flow's query
    <checkpoint>/<pipeline>/<flow>/state       what the flow itself keeps (`Context.state_dir`)
    <checkpoint>/<pipeline>/<flow>/flow.json   what must stay the same as long as the checkpoint lives

A batch is a call of `_Running.batch`, in a thread of Spark's: `split`, then one write to all topics, then the tables.
Each of them finds out by itself if it did this batch before, so that a batch that is replayed after a crash has every
row once. The thread that called `wait` collects progress, and stops the queries between two batches.

Invariants: a batch that has begun to write is never interrupted by a stop that was asked for; none begins after it.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.common.clock import Clock, SystemClock
from headrace.pipelines.causes import one_line
from headrace.pipelines.files import Files
from headrace.pipelines.outputs import check_outputs, one_frame, table_frames, topic_frames
from headrace.pipelines.pipeline import (
    DEAD_LETTERS,
    Batch,
    Context,
    Flow,
    Frames,
    Pipeline,
    PipelineError,
    Setting,
    chosen_settings,
    within,
)
from headrace.pipelines.progress import Progress, Summary, Totals, Written, batch_progress
from headrace.pipelines.sources import read_all, read_one
from headrace.pipelines.tables import write_table
from headrace.pipelines.topics import make_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "headrace"
_SESSION = {
    # Adaptive plans may cut a write into other tasks when it is replayed, and take time to make.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
_SPARK_SHUFFLES = "200"
"""Spark's default of `spark.sql.shuffle.partitions`: too many tasks for batches of a second."""
_INTERVAL = re.compile(r"\d+(\.\d+)? *(milliseconds?|seconds?|minutes?|hours?)")
_POLL = 0.1
_POLL_STOPPING = 0.02
_STARTS = 4
_SLOW_WORKER = "Python worker failed to connect back"
_OBSERVED_LATER = 1.0
"""What a write observed is told by another thread of Spark's, at about the time when the write returns."""


@dataclass(frozen=True)
class RunSettings:
    """How a pipeline is run."""

    bootstrap_servers: str
    checkpoint: str
    """A directory: each flow keeps its own beneath. What was read and written so far is in there."""
    warehouse: str | None = None
    """The directory of tables; needed if the pipeline has any."""
    available_now: bool = False
    """Read what is there now, then end."""
    trigger: str | None = None
    """At most one batch in this time (`10 seconds`); otherwise the next begins when one ends."""
    max_rows_per_batch: int = 200_000
    """For each source of a flow."""
    write_tasks: int | None = None
    """Tasks that write to topics, of a new checkpoint; by default as many as Spark has cores. It then stays."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The pipeline's settings that are to differ from their defaults."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Client settings for all sources and sinks, such as `security.protocol`."""
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Options of `format("headrace")` for all sources."""

    def spark_options(self) -> dict[str, str]:
        """The servers and client settings as options of the format."""
        client = {f"kafka.{name}": value for name, value in self.client.items()}
        return {**client, "kafka.bootstrap.servers": self.bootstrap_servers}


def check_run(pipeline: Pipeline, settings: RunSettings) -> dict[str, Setting]:
    """What can be told to be wrong before anything is started; returns the pipeline's settings for this run."""
    if pipeline.tables and settings.warehouse is None:
        names = ", ".join(table.name for table in pipeline.tables)
        raise PipelineError(
            f"pipeline {pipeline.name} writes tables ({names}): give a warehouse directory (--warehouse)"
        )
    if settings.trigger is not None and not _INTERVAL.fullmatch(settings.trigger.strip()):
        raise PipelineError(f"trigger {settings.trigger!r}: expected a number and a unit, as '500 milliseconds'")
    return chosen_settings(pipeline, settings.settings)


class Runner:
    """A pipeline that runs. `run()` is `start()`, then `wait()`; `request_stop()` may be called from anywhere."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: "SparkSession",
        settings: RunSettings,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.chosen = check_run(pipeline, settings)
        self.spark = _own_session(spark)
        self._on_progress = on_progress
        self.clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._running: list[_Running] = []
        self._totals = {flow.name: Totals() for flow in pipeline.flows}
        self._began = self.clock.monotonic()

    def start(self) -> None:
        """Creates output topics that are not there, and starts a query for each flow."""
        self._began = self.clock.monotonic()
        make_topics(self.pipeline, self.settings.bootstrap_servers, self.settings.client)
        try:
            for flow in self.pipeline.flows:
                self._running.append(self._started(flow))
        except BaseException:
            self.request_stop()
            self._stop_between_batches()
            raise

    def _started(self, flow: Flow) -> "_Running":
        try:
            return _Running(self, flow)
        except PipelineError:
            raise
        except Exception as error:  # of an option, of Spark, or of the pipeline's own code
            raise PipelineError(f"flow {flow.name} cannot start: {one_line(error)}") from error

    def wait(self, timeout: float | None = None) -> bool:
        """Until all flows have ended; False if time was up before. Raises `PipelineError` if a flow failed."""
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        while any(running.active or running.started_again() for running in self._running):
            self._collect()
            if self._stopping.is_set() or any(running.failed_for_good() for running in self._running):
                self.request_stop()
                self._stop_between_batches()
                break
            if deadline is not None and self.clock.monotonic() >= deadline:
                return False
            self._stopping.wait(_POLL)
        self._collect()
        for running in self._running:
            if (cause := running.failed) is not None:
                raise PipelineError(f"flow {running.flow.name} failed: {one_line(cause)}") from cause
        return True

    def request_stop(self) -> None:
        """Lets the batches at hand finish, and no other begin. Who waits sees to the rest."""
        self._stopping.set()

    def run(self) -> Summary:
        """Starts, and waits for the end."""
        self.start()
        self.wait()
        return self.summary()

    def stop(self) -> Summary:
        """Asks for the stop and waits for it."""
        self.request_stop()
        self.wait()
        return self.summary()

    def summary(self) -> Summary:
        """What was done so far."""
        return Summary(self.pipeline.name, self.clock.monotonic() - self._began, self._totals)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def _collect(self) -> None:
        for running in self._running:
            for progress in running.new_progress():
                self._totals[running.flow.name].add(progress)
                if self._on_progress is not None:
                    self._on_progress(progress)

    def _stop_between_batches(self) -> None:
        left = list(self._running)
        while left := [running for running in left if not running.stopped_if_idle()]:
            self.clock.sleep(_POLL_STOPPING)


class _StoppedBetweenBatches(Exception):
    """A batch began after the stop was asked for: it ends before it did anything, and is the first of the next run."""


class _Running:
    """A flow's query. `batch` runs in a thread of Spark's, everything else in that of the runner's user."""

    def __init__(self, runner: Runner, flow: Flow) -> None:
        self.flow = flow
        self._runner = runner
        settings = runner.settings
        self._home = f"{settings.checkpoint.rstrip('/')}/{runner.pipeline.name}/{flow.name}"
        self._tasks = self._remembered(flow)
        self._unfinished = self._begun_before()
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
            stream = read_all(runner.spark, FORMAT, flow, options)
        else:
            frames = {name: read_one(runner.spark, FORMAT, topic, options) for name, topic in flow.sources.items()}
            stream = flow.prepare(frames, context)
            if not getattr(stream, "isStreaming", False):
                raise PipelineError(f"flow {flow.name}: prepare returned {type(stream).__name__}, expected one stream")
        writer = stream.writeStream.queryName(f"{runner.pipeline.name}/{flow.name}").outputMode(flow.output_mode)
        writer = writer.option("checkpointLocation", f"{self._home}/query").foreachBatch(self.batch)
        if settings.available_now:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger is not None:
            writer = writer.trigger(processingTime=settings.trigger)
        self._writer = writer
        self._again = _STARTS - 1
        self._query = writer.start()

    def _remembered(self, flow: Flow) -> int:
        """The number of writing tasks, fixed when the checkpoint was new. Sources must be the same as then."""
        files = Files(self._runner.spark, self._home)
        name = f"{files.root}/flow.json"
        if files.exists(name):
            known = json.loads(files.read(name))
            if known["sources"] != list(flow.sources):
                raise PipelineError(
                    f"flow {flow.name} has other sources ({', '.join(flow.sources)}) than its checkpoint "
                    f"{self._home} ({', '.join(known['sources'])}): give a new checkpoint"
                )
            return int(known["write_tasks"])
        tasks = self._runner.settings.write_tasks or self._runner.spark.sparkContext.defaultParallelism
        files.make_directory(files.root)
        files.write(name, json.dumps({"sources": list(flow.sources), "write_tasks": tasks}))
        return tasks

    def _begun_before(self) -> int | None:
        """The batch that an earlier run began and did not finish, if there is one: Spark keeps a file for each."""
        files = Files(self._runner.spark, self._home)
        begun, done = (
            {int(name) for name in files.names(f"{self._home}/query/{log}") if name.isdigit()}
            for log in ("offsets", "commits")
        )
        return max(begun - done, default=None)

    def _context(self, kind: Callable[..., Any], **more: Any) -> Any:
        runner = self._runner
        return kind(
            spark=more.pop("spark", runner.spark),
            pipeline=runner.pipeline,
            flow=self.flow.name,
            settings=runner.chosen,
            bootstrap_servers=runner.settings.bootstrap_servers,
            state_dir=f"{self._home}/state",
            **more,
        )

    def batch(self, frame: "DataFrame", batch_id: int) -> None:
        """What Spark calls with each micro-batch."""
        self._at_work = batch_id
        try:
            if self._runner.stopping:
                raise _StoppedBetweenBatches
            self._written[batch_id] = self._write(frame, batch_id)
            self._done = batch_id
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
            check_outputs(self._runner.pipeline, frames)
            to_topics = topic_frames(self._runner.pipeline, frames)
            to_tables = table_frames(self._runner.pipeline, frames)
            if len(to_topics) + len(to_tables) > 1:
                batch.keep(frame)  # or each of them would read the sources again
            written = Written(replayed=batch_id == self._unfinished)
            if to_topics:
                self._write_topics(to_topics, batch, written)
            for table, rows in to_tables:
                warehouse = str(self._runner.settings.warehouse)
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
        deadline = self._runner.clock.monotonic() + _OBSERVED_LATER
        while not observation._jo.future().isCompleted():
            if self._runner.clock.monotonic() >= deadline:
                return {}
            self._runner.clock.sleep(_POLL_STOPPING)
        return dict(observation.get)

    def _split(self, frame: "DataFrame", batch: Batch) -> Frames:
        if self.flow.split is not None:
            return self.flow.split(frame, batch)
        (output,) = (name for name in self._runner.pipeline.outputs if name != DEAD_LETTERS)
        return {output: frame}

    def _write_topics(self, frames: list["DataFrame"], batch: Batch, written: Written) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        names = [str(topic.name) for topic in self._runner.pipeline.topics]
        counted = Observation()
        counts = [sf.count_if(sf.col("topic") == name).alias(name) for name in names]
        rows = one_frame(frames, self._tasks, ordered=self.flow.ordered)
        rows = rows.observe(counted, sf.count("*").alias(_ALL), *counts)
        options = {**self._runner.settings.spark_options(), "queryId": batch.query_id, "batchId": str(batch.id)}
        rows.write.format(FORMAT).options(**options).mode("append").save()
        by_topic = {name: int(count) for name, count in counted.get.items()}
        others = by_topic.pop(_ALL) - sum(by_topic.values())
        written.outputs.update({name: count for name, count in by_topic.items() if count})
        if others:
            written.outputs["other topics"] = others

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

    def started_again(self) -> bool:
        """Starts the query again if it ended because a Python worker took too long to come up: Spark gives them ten
        seconds, which a busy machine may need. Only before its first batch is done, and a few times."""
        if self._runner.stopping or not self._may_start_again():
            return False
        self._again -= 1
        self._failure, self._seen = None, ""
        self._unfinished = self._begun_before()
        self._query = self._writer.start()
        return True

    def _may_start_again(self) -> bool:
        cause = self.failed
        return cause is not None and self._done is None and self._again > 0 and _SLOW_WORKER in str(cause)

    def failed_for_good(self) -> bool:
        return self.failed is not None and not self._may_start_again()

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
                found.append(batch_progress(self._runner.pipeline.name, self.flow.name, reported, written))
        self._seen = newest or self._seen
        return found[::-1]

    def stopped_if_idle(self) -> bool:
        """Stops the query if no batch is at work; True if it has ended."""
        if not self.active:
            return True
        if self._at_work is not None or not self._committed() or self._initializing():
            return False
        self._told_to_stop = True
        self._query.stop()
        return True

    def _initializing(self) -> bool:
        """Its sources are being started: not a moment to interrupt it, and a short one."""
        return str(self._query.status["message"]).startswith("Initializing")

    def _committed(self) -> bool:
        """The last batch that was written is in the checkpoint too."""
        last = self._query._jsq.lastProgress()
        return self._done is None or (last is not None and int(last.batchId()) >= self._done)


_ALL = "all of them"


def _own_session(spark: "SparkSession") -> "SparkSession":
    """A session of the run's own, beside the user's in the same Spark, with settings that the runner relies on."""
    own = spark.newSession()
    for name, value in _SESSION.items():
        own.conf.set(name, value)
    if spark.conf.get("spark.sql.shuffle.partitions") == _SPARK_SHUFFLES:
        own.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return own


def run(pipeline: Pipeline, spark: "SparkSession", settings: RunSettings) -> Summary:
    """Runs until the end (available now), or until the process is interrupted."""
    return Runner(pipeline, spark, settings).run()
