"""A window at a fixed rate: lag, processor time by component, memory, and the latency of rows.

The pipeline first processes a few events, as in `make run`. Then the generator starts, and after a warm-up the window.
So the lag does not contain the start of Spark.
"""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.pipeline.figures import is_sustained, percentile
from bench.pipeline.processes import (
    BROKER,
    GENERATOR,
    cpu_by_component,
    find_processes,
    machine_cpu_seconds,
    memory_mb,
)
from bench.pipeline.sides import Side
from bench.pipeline.visible_rows import VisibleRows
from bench.pipeline.workspace import PipelineRun, RunFailed, Workspace

WARM_EVENTS = 2000
WARM_SEED = 99
MEMORY_SECONDS = 5.0


@dataclass(frozen=True)
class Times:
    warm_seconds: float = 30.0
    seconds: float = 60.0


QUICK = Times(6.0, 9.0)


@dataclass
class Window:
    """The measurements of one window."""

    side: str
    rate: int
    seconds: float = 0.0
    lags: list[int] = field(default_factory=list)
    """Events that are written but not in a completed batch, once per second."""
    written: int = 0
    done: int = 0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    other_cores: float = 0.0
    """The cores that processes used that are no part of the run."""
    memory: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Seconds since the start of the window, and the proportional set size of each component in MB."""
    batch_seconds: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def sustained(self) -> bool:
        return is_sustained(self.rate, self.written / self.seconds, self.lags)

    def cpu_us(self, component: str) -> float:
        """Returns the processor time per event: per written event for broker and generator, otherwise per processed
        event."""
        events = self.written if component in (BROKER, GENERATOR) else self.done
        return self.cpu_seconds[component] * 1e6 / max(1, events)

    def summary(self) -> dict[str, Any]:
        """Returns the figures for the results."""
        found = asdict(self)
        latencies = found.pop("latencies_ms")
        batches = found.pop("batch_seconds")
        found["sustained"] = self.sustained
        found["cpu_us"] = {name: round(self.cpu_us(name), 2) for name in self.cpu_seconds}
        found["lag_median"] = percentile(self.lags, 50)
        found["lag_max"] = max(self.lags)
        found["batch_median"] = percentile(batches, 50) if batches else None
        found["latency_rows"] = len(latencies)
        found["latency_ms"] = {str(p): round(percentile(latencies, p), 1) for p in (50, 99, 100)} if latencies else {}
        return found

    def line(self) -> str:
        cores = ", ".join(f"{name} {used / self.seconds:.2f}" for name, used in self.cpu_seconds.items())
        latency = "no visible rows"
        if self.latencies_ms:
            p50, p99 = (percentile(self.latencies_ms, percent) / 1000 for percent in (50, 99))
            latency = f"latency {p50:.2f} s (p50), {p99:.2f} s (p99)"
        return (
            f"{self.side}, {self.rate:,} events/s: {'sustained' if self.sustained else 'NOT sustained'}; "
            f"{self.written / self.seconds:,.0f}/s written, {self.done / self.seconds:,.0f}/s processed; lag "
            f"{percentile(self.lags, 50) / self.rate:.1f} s, at most {max(self.lags) / self.rate:.1f} s; {latency}; "
            f"cores: {cores}; others {self.other_cores:.2f}"
        )


def measure_window(directory: Path, side: Side, rate: int, times: Times) -> Window:
    window = Window(side.name, rate)
    with Workspace(directory) as workspace:
        workspace.generate(WARM_EVENTS, "--seed", WARM_SEED)
        pipeline = workspace.start_pipeline(side)
        pipeline.await_rows(WARM_EVENTS)
        with VisibleRows(workspace.bootstrap) as visible:
            generator = workspace.start_generator("--rate", rate)
            time.sleep(times.warm_seconds)
            since_ms = time.time() * 1000
            _watch(workspace, window, pipeline, generator.pid, times.seconds)
            until_ms = time.time() * 1000
            if generator.poll() is not None:
                raise RunFailed("the generator ended during the measurement")
        generator.kill()
        pipeline.kill()
        window.latencies_ms = visible.latencies_ms(since_ms, until_ms)
    return window


def _watch(workspace: Workspace, window: Window, pipeline: PipelineRun, generator: int, seconds: float) -> None:
    written_events = workspace.written()

    def processes() -> dict[str, list[int]]:
        return find_processes(workspace.broker.process_id(), generator, pipeline.process.pid)

    try:
        cpu, machine = cpu_by_component(processes()), machine_cpu_seconds()
        first_batch = len(pipeline.metrics.read())
        written, done, started = written_events.total(), pipeline.metrics.rows(), time.monotonic()
        next_memory = started
        while (now := time.monotonic()) < started + seconds:
            if now >= next_memory:
                next_memory += MEMORY_SECONDS
                memory = {name: memory_mb(pids)[1] for name, pids in processes().items()}
                window.memory.append((round(now - started, 1), memory))
            pipeline.check()
            window.lags.append(max(0, written_events.total() - pipeline.metrics.rows()))
            time.sleep(1.0)
        window.seconds = time.monotonic() - started
        window.written = written_events.total() - written
        window.done = pipeline.metrics.rows() - done
        after = cpu_by_component(processes())
        window.cpu_seconds = {name: max(0.0, used - cpu[name]) for name, used in after.items()}
        others = machine_cpu_seconds() - machine - sum(window.cpu_seconds.values())
        window.other_cores = round(max(0.0, others / window.seconds), 2)
        window.batch_seconds = [float(each["seconds"]) for each in pipeline.metrics.read()[first_batch:]]
    finally:
        written_events.close()
