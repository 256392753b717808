"""The progress of a run: the figures of each batch, totals, and the line on a terminal. Driver only, no Spark.

Spark reports a batch as JSON after its commit. The runner counts the rows that the batch wrote. `Progress` combines
both.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, Any, TypeVar

from headrace.common.clock import Clock, SystemClock

Number = TypeVar("Number", int, int | float)

MAX_REASONS = 50
"""The maximum number of reasons of dead letters that are counted one by one."""
OTHER_REASONS = "other reasons"


@dataclass(frozen=True)
class Progress:
    """A committed batch."""

    pipeline: str
    flow: str
    batch_id: int
    time: str
    """The start of the batch, in ISO 8601."""
    rows: int
    """Rows read."""
    seconds: float
    lag: int | None
    """Rows in the source topics that are not read yet; None if the source does not report it."""
    outputs: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by topic and table."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that the pipeline itself reported (`Batch.figures`, `Batch.observe`)."""
    state_rows: int = 0
    """Rows in the state of stateful operators."""
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False
    """True if an earlier run began this batch and did not finish it. Rows that it had written were not written
    again."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Dead letters by reason."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "rows_per_second": round(self.rows_per_second, 1)})


@dataclass
class Totals:
    """The sums of a flow's batches."""

    batches: int = 0
    rows: int = 0
    busy_seconds: float = 0.0
    lag: int | None = None
    outputs: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Dead letters by reason."""

    def add(self, progress: Progress) -> None:
        self.batches += 1
        self.rows += progress.rows
        self.busy_seconds += progress.seconds
        self.lag = progress.lag
        for name, rows in progress.outputs.items():
            self.outputs[name] = self.outputs.get(name, 0) + rows
        for name, figure in progress.figures.items():
            total = self.figures.get(name)
            adds = isinstance(figure, int | float) and isinstance(total, int | float)
            self.figures[name] = total + figure if adds else figure
        add_reasons(self.dead_letters, progress.dead_letters)


@dataclass(frozen=True)
class Summary:
    """The result of a run."""

    pipeline: str
    seconds: float
    flows: Mapping[str, Totals]

    @property
    def rows(self) -> int:
        return sum(totals.rows for totals in self.flows.values())

    @property
    def outputs(self) -> dict[str, int]:
        return sum_by_name(totals.outputs for totals in self.flows.values())

    @property
    def rows_per_second(self) -> float:
        """Rows per second while batches ran."""
        busy = max((totals.busy_seconds for totals in self.flows.values()), default=0.0)
        return self.rows / busy if busy else 0.0


def sum_by_name(counts: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """Adds up numbers that have the same name."""
    total: dict[str, Number] = {}
    for numbers in counts:
        for name, number in numbers.items():
            total[name] = total[name] + number if name in total else number
    return total


def add_reasons(counts: dict[str, int], more: Mapping[str, int]) -> None:
    """Adds numbers of dead letters by reason. Reasons beyond `MAX_REASONS` are counted together."""
    for reason, count in more.items():
        is_separate = reason in counts or len(counts.keys() - {OTHER_REASONS}) < MAX_REASONS
        name = reason if is_separate else OTHER_REASONS
        counts[name] = counts.get(name, 0) + count


def batch_progress(pipeline: str, flow: str, reported: Mapping[str, Any], written: "BatchResult") -> Progress:
    """Combines Spark's report of a batch with the rows that the runner wrote."""
    phases = {str(name): int(ms) for name, ms in reported.get("durationMs", {}).items()}
    return Progress(
        pipeline,
        flow,
        int(reported["batchId"]),
        str(reported["timestamp"]),
        rows=int(reported.get("numInputRows", 0)) if written.rows is None else written.rows,
        seconds=phases.get("triggerExecution", 0) / 1000,
        lag=source_lag(reported.get("sources", [])),
        outputs=written.outputs,
        figures=written.figures,
        state_rows=sum(int(state.get("numRowsTotal", 0)) for state in reported.get("stateOperators", [])),
        phases_ms=phases,
        replayed=written.replayed,
        dead_letters=written.dead_letters,
    )


@dataclass
class BatchResult:
    """The output of one batch."""

    outputs: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    replayed: bool = False
    rows: int | None = None
    """Rows read, if the runner knows the number better than Spark."""
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Dead letters by reason."""


def source_lag(sources: Any) -> int | None:
    """Returns the number of rows between the end of a batch and the latest offsets of its sources.

    Returns None if the sources do not report offsets by topic and partition.
    """
    total, is_known = 0, False
    for source in sources:
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if not latest:
            continue
        is_known = True
        total += sum(max(0, offset - end.get(partition, offset)) for partition, offset in latest.items())
    return total if is_known else None


def _offsets(reported: Any) -> dict[tuple[str, str], int]:
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    if not isinstance(reported, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in reported.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
        if isinstance(offset, int)
    }


class ProgressLine:
    """The progress of a run in one line: updated in place on a terminal, otherwise printed every few seconds."""

    def __init__(self, stream: IO[str], *, every: float = 10.0, clock: Clock | None = None) -> None:
        self._stream = stream
        self._every = every
        self._clock = clock or SystemClock()
        self._is_terminal = stream.isatty()
        self._started = self._clock.monotonic()
        self._last_printed = self._started
        self._last: dict[str, Progress] = {}
        self._rows = 0
        self._dead_letters = 0

    def batch(self, progress: Progress) -> None:
        self._last[progress.flow] = progress
        self._rows += progress.rows
        self._dead_letters += sum(rows for name, rows in progress.outputs.items() if name.endswith("dead_letters"))
        now = self._clock.monotonic()
        if self._is_terminal:
            self._write(f"\r\x1b[K{self.text()}")
        elif now - self._last_printed >= self._every:
            self._last_printed = now
            self._write(f"{self.text()}\n")

    def text(self) -> str:
        seconds = self._clock.monotonic() - self._started
        flows = "  |  ".join(_flow_text(progress) for progress in self._last.values())
        dead_letters = f", {self._dead_letters:,} dead letters" if self._dead_letters else ""
        return f"{flows}  |  {self._rows:,} rows{dead_letters} in {seconds:,.0f} s"

    def end(self) -> None:
        """Ends the line on a terminal, so that the next output starts on a new line."""
        if self._is_terminal and self._last:
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
