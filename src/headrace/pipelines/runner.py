"""Runs a pipeline: starts its flows, collects their progress, and stops them between two batches. Runs in the driver.

The flows themselves are in `running`, each with a query of its own. All that is here runs in the thread that called
`start` and `wait`; `request_stop` may be called from anywhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.common.clock import Clock, SystemClock
from headrace.pipelines.executors import count_executor_cores
from headrace.pipelines.failures import describe_failure
from headrace.pipelines.flow_query import FlowQuery, Run
from headrace.pipelines.pipeline import Flow, Pipeline, PipelineError
from headrace.pipelines.progress import Progress, Summary, Totals
from headrace.pipelines.run_settings import RunSettings, check_run
from headrace.pipelines.topics import prepare_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SESSION = {
    # Adaptive plans may cut a write into other tasks when it is replayed, and take time to make.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}
_SPARK_SHUFFLES = "200"
"""Spark's default of `spark.sql.shuffle.partitions`: too many tasks for batches of a second."""
_POLL = 0.1
_POLL_STOPPING = 0.02


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
        chosen = check_run(pipeline, settings)
        self._clock = clock or SystemClock()
        cores = count_executor_cores(spark, self._clock)
        self._run = Run(pipeline, _own_session(spark, cores), settings, chosen, self._clock, cores)
        self._on_progress = on_progress
        self._running: list[FlowQuery] = []
        self._totals = {flow.name: Totals() for flow in pipeline.flows}
        self._began = self._clock.monotonic()

    def start(self) -> None:
        """Creates output topics that are not there, and starts a query for each flow."""
        self._began = self._clock.monotonic()
        prepare_topics(self._run.pipeline, self._run.settings.bootstrap_servers, self._run.settings.client)
        try:
            for flow in self._run.pipeline.flows:
                with _starting(flow):
                    self._running.append(FlowQuery(self._run, flow))
        except BaseException:
            self.request_stop()
            self._stop_between_batches()
            raise

    def wait(self, timeout: float | None = None) -> bool:
        """Until all flows have ended; False if time was up before. Raises `PipelineError` if a flow failed."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while self._go_on():
            if self._run.stopping.is_set() or any(running.failed is not None for running in self._running):
                self.request_stop()
                self._stop_between_batches()
                self._collect()
                break
            if deadline is not None and self._clock.monotonic() >= deadline:
                return False
            self._run.stopping.wait(_POLL)
        for running in self._running:
            if (cause := running.failed) is not None:
                raise PipelineError(f"flow {running.flow.name} failed: {describe_failure(cause)}") from cause
        return True

    def _go_on(self) -> bool:
        """Whether flows are at work, after those that failed and may be tried again were started."""
        active = [running.active for running in self._running]  # first: an ended one has no more progress to come
        self._collect()
        for running in self._running:
            if not self._run.stopping.is_set() and running.may_start_again():
                with _starting(running.flow):
                    running.start_again()
        return any(active) or any(running.active for running in self._running)

    @property
    def is_ready(self) -> bool:
        """All flows have started their sources: they work, or wait for data."""
        return bool(self._running) and all(running.active and not running.initializing for running in self._running)

    def request_stop(self) -> None:
        """Lets the batches at hand finish, and no other begin. Who waits sees to the rest."""
        self._run.stopping.set()

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
        return Summary(self._run.pipeline.name, self._clock.monotonic() - self._began, self._totals)

    def _collect(self) -> None:
        for running in self._running:
            for progress in running.new_progress():
                self._totals[running.flow.name].add(progress)
                if self._on_progress is not None:
                    self._on_progress(progress)

    def _stop_between_batches(self) -> None:
        left = list(self._running)
        while left := [running for running in left if not running.stopped_if_idle()]:
            self._clock.sleep(_POLL_STOPPING)


@contextmanager
def _starting(flow: Flow) -> Iterator[None]:
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:  # of an option, of Spark, or of the pipeline's own code
        raise PipelineError(f"flow {flow.name} cannot start: {describe_failure(error)}") from error


def _own_session(spark: "SparkSession", cores: int) -> "SparkSession":
    """A session of the run's own, beside the user's in the same Spark, with settings that the runner relies on."""
    from headrace.spark.sessions import let_streams_start_together

    own = spark.newSession()
    let_streams_start_together(own)
    for name, value in _SESSION.items():
        own.conf.set(name, value)
    if spark.conf.get("spark.sql.shuffle.partitions") == _SPARK_SHUFFLES:
        own.conf.set("spark.sql.shuffle.partitions", str(cores))
    return own


def run(pipeline: Pipeline, spark: "SparkSession", settings: RunSettings) -> Summary:
    """Runs until the end (available now), or until the process is interrupted."""
    return Runner(pipeline, spark, settings).run()
