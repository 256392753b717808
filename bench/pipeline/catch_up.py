"""Runs over existing events: the time to the first rows, the throughput with the start of Spark, and task slots."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.spark.cluster import EXECUTOR_SETTINGS, SparkCluster, processes_with

from bench.pipeline.figures import busy_rate, warm_rate
from bench.pipeline.processes import DRIVER, JVM, WORKERS, cpu_seconds, find_processes
from bench.pipeline.sides import ARROW, Side
from bench.pipeline.workspace import DWD, PipelineRun, Workspace
from headrace import Consumer, TopicPartition

START_EVENTS = 500
FIRST_ROW = "first visible row"
_CACHE = "HEADRACE_CACHE"
CLUSTER = "two one-core workers"
SLOTS = {"local[1]": 1, "local[2]": 2, CLUSTER: 2}
SCALING_ROWS_PER_BATCH = 50_000
"""Small enough for several batches in an executor of 512 MB."""


@dataclass
class StartTimes:
    """The seconds from the start of the command to the first visible row, and to the end of all batches."""

    side: str
    first_row: float
    all_rows: float
    cpu: dict[str, float] = field(default_factory=dict)
    """The processor time of driver, JVM and Python workers until the first row."""


@contextlib.contextmanager
def new_cache(directory: Path) -> Iterator[Callable[[], None]]:
    """Within the block, commands use an empty cache. The yielded function waits until all of them have ended."""
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = str(directory)

    def await_users() -> None:
        while processes_with(f"{_CACHE}={directory}"):
            time.sleep(0.2)

    try:
        yield await_users
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if before is None:
            del os.environ[_CACHE]
        else:
            os.environ[_CACHE] = before


def measure_start(workspace: Workspace, side: Side) -> StartTimes:
    """Starts a pipeline with `START_EVENTS` existing events. Kills it between batches, so that it leaves no open
    transaction, which would hide the rows of later runs."""
    with Consumer(
        bootstrap_servers=workspace.bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        fetch_max_wait_ms=100,
    ) as consumer:
        tps = [TopicPartition(topic, number) for topic in DWD for number in consumer.partitions_for_topic(topic)]
        consumer.assign(tps)
        consumer.seek_to_end()
        for tp in tps:
            consumer.position(tp)
        pipeline = workspace.start_pipeline(side)
        pipeline.await_condition(lambda: bool(consumer.poll(timeout_ms=20)), "rows in the DWD topics")
        first_row = time.monotonic() - pipeline.started
        processes = find_processes(workspace.broker.process_id(), None, pipeline.process.pid)
        cpu = {name: round(cpu_seconds(processes[name]), 2) for name in (DRIVER, JVM, WORKERS)}
    pipeline.await_rows(START_EVENTS)
    all_rows = time.monotonic() - pipeline.started
    pipeline.kill()
    return StartTimes(side.name, first_row, all_rows, cpu)


def measure_phases(workspace: Workspace, file: Path) -> list[dict[str, Any]]:
    """Returns the phases of a start of the Arrow version, until the end of its first batch."""
    side = Side(ARROW, ("-m", "bench.pipeline.start_profile", str(file), "run", "ods-dwd", "--quiet"), 0)
    measured = measure_start(workspace, side)
    phases = [json.loads(line) for line in file.read_text().splitlines()]
    return [*phases, {"phase": FIRST_ROW, "seconds": measured.first_row, "cpu": measured.cpu}]


@dataclass
class CatchUp:
    """A run over existing events. Rates are events per second."""

    side: str
    events: int
    seconds: float
    """The time of the whole command."""
    with_start: float
    while_busy: float
    warm: float
    """After the first third of the events."""
    master: str = "local[2]"

    def line(self) -> str:
        return (
            f"{self.side}, {self.master}, {self.events:,} events: {self.seconds:.1f} s, {self.with_start:,.0f}/s with "
            f"the start, {self.while_busy:,.0f}/s while batches ran, {self.warm:,.0f}/s warm"
        )


def measure_catch_up(workspace: Workspace, side: Side, events: int) -> CatchUp:
    """Runs a side over the workspace's existing `events`."""
    return _catch_up(workspace.start_pipeline(side, "--available-now"), side, events, "local[2]")


def _catch_up(pipeline: PipelineRun, side: Side, events: int, master: str) -> CatchUp:
    pipeline.await_end()
    seconds = time.monotonic() - pipeline.started
    batches, rows = pipeline.metrics.read(), pipeline.metrics.rows()
    if rows != events:
        raise RuntimeError(f"{side.name} processed {rows:,} of {events:,} events")
    return CatchUp(side.name, events, seconds, rows / seconds, busy_rate(batches), warm_rate(batches), master)


def measure_scaling(directory: Path, sides: Sequence[Side], events: int, *, flip: bool) -> Iterator[CatchUp]:
    """Runs each side with one and two task slots of one JVM, and on a cluster."""
    with Workspace(directory / "workspace") as workspace:
        workspace.generate(events)
        for name in SLOTS:
            for side in reversed(sides) if flip else sides:
                with contextlib.ExitStack() as stack:
                    arguments: list[object] = ["--available-now", "--max-rows", SCALING_ROWS_PER_BATCH]
                    master = name
                    if name == CLUSTER:
                        cluster = stack.enter_context(SparkCluster(directory / f"cluster-{side.name}"))
                        master = cluster.master
                        for key, value in EXECUTOR_SETTINGS.items():
                            arguments += ["--conf", f"{key}={value}"]
                    pipeline = workspace.start_pipeline(side, *arguments, master=master)
                    yield _catch_up(pipeline, side, events, name)
