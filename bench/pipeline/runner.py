"""Runs the parts of the benchmark in alternating rounds and keeps the results of each part.

    python -m bench pipeline [--part rate] [--rounds 3] [--quick] [--sides Arrow,SQL] [--peer FILE]

    rate      the highest rate that the pipeline sustains with broker and generator on the machine
    latency   from the timestamp of an event to its visible row, at 10,000 events/s
    start     from the start of the command to the first visible row
    profile   where the time of a start goes, by phase
    cpu       processor time per event by component, at 20,000 and 40,000 events/s
    catchup   the throughput with the start of Spark, for 50,000 and 1,000,000 existing events
    scaling   the throughput with one and two task slots, and on a standalone cluster
    memory    the memory of each component over five minutes, at 20,000 events/s
    demo      `make run`: 100,000 events through both pipelines of the shop, with the audit

Windows at a fixed rate are shared: `rate`, `latency` and `cpu` of the same round use the same window. Parts that were
not run keep their earlier results.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.apache_kafka.jvm import require_java

from bench.harness import RESULTS
from bench.pipeline.catch_up import (
    START_EVENTS,
    measure_catch_up,
    measure_phases,
    measure_scaling,
    measure_start,
    new_cache,
)
from bench.pipeline.figures import highest_sustained
from bench.pipeline.processes import TreeCpu
from bench.pipeline.report import report_lines
from bench.pipeline.sides import ARROW, CONNECTOR, Side, find_sides
from bench.pipeline.steady import QUICK, Times, Window, measure_window
from bench.pipeline.workspace import RunFailed, Workspace

PARTS = ("rate", "latency", "start", "profile", "cpu", "catchup", "scaling", "memory", "demo")
ROUNDS = 3
RATES = (5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000, 60_000, 70_000, 80_000)
LATENCY_RATE = 10_000
CPU_RATES = (20_000, 40_000)
MEMORY_RATE = 20_000
MEMORY_TIMES = Times(warm_seconds=5, seconds=300)
CATCH_UP_EVENTS = (50_000, 1_000_000)
SCALING_EVENTS = 600_000
DEMO_EVENTS = 100_000
ROOT = Path(__file__).parents[2]


class Bench:
    """Runs parts. `windows` has the windows of this process by side, rate and round."""

    def __init__(self, directory: Path, sides: list[Side], rounds: int, *, quick: bool) -> None:
        self.windows: dict[tuple[str, int, int], Window] = {}
        self._directory = directory
        self._sides = sides
        self._rounds = rounds
        self._quick = quick
        self._runs = 0

    def run(self, part: str) -> Any:
        measure: Callable[[], Any] = getattr(self, f"_{part}")
        return measure()

    def _turns(self) -> Iterator[tuple[int, Side]]:
        """Yields each side once per round. The first side alternates, in case the order matters."""
        for number in range(self._rounds):
            for side in reversed(self._sides) if number % 2 else self._sides:
                yield number, side

    def _new_directory(self) -> Path:
        self._runs += 1
        return self._directory / f"run-{self._runs}"

    def _window(self, side: Side, rate: int, number: int) -> Window:
        key = (side.name, rate, number)
        if key not in self.windows:
            window = measure_window(self._new_directory(), side, rate, QUICK if self._quick else Times())
            print(window.line(), file=sys.stderr, flush=True)
            self.windows[key] = window
        return self.windows[key]

    def _rate(self) -> Any:
        rates = (1_000, 2_000) if self._quick else RATES
        first = {side.name: 1_000 if self._quick else side.first_rate for side in self._sides}
        highest: dict[str, list[int]] = {side.name: [] for side in self._sides}
        windows = []
        for number, side in self._turns():
            tried: list[int] = []

            def sustained(rate: int, side: Side = side, number: int = number, tried: list[int] = tried) -> bool:
                tried.append(rate)
                return self._window(side, rate, number).sustained

            found = highest_sustained(rates, first[side.name], sustained)
            windows += [self._window(side, rate, number).summary() for rate in tried]
            highest[side.name].append(found)
            first[side.name] = max(found, rates[0])
        for side in self._sides:  # the goal names the lag at this rate, which the search may not have tried
            if not self._quick and not any(w["side"] == side.name and w["rate"] == CPU_RATES[0] for w in windows):
                windows.append(self._window(side, CPU_RATES[0], 0).summary())
        return {"highest": highest, "windows": windows}

    def _latency(self) -> Any:
        rate = 1_000 if self._quick else LATENCY_RATE
        return [self._window(side, rate, number).summary() for number, side in self._turns()]

    def _cpu(self) -> Any:
        return [
            self._window(side, rate, number).summary()
            for rate in ((1_000,) if self._quick else CPU_RATES)
            for number, side in self._turns()
        ]

    def _memory(self) -> Any:
        found = []
        for side in self._sides:
            times = QUICK if self._quick else MEMORY_TIMES
            window = measure_window(self._new_directory(), side, 1_000 if self._quick else MEMORY_RATE, times)
            print(window.line(), file=sys.stderr, flush=True)
            found.append(window.summary())
        return found

    def _start(self) -> Any:
        """The first start of each side begins with an empty cache, and a whole run then fills it: Spark's JVM writes
        its archive of classes when it ends."""
        found: dict[str, list[dict[str, Any]]] = {"first": [], "later": []}
        with Workspace(self._new_directory()) as workspace, new_cache(self._new_directory()) as await_users:
            workspace.generate(START_EVENTS)
            for side in self._sides:
                found["first"].append(asdict(measure_start(workspace, side)))
                print(f"first start: {found['first'][-1]}", file=sys.stderr, flush=True)
                workspace.start_pipeline(side, "--available-now").await_end()
                await_users()
            for _, side in self._turns():
                found["later"].append(asdict(measure_start(workspace, side)))
                print(f"start: {found['later'][-1]}", file=sys.stderr, flush=True)
        return found

    def _profile(self) -> Any:
        """Starts the Arrow version after a whole run, which leaves an archive of classes in the cache."""
        directory = self._new_directory()
        with Workspace(directory) as workspace, new_cache(self._new_directory()) as await_users:
            workspace.generate(START_EVENTS)
            workspace.start_pipeline(find_sides([ARROW], "")[0], "--available-now").await_end()
            await_users()
            return [measure_phases(workspace, directory / f"phases-{number}") for number in range(self._rounds)]

    def _catchup(self) -> Any:
        found = []
        for events in (5_000, 20_000) if self._quick else CATCH_UP_EVENTS:
            for number in range(self._rounds):
                with Workspace(self._new_directory()) as workspace:
                    workspace.generate(events)
                    for side in reversed(self._sides) if number % 2 else self._sides:
                        measured = measure_catch_up(workspace, side, events)
                        print(measured.line(), file=sys.stderr, flush=True)
                        found.append(asdict(measured))
        return found

    def _demo(self) -> Any:
        found = []
        events = 2_000 if self._quick else DEMO_EVENTS
        for _ in range(self._rounds):
            chart = self._new_directory().with_suffix(".html")
            command = [sys.executable, ROOT / "examples" / "shop_demo.py", "--events", events, "--master", "local[2]"]
            started = time.monotonic()
            process = subprocess.Popen([*map(str, command), "--chart", str(chart)], stdout=sys.stderr)
            cpu = TreeCpu(process.pid)
            while process.poll() is None:
                cpu.sample()
                time.sleep(0.2)
            if process.returncode != 0:
                raise RunFailed(f"the demo ended with {process.returncode}")
            seconds = time.monotonic() - started
            found.append({"side": ARROW, "events": events, "seconds": seconds, "cpu": round(cpu.seconds, 1)})
        return found

    def _scaling(self) -> Any:
        found = []
        sides = [side for side in self._sides if side.name != CONNECTOR]
        events = 10_000 if self._quick else SCALING_EVENTS
        for number in range(self._rounds):
            for measured in measure_scaling(self._new_directory(), sides, events, flip=bool(number % 2)):
                print(measured.line(), file=sys.stderr, flush=True)
                found.append(asdict(measured))
        return found


def run(
    directory: Path,
    parts: list[str],
    side_names: list[str],
    peer: str,
    rounds: int | None = None,
    *,
    quick: bool = False,
) -> None:
    """Runs parts and writes their results; in quick runs only prints them. Raises `KafkaUnavailable` without Java."""
    require_java()
    rounds = rounds or (1 if quick else ROUNDS)
    bench = Bench(directory, find_sides(side_names, peer), rounds, quick=quick)
    results: dict[str, Any] = {}
    data = RESULTS / "pipeline.json"
    if not quick and data.exists():
        earlier = json.loads(data.read_text())
        results = earlier if isinstance(earlier, dict) else {}
    for part in parts:
        load = os.getloadavg()[0]
        results[part] = {
            "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "load": round(load, 1),
            "rounds": rounds,
            "data": bench.run(part),
        }
        lines = report_lines(results)
        if not quick:
            data.write_text(json.dumps(results) + "\n")
            (RESULTS / "pipeline.md").write_text("\n".join(lines) + "\n")
    print("\n".join(report_lines(results)))
    if quick:
        print("\nThis was a quick run: rates and sizes are smaller than the titles say, and nothing was written.")
