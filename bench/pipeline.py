"""The throughput of `ods-dwd` under a steady stream of events, with the broker and the generator on the same machine.

    python -m bench pipeline [--quick]

For each rate: a new broker, `headrace datagen --rate` and `headrace pipeline run ods-dwd`, as a user starts them. The
lag is the number of records in the ODS topics that are not in a completed batch. A rate is steady if the lag at the end
of the measurement exceeds the lag in its middle by at most one second's worth of events. Processor time is read from
/proc. Then the pipeline catches up with inputs of growing size.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.spark.cluster import descendants, kill_tree, start_headrace

from bench.broker_sides import TICKS_PER_SECOND, Headrace
from bench.harness import Measurement
from headrace.shop.datagen import create_topics

GOAL = 20_000
RATES = (10_000, 20_000, 30_000, 40_000, 60_000, 80_000)
SIZES = (50_000, 100_000, 200_000, 400_000, 800_000)
WARM_SECONDS = 30.0
SECONDS = 90.0
STEP_SECONDS = 1.0
TOPICS = ("ods_log", "ods_db")
PARTITIONS = 4
END_SECONDS = 600.0


@dataclass
class Steady:
    """The measurements at one rate."""

    rate: int
    lags: list[int] = field(default_factory=list)
    """The lag, once per second."""
    produced_per_second: float = 0.0
    done_per_second: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    """The cores that each process used."""
    batch_seconds: float = 0.0

    @property
    def is_steady(self) -> bool:
        third = len(self.lags) // 3
        middle, end = self.lags[third : 2 * third], self.lags[2 * third :]
        kept_up = sum(end) / len(end) <= sum(middle) / len(middle) + self.rate
        return kept_up and self.produced_per_second >= 0.97 * self.rate

    def lines(self) -> list[str]:
        tenth = max(1, len(self.lags) // 10)
        lags = ", ".join(f"{lag / 1000:.1f}" for lag in self.lags[::tenth])
        parts = ", ".join(f"{name} {share:.2f}" for name, share in self.shares.items())
        return [
            f"{self.rate:,} events/s: {'steady' if self.is_steady else 'not steady'}; "
            f"{self.produced_per_second:,.0f}/s written, {self.done_per_second:,.0f}/s processed, "
            f"batches of {self.batch_seconds:.1f} s. Lag in thousands, at ten points: {lags}. Cores: {parts}."
        ]


class Workspace:
    """A broker with its own directory, and commands that use it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.side = Headrace(directory / "broker")
        self.log = directory / "commands.log"
        self.metrics = directory / "metrics.jsonl"

    @contextmanager
    def running(self) -> Iterator["Workspace"]:
        self.side.start()
        try:
            yield self
        finally:
            self.side.stop()

    def datagen(self, *arguments: object) -> subprocess.Popen[bytes]:
        return start_headrace(["datagen", *self._server, "--quiet", *arguments], self.log)

    def pipeline(self, *arguments: object) -> subprocess.Popen[bytes]:
        files = ["--checkpoint", self.directory / "checkpoint", "--metrics", self.metrics]
        return start_headrace(
            ["pipeline", "run", "ods-dwd", *self._server, *files, "--master", "local[2]", "--quiet", *arguments],
            self.log,
        )

    @property
    def _server(self) -> list[object]:
        return ["--bootstrap-server", self.side.bootstrap]

    def batches(self) -> list[dict[str, object]]:
        """Returns the metrics of all batches so far, without a line that is still being written."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def rows_done(self) -> int:
        return sum(int(str(batch["rows"])) for batch in self.batches())

    def failed(self, what: str) -> RuntimeError:
        return RuntimeError(f"{what}\n{self.log.read_text()[-3000:]}")


class EndOffsets:
    """The number of records in the ODS topics."""

    def __init__(self, bootstrap: str) -> None:
        import headrace

        self._consumer = headrace.Consumer(bootstrap_servers=bootstrap)

    def total(self) -> int:
        from headrace import TopicPartition

        tps = [
            TopicPartition(topic, partition)
            for topic in TOPICS
            for partition in self._consumer.partitions_for_topic(topic) or ()
        ]
        return sum(self._consumer.end_offsets(tps).values()) if tps else 0

    def close(self) -> None:
        self._consumer.close()


def cpu_seconds(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_SECOND


def measure_rate(directory: Path, rate: int, warm: float, seconds: float) -> Steady:
    measured = Steady(rate)
    with Workspace(directory).running() as workspace:
        create_topics(workspace.side.bootstrap, PARTITIONS)
        generator = workspace.datagen("--rate", rate)
        pipeline = workspace.pipeline()
        ends = EndOffsets(workspace.side.bootstrap)
        try:
            _watch(workspace, measured, ends, generator, pipeline, warm, seconds)
        finally:
            ends.close()
            for process in (generator, pipeline):
                kill_tree(process.pid)
                process.wait()
    return measured


def _watch(
    workspace: Workspace,
    measured: Steady,
    ends: EndOffsets,
    generator: subprocess.Popen[bytes],
    pipeline: subprocess.Popen[bytes],
    warm: float,
    seconds: float,
) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not workspace.batches():
        if pipeline.poll() is not None or generator.poll() is not None or time.monotonic() > deadline:
            raise workspace.failed("the pipeline did not start")
        time.sleep(0.2)
    time.sleep(warm)
    parts = {
        "broker": [workspace.side.process_id()],
        "generator": [generator.pid],
        "Spark": [pipeline.pid, *descendants(pipeline.pid)],
    }
    before = {name: cpu_seconds(pids) for name, pids in parts.items()}
    produced, done, started = ends.total(), workspace.rows_done(), time.monotonic()
    while time.monotonic() < started + seconds:
        time.sleep(STEP_SECONDS)
        if pipeline.poll() is not None or generator.poll() is not None:
            raise workspace.failed("the pipeline or the generator stopped")
        measured.lags.append(ends.total() - workspace.rows_done())
    taken = time.monotonic() - started
    parts["Spark"] = [pipeline.pid, *descendants(pipeline.pid)]
    measured.shares = {name: max(0.0, cpu_seconds(pids) - before[name]) / taken for name, pids in parts.items()}
    measured.produced_per_second = (ends.total() - produced) / taken
    measured.done_per_second = (workspace.rows_done() - done) / taken
    last = [batch for batch in workspace.batches() if batch["flow"] == "log"][-5:]
    measured.batch_seconds = sum(float(str(batch["seconds"])) for batch in last) / max(1, len(last))


def measure_catch_up(directory: Path, events: int) -> tuple[float, float]:
    """Returns the events per second of an existing input: of the whole command, and while batches ran."""
    with Workspace(directory).running() as workspace:
        generator = workspace.datagen("--events", events)
        if generator.wait(END_SECONDS) != 0:
            raise workspace.failed("the generator failed")
        started = time.monotonic()
        pipeline = workspace.pipeline("--available-now")
        try:
            if pipeline.wait(END_SECONDS) != 0:
                raise workspace.failed("the pipeline failed")
        finally:
            kill_tree(pipeline.pid)
            pipeline.wait()
        whole = time.monotonic() - started
        busy: dict[object, float] = {}
        for batch in workspace.batches():
            busy[batch["flow"]] = busy.get(batch["flow"], 0.0) + float(str(batch["seconds"]))
        return workspace.rows_done() / whole, workspace.rows_done() / max(busy.values())


def run(directory: Path, *, quick: bool = False) -> tuple[list[Measurement], list[str]]:
    load = os.getloadavg()[0]
    warm, seconds = (8.0, 12.0) if quick else (WARM_SECONDS, SECONDS)
    notes = [
        f"Broker, generator and Spark (local[2]) on {os.cpu_count()} cores; events of 1 KB; {seconds:.0f} s at each "
        f"rate after {warm:.0f} s of warm-up. Load average before the run: {load:.1f}."
    ]
    highest = Steady(0)
    for rate in (5_000, GOAL) if quick else RATES:
        measured = measure_rate(directory / f"rate-{rate}", rate, warm, seconds)
        notes += measured.lines()
        print(notes[-1], file=sys.stderr, flush=True)
        if not measured.is_steady:
            break
        highest = measured
    for events in (10_000, 20_000) if quick else SIZES:
        whole, busy = measure_catch_up(directory / f"size-{events}", events)
        notes.append(
            f"Catching up with {events:,} events: {busy:,.0f} events/s while batches ran, {whole:,.0f} with the start."
        )
        print(notes[-1], file=sys.stderr, flush=True)
    reached = highest.rate / GOAL
    name = "ods-dwd: highest steady rate with broker and generator"
    return [Measurement(name, "events/s", "the goal", highest.rate, GOAL, reached, reached, reached, 1.0, 1)], notes
