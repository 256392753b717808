"""Runs a pipeline: starts its flows, collects their progress, and stops them between two batches. Runs in the driver.

Every flow has its own query (`flow_query`). Everything here runs in the thread that called `start` and `wait`,
except `request_stop`, which any thread may call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.common.clock import Clock, SystemClock
from headrace.pipelines.arrow_flow import ArrowFlow
from headrace.pipelines.arrow_query import ArrowFlowQuery
from headrace.pipelines.executors import count_executor_cores
from headrace.pipelines.failures import describe_failure
from headrace.pipelines.flow_query import FlowQuery, Run
from headrace.pipelines.frame_query import FrameFlowQuery
from headrace.pipelines.loading import modules_of_files
from headrace.pipelines.pipeline import AnyFlow, Pipeline, PipelineError
from headrace.pipelines.progress import Progress, Summary, Totals
from headrace.pipelines.run_settings import RunSettings, check_run
from headrace.pipelines.run_status import RunStatus
from headrace.pipelines.topics import prepare_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION = {
    # Adaptive plans take time, and may split a replayed write into other tasks.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
_DEFAULT_SHUFFLE_PARTITIONS = "200"
"""Spark's default for `spark.sql.shuffle.partitions`: too many tasks for batches of about a second."""
_POLL_SECONDS = 0.1
_STOP_POLL_SECONDS = 0.02


class Runner:
    """A run of a pipeline. `run()` is `start()`, then `wait()`. `request_stop()` may be called from any thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: "SparkSession",
        settings: RunSettings,
        *,
        on_progress: Callable[[Progress], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        pipeline_settings = check_run(pipeline, settings)
        self._clock = clock or SystemClock()
        cores = count_executor_cores(spark, self._clock)
        self._run = Run(pipeline, _create_session(spark, cores), settings, pipeline_settings, self._clock, cores)
        self._on_progress = on_progress
        self._queries: list[FlowQuery] = []
        self._totals = {flow.name: Totals() for flow in pipeline.flows}
        self._started = self._clock.monotonic()
        self._status = RunStatus({}, None, self._clock)

    def start(self) -> None:
        """Creates missing output topics and starts a query for each flow."""
        self._started = self._clock.monotonic()
        prepare_topics(self._run.pipeline, self._run.settings.bootstrap_servers, self._run.settings.client)
        _pickle_files_by_value()
        self._status = RunStatus.create(self._run)
        try:
            for flow in self._run.pipeline.flows:
                with _starting(flow):
                    self._queries.append(_create_query(self._run, flow))
                self._status.query_started(self._queries[-1])
        except BaseException as error:
            self.request_stop()
            self._stop_between_batches()
            self._status.end({flow.name: describe_failure(error)})
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until all flows have ended. Returns False after `timeout` seconds. Raises `PipelineError` if a flow
        failed. Call it repeatedly, or without a timeout: progress is collected and published only here."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while self._poll_flows():
            if self._run.stopping.is_set() or any(query.has_given_up() for query in self._queries):
                self.request_stop()
                self._stop_between_batches()
                self._collect()
                break
            self._status.update(self._queries)
            if deadline is not None and self._clock.monotonic() >= deadline:
                return False
            self._run.stopping.wait(_POLL_SECONDS)
        failures = {query.flow.name: cause for query in self._queries if (cause := query.failed) is not None}
        self._status.end({name: describe_failure(cause) for name, cause in failures.items()})
        for name, cause in failures.items():
            raise PipelineError(f"flow {name} failed: {describe_failure(cause)}") from cause
        return True

    def _poll_flows(self) -> bool:
        """Collects progress and restarts failed flows that may be retried. Returns True if any flow is active, or has
        failed again since and may be retried."""
        active = [query.active for query in self._queries]  # before collecting: an ended query reports no more progress
        self._collect()
        for query in self._queries:
            if not self._run.stopping.is_set() and query.may_restart():
                with _starting(query.flow):
                    error = query.restart()
                self._status.restarted(query, error)
        return any(active) or any(query.active or query.may_restart() for query in self._queries)

    @property
    def is_ready(self) -> bool:
        """True once all flows have started their sources, and process or wait for data."""
        return bool(self._queries) and all(query.active and not query.initializing for query in self._queries)

    def request_stop(self) -> None:
        """Lets running batches finish and prevents new ones. `wait` then stops the queries."""
        self._run.stopping.set()

    def run(self) -> Summary:
        """Starts the pipeline and waits for its end."""
        self.start()
        self.wait()
        return self.summary()

    def stop(self) -> Summary:
        """Requests a stop and waits for it."""
        self.request_stop()
        self.wait()
        return self.summary()

    def summary(self) -> Summary:
        """Returns the totals so far."""
        return Summary(self._run.pipeline.name, self._clock.monotonic() - self._started, self._totals)

    def _collect(self) -> None:
        for query in self._queries:
            for progress in query.new_progress():
                self._totals[query.flow.name].add(progress)
                self._status.batch(progress)
                if self._on_progress is not None:
                    self._on_progress(progress)

    def _stop_between_batches(self) -> None:
        active = list(self._queries)
        while active := [query for query in active if not query.stop_if_idle()]:
            self._clock.sleep(_STOP_POLL_SECONDS)
            self._status.update(active)


def _pickle_files_by_value() -> None:
    """Lets functions of pipeline files run in Spark's workers, which cannot import these files."""
    from pyspark import cloudpickle

    for module in modules_of_files():
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _create_query(run: Run, flow: AnyFlow) -> FlowQuery:
    return ArrowFlowQuery(run, flow) if isinstance(flow, ArrowFlow) else FrameFlowQuery(run, flow)


@contextmanager
def _starting(flow: AnyFlow) -> Iterator[None]:
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:  # an option, Spark, or the pipeline's own code
        raise PipelineError(f"flow {flow.name} cannot start: {describe_failure(error)}") from error


def _create_session(spark: "SparkSession", cores: int) -> "SparkSession":
    """Creates a session for the run, in addition to the user's session, with the settings that the runner relies on."""
    from headrace.spark.sessions import let_streams_start_together

    session = spark.newSession()
    let_streams_start_together(session)
    for name, value in _SESSION.items():
        session.conf.set(name, value)
    if spark.conf.get("spark.sql.shuffle.partitions") == _DEFAULT_SHUFFLE_PARTITIONS:
        session.conf.set("spark.sql.shuffle.partitions", str(cores))
    return session


def run(pipeline: Pipeline, spark: "SparkSession", settings: RunSettings) -> Summary:
    """Runs a pipeline until it ends (available now) or the process is interrupted."""
    return Runner(pipeline, spark, settings).run()
