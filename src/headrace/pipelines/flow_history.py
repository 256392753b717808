"""Keeps what is known about the flow of a run and builds its status. Owned by the runner's thread. No Spark.

Rates are those of the last batches: they cover at least the last `_WINDOW_SECONDS`, and at least one batch.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from headrace.common.clock import Clock
from headrace.pipelines.arrow_flow import ArrowFlow
from headrace.pipelines.pipeline import DEAD_LETTERS, AnyFlow, Output, Pipeline, Setting, Table, Topic
from headrace.pipelines.progress import Progress, Totals
from headrace.pipelines.run_settings import RunSettings
from headrace.pipelines.status import FAILED, RUNNING, STOPPED, BatchStatus, FlowStatus

__all__ = ["Application", "FlowHistory"]

_WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class Application:
    """The Spark application of a run."""

    id: str
    master: str
    host: str
    ui_url: str | None = None


class _Window(NamedTuple):
    start: float
    end: float
    rows_in: int
    rows_out: int


class FlowHistory:
    """The history of one flow in this run."""

    def __init__(
        self,
        pipeline: Pipeline,
        flow: AnyFlow,
        settings: RunSettings,
        pipeline_settings: Mapping[str, Setting],
        application: Application,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._totals = Totals()
        self._recent: deque[_Window] = deque()
        self._status = replace(
            _definition(pipeline, flow),
            application_id=application.id,
            master=application.master,
            host=application.host,
            ui_url=application.ui_url,
            checkpoint=settings.checkpoint,
            settings=dict(pipeline_settings),
            trigger=settings.trigger,
            available_now=settings.available_now,
            started_ms=clock.time_ms(),
        )

    @property
    def state(self) -> str:
        return self._status.state

    def query_started(self, query_id: str, run_id: str) -> None:
        self._status = replace(self._status, query_id=query_id, run_id=run_id)

    def is_running(self) -> None:
        """Notes that the query has started its sources."""
        self._status = replace(self._status, state=RUNNING)

    def restarted(self, error: str) -> None:
        """Notes a temporary failure. The error is shown until a batch succeeds."""
        self._status = replace(self._status, restarts=self._status.restarts + 1, error=error)

    def batch(self, progress: Progress) -> None:
        """Adds a completed batch."""
        self._totals.add(progress)
        now = self._clock.monotonic()
        rows_out = sum(progress.outputs.values())
        self._recent.append(_Window(now - progress.seconds, now, progress.rows, rows_out))
        totals = self._totals
        self._status = replace(
            self._status,
            state=RUNNING,
            error=None,
            last_batch=BatchStatus(
                id=progress.batch_id,
                started_ms=round(datetime.fromisoformat(progress.time).timestamp() * 1000),
                duration_ms=round(progress.seconds * 1000),
                rows_in=progress.rows,
                rows_out=dict(progress.outputs),
                replayed=progress.replayed,
                phases_ms=dict(progress.phases_ms),
            ),
            batches=totals.batches,
            rows_in=totals.rows,
            rows_out=dict(totals.outputs),
            lag=totals.lag,
            dead_letters=sum(totals.dead_letters.values()),
            dead_letters_by_reason=dict(totals.dead_letters),
            figures=dict(totals.figures),
        )

    def ended(self, error: str | None = None) -> None:
        """Notes the end of the flow in this run."""
        state = STOPPED if error is None else FAILED
        self._status = replace(self._status, state=state, error=error, ended_ms=self._clock.time_ms())
        self._recent.clear()

    def status(self) -> FlowStatus:
        """Returns the status as of now."""
        rows_in, rows_out = self._rates()
        return replace(
            self._status,
            updated_ms=self._clock.time_ms(),
            rows_in_per_second=round(rows_in, 1),
            rows_out_per_second=round(rows_out, 1),
        )

    def _rates(self) -> tuple[float, float]:
        now = self._clock.monotonic()
        while len(self._recent) > 1 and self._recent[0].end < now - _WINDOW_SECONDS:
            self._recent.popleft()
        if not self._recent:
            return 0.0, 0.0
        last = self._recent[-1]
        if now - last.end > max(_WINDOW_SECONDS, 2 * (last.end - last.start)):
            return 0.0, 0.0  # idle
        seconds = max(now - min(window.start for window in self._recent), 0.001)
        return (
            sum(window.rows_in for window in self._recent) / seconds,
            sum(window.rows_out for window in self._recent) / seconds,
        )


def _definition(pipeline: Pipeline, flow: AnyFlow) -> FlowStatus:
    """Returns the status of a flow that has not started: where it reads and writes."""
    outputs = {name: _places(places) for name, places in pipeline.outputs.items() if name != DEAD_LETTERS}
    dead_letters = pipeline.outputs[DEAD_LETTERS]
    return FlowStatus(
        pipeline.name,
        flow.name,
        kind="arrow" if isinstance(flow, ArrowFlow) else "frames",
        sources={name: {"topics": _names(topic), "pattern": topic.pattern} for name, topic in flow.sources.items()},
        outputs=outputs,
        source_topics=tuple(sorted({name for topic in flow.sources.values() for name in _names(topic)})),
        output_topics=tuple(sorted({name for places in outputs.values() for name in places["topics"]})),
        tables=tuple(sorted({table.name for table in pipeline.tables})),
        dead_letter_topic=next((place.name for place in dead_letters if isinstance(place, Topic)), None),
    )


def _places(places: Iterable[Output]) -> dict[str, Any]:
    topics = [place.name for place in places if isinstance(place, Topic)]
    return {
        "topics": [name for name in topics if name is not None],
        "tables": [place.name for place in places if isinstance(place, Table)],
        **({"by_row": True} if None in topics else {}),
    }


def _names(topic: Topic) -> list[str]:
    return [name.strip() for name in (topic.name or "").split(",") if name.strip()]
