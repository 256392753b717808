"""How a run goes: what each batch did, what came together so far, and the line on a terminal. Driver only, no Spark.

Spark tells of a batch after it is committed, as JSON; the runner knows what the batch wrote. `Progress` has both.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from headrace.common.clock import Clock, SystemClock


@dataclass(frozen=True)
class Progress:
    """A batch that is done."""

    pipeline: str
    flow: str
    batch_id: int
    time: str
    """When it began, in ISO 8601."""
    rows: int
    """That it read."""
    seconds: float
    lag: int | None
    """Rows in the source topics that are still to be read; None if the source does not tell."""
    outputs: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by topic and table."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What the pipeline itself observed (`Batch.observe`)."""
    state_rows: int = 0
    """Rows that stateful operators remember."""
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False
    """It was begun before, by a run that ended within it; what had been written was not written again."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "rows_per_second": round(self.rows_per_second, 1)})


@dataclass
class Totals:
    """A flow's batches, added up."""

    batches: int = 0
    rows: int = 0
    busy_seconds: float = 0.0
    lag: int | None = None
    outputs: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        self.batches += 1
        self.rows += progress.rows
        self.busy_seconds += progress.seconds
        self.lag = progress.lag
        for name, rows in progress.outputs.items():
            self.outputs[name] = self.outputs.get(name, 0) + rows
        for name, figure in progress.figures.items():
            known = self.figures.get(name)
            adds = isinstance(figure, int | float) and isinstance(known, int | float)
            self.figures[name] = known + figure if adds else figure


@dataclass(frozen=True)
class Summary:
    """A run that ended."""

    pipeline: str
    seconds: float
    flows: Mapping[str, Totals]

    @property
    def rows(self) -> int:
        return sum(totals.rows for totals in self.flows.values())

    @property
    def outputs(self) -> dict[str, int]:
        return _added(totals.outputs for totals in self.flows.values())

    @property
    def rows_per_second(self) -> float:
        """While batches ran."""
        busy = max((totals.busy_seconds for totals in self.flows.values()), default=0.0)
        return self.rows / busy if busy else 0.0


def _added(many: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in many:
        for name, rows in each.items():
            total[name] = total.get(name, 0) + rows
    return total


def batch_progress(pipeline: str, flow: str, reported: Mapping[str, Any], written: "Written") -> Progress:
    """Of what Spark reported of a batch, and what the runner wrote in it."""
    phases = {str(name): int(ms) for name, ms in reported.get("durationMs", {}).items()}
    return Progress(
        pipeline,
        flow,
        int(reported["batchId"]),
        str(reported["timestamp"]),
        rows=int(reported.get("numInputRows", 0)),
        seconds=phases.get("triggerExecution", 0) / 1000,
        lag=lag_of(reported.get("sources", [])),
        outputs=written.outputs,
        figures=written.figures,
        state_rows=sum(int(state.get("numRowsTotal", 0)) for state in reported.get("stateOperators", [])),
        phases_ms=phases,
        replayed=written.replayed,
    )


@dataclass
class Written:
    """What the runner did in a batch."""

    outputs: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    replayed: bool = False


def lag_of(sources: Any) -> int | None:
    """Rows between what a batch ended with and what its sources had: offsets by topic and partition."""
    total, told = 0, False
    for source in sources:
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if not latest:
            continue
        told = True
        total += sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())
    return total if told else None


def _offsets(told: Any) -> dict[tuple[str, str], int]:
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return {}
    if not isinstance(told, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in told.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


class ProgressLine:
    """A line that tells how a run goes: kept up to date on a terminal, written now and then elsewhere."""

    def __init__(self, stream: IO[str], *, every: float = 10.0, clock: Clock | None = None) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock or SystemClock()
        self._terminal = stream.isatty()
        self._began = self._clock.monotonic()
        self._said = self._began
        self._last: dict[str, Progress] = {}
        self._rows = 0
        self._dead = 0

    def batch(self, progress: Progress) -> None:
        self._last[progress.flow] = progress
        self._rows += progress.rows
        self._dead += sum(rows for name, rows in progress.outputs.items() if name.endswith("dead_letters"))
        now = self._clock.monotonic()
        if self._terminal:
            self._write(f"\r\x1b[K{self.text()}")
        elif now - self._said >= self._every:
            self._said = now
            self._write(f"{self.text()}\n")

    def text(self) -> str:
        seconds = self._clock.monotonic() - self._began
        flows = "  |  ".join(_flow_text(progress) for progress in self._last.values())
        dead = f", {self._dead:,} dead letters" if self._dead else ""
        return f"{flows}  |  {self._rows:,} rows{dead} in {seconds:,.0f} s"

    def end(self) -> None:
        """Leaves the terminal's line as it is, and the next one free."""
        if self._terminal and self._last:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _flow_text(progress: Progress) -> str:
    lag = "" if progress.lag is None else f", lag {progress.lag:,}"
    return (
        f"{progress.flow} batch {progress.batch_id}: {progress.rows:,} rows in {progress.seconds:.1f} s "
        f"({progress.rows_per_second:,.0f}/s{lag})"
    )
