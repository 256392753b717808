"""The published status of a run: one history per flow, handed to the publisher about once a second. Driver only.

Owned by the runner's thread. A run that does not publish has the same histories, and no thread.
"""

import socket
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from headrace.common.clock import Clock
from headrace.pipelines.flow_history import Application, FlowHistory
from headrace.pipelines.progress import Progress
from headrace.pipelines.status import STARTING
from headrace.pipelines.status_publisher import StatusPublisher, open_status_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.flow_query import FlowQuery, Run

_INTERVAL_SECONDS = 1.0


class RunStatus:
    """The status of all flows of a run. Publishes nothing unless `publisher` is given."""

    def __init__(self, histories: Mapping[str, FlowHistory], publisher: StatusPublisher | None, clock: Clock) -> None:
        self._histories = histories
        self._publisher = publisher
        self._clock = clock
        self._published_at = float("-inf")

    @staticmethod
    def create(run: "Run") -> "RunStatus":
        """Publishes that the flows are starting, unless the settings of the run forbid it."""
        settings, pipeline = run.settings, run.pipeline
        if not settings.publish_status:
            return RunStatus({}, None, run.clock)
        application = _application(run.spark)
        histories = {
            flow.name: FlowHistory(pipeline, flow, settings, run.pipeline_settings, application, run.clock)
            for flow in pipeline.flows
        }
        publisher = StatusPublisher(partial(open_status_topic, settings.spark_options()), run.clock)
        status = RunStatus(histories, publisher, run.clock)
        status._publish()
        return status

    def query_started(self, query: "FlowQuery") -> None:
        if (history := self._histories.get(query.flow.name)) is not None:
            history.query_started(*query.ids)

    def restarted(self, query: "FlowQuery", error: str) -> None:
        if (history := self._histories.get(query.flow.name)) is not None:
            history.restarted(error)
            history.query_started(*query.ids)

    def batch(self, progress: Progress) -> None:
        if (history := self._histories.get(progress.flow)) is not None:
            history.batch(progress)

    def update(self, queries: Iterable["FlowQuery"]) -> None:
        """Publishes the status, if a second has passed since the last time."""
        now = self._clock.monotonic()
        if self._publisher is None or now - self._published_at < _INTERVAL_SECONDS:
            return
        for query in queries:
            history = self._histories[query.flow.name]
            if history.state == STARTING and query.active and not query.initializing:
                history.is_running()
        self._publish()

    def end(self, errors: Mapping[str, str]) -> None:
        """Publishes the end of all flows and stops publishing. `errors` has the errors of failed flows. Later calls do
        nothing."""
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            return
        for name, history in self._histories.items():
            history.ended(errors.get(name))
        publisher.publish([history.status() for history in self._histories.values()])
        publisher.close()

    def _publish(self) -> None:
        if self._publisher is not None:
            self._published_at = self._clock.monotonic()
            self._publisher.publish([history.status() for history in self._histories.values()])


def _application(spark: "SparkSession") -> Application:
    context = spark.sparkContext
    return Application(context.applicationId, str(context.master), socket.gethostname(), context.uiWebUrl)
