"""What watching costs a broker: a console with a browser's live updates, and a scrape of `/metrics` every second.

Both sides are Headrace, alone on the machine in turn: one with `--metrics` and `--console`, one without. The console is
a process of its own that polls the broker. The watcher, a thread of this process, holds one stream of server-sent
events open and scrapes. Console, watcher and load generator share the cores with the broker.

- Latency: produce requests of one record of 1 KB, 1,000 per second.
- Throughput and CPU time of the broker's process: librdkafka, as in the benchmark `processes`.
- Memory: the resident set of the console after some minutes of that, at the end of each round.

    python -m bench console [--rounds 5] [--quick]
"""

import http.client
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Self

from tests.support.broker.process import free_port

from bench.broker import BATCHES, Goal, Results, in_turn
from bench.broker_load import PARTITIONS, RECORD_BYTES, Librdkafka, build
from bench.broker_sides import TICKS_PER_SECOND, Headrace, cpu_ticks, family, rss_mb
from bench.broker_wire import HOST, await_condition, make_topic
from bench.cluster_sides import settle
from bench.harness import Measurement, describe

ROUNDS = 5
RATE = 1000
MEMORY_GOAL_MB = 100
CASE = "produce, 16 KB batches"
LATENCY = Goal("us", 1.02)
SPEED = Goal("MB/s", 0.98, lower_is_better=False)
CPU = Goal("CPU-s/GB", 1.02)
_START_SECONDS = 60.0
_READ_SECONDS = 60.0


@dataclass(frozen=True)
class Sizes:
    """The work of each side in a round."""

    pace_seconds: int = 30
    megabytes: int = 1000
    watch_seconds: float = 120.0
    """How long the console has run, at least, when its memory is measured."""
    settle_seconds: float = 2.0


QUICK = Sizes(pace_seconds=5, megabytes=80, watch_seconds=15, settle_seconds=0.5)


class Bare(Headrace):
    name = "not watched"


class Watched(Headrace):
    """With a metrics endpoint and a console."""

    name = "watched"

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        super().__init__(directory, properties)
        self.metrics_port, self.console_port = free_port(), free_port()
        self.arguments = ("--metrics", f"{HOST}:{self.metrics_port}", "--console", f"{HOST}:{self.console_port}")

    def console_pids(self) -> list[int]:
        """Returns the console's process and its children."""
        return family(self.process_id())[1:]

    def kill(self) -> None:
        pids = self.console_pids()
        super().kill()
        # The console ends by itself when it has lost its parent.
        await_condition("the end of the console", lambda: not any(map(_exists, pids)), _START_SECONDS)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Watcher:
    """Reads the console's live updates in one thread, and scrapes every second in another."""

    def __init__(self, side: Watched):
        self._side = side
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self.scrapes = 0
        self.updates = 0
        self._threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._scrape, self._listen)]

    def __enter__(self) -> Self:
        """Waits until the console and the metrics endpoint have answered once."""
        for thread in self._threads:
            thread.start()
        try:
            await_condition("the first update and the first scrape", self._has_begun, _START_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        if self._failure is not None and error[0] is None:
            raise self._failure

    def _has_begun(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return bool(self.scrapes and self.updates)

    def _end(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the benchmark's thread raises it
            self._failure = error

    def _scrape(self) -> None:
        while not self._stopped.wait(1.0):
            with closing(http.client.HTTPConnection(HOST, self._side.metrics_port, timeout=_READ_SECONDS)) as wire:
                wire.request("GET", "/metrics")
                answer = wire.getresponse()
                if answer.status != 200 or not answer.read():
                    raise RuntimeError(f"/metrics answered with status {answer.status}")
            self.scrapes += 1

    def _listen(self) -> None:
        def listened() -> bool:
            # False while nobody listens: the console starts a little later than the broker.
            wire = http.client.HTTPConnection(HOST, self._side.console_port, timeout=_READ_SECONDS)
            try:
                wire.request("GET", "/api/clusters/default/events")
                answer = wire.getresponse()
            except OSError:
                wire.close()
                return False
            with closing(wire), answer:
                if answer.status != 200:
                    raise RuntimeError(f"the console's events answered with status {answer.status}: {answer.read()!r}")
                while not self._stopped.is_set():
                    line = answer.readline()
                    if not line:
                        raise RuntimeError("the console has closed its stream of events")
                    self.updates += line.startswith(b"data:")
            return True

        await_condition("the start of the console", listened, _START_SECONDS)


@dataclass
class _Measured:
    """The values of one side in one round."""

    p50_us: float = 0.0
    p99_us: float = 0.0
    speed: float = 0.0
    cpu: float = 0.0


@dataclass
class Bench:
    """The rounds."""

    directory: Path
    sizes: Sizes
    generator: Librdkafka
    results: Results = field(default_factory=Results)
    memory_mb: list[float] = field(default_factory=list)
    console_cpu: list[float] = field(default_factory=list)
    """The console's share of one core."""

    def round(self, number: int) -> None:
        found = [_Measured(), _Measured()]
        for place in in_turn(number):
            directory = self.directory / f"side-{number}-{place}"
            side = (Watched, Bare)[place](directory)
            try:
                side.start()
                if isinstance(side, Watched):
                    self._watch(side, found[place])
                else:
                    self._measure(side, found[place])
            finally:
                side.kill()
                shutil.rmtree(directory, ignore_errors=True)
        ours, theirs = found
        self.results.add(f"produce, {RATE:,} records/s, p50", LATENCY, ours.p50_us, theirs.p50_us)
        self.results.add(f"produce, {RATE:,} records/s, p99", LATENCY, ours.p99_us, theirs.p99_us)
        self.results.add(CASE, SPEED, ours.speed, theirs.speed)
        self.results.add(f"{CASE}: CPU of the broker", CPU, ours.cpu, theirs.cpu)

    def _watch(self, side: Watched, found: _Measured) -> None:
        with Watcher(side) as watcher:
            started = time.monotonic()
            ticks = _ticks(side.console_pids())
            self._measure(side, found)
            time.sleep(max(0.0, self.sizes.watch_seconds - (time.monotonic() - started)))
            seconds = time.monotonic() - started
            self.console_cpu.append((_ticks(side.console_pids()) - ticks) / TICKS_PER_SECOND / seconds)
            self.memory_mb.append(sum(map(rss_mb, side.console_pids())))
            scrapes, updates = watcher.scrapes, watcher.updates
        print(f"  {scrapes} scrapes, {updates} updates in {seconds:.0f} s", file=sys.stderr, flush=True)

    def _measure(self, side: Headrace, found: _Measured) -> None:
        make_topic(side.port, "paced", 1)
        make_topic(side.port, "load", PARTITIONS)
        settle(self.sizes.settle_seconds)
        pace = self.generator.pace(side.port, "paced", RATE, self.sizes.pace_seconds, self.directory)
        found.p50_us, found.p99_us = pace.p50_us, pace.p99_us
        settle(self.sizes.settle_seconds)
        broker = [side.process_id()]
        before = _ticks(broker)
        load = self.generator.produce(side.bootstrap, "load", self.sizes.megabytes, BATCHES["16 KB"], "1")
        found.speed = load.mb_per_second
        found.cpu = max(_ticks(broker) - before, 1) / TICKS_PER_SECOND / load.total_bytes * 1e9


def _ticks(pids: list[int]) -> int:
    return sum(map(cpu_ticks, pids))


def run(directory: Path, rounds: int, *, sizes: Sizes) -> tuple[list[Measurement], list[str]]:
    """Runs the benchmark. Returns the measurements and notes."""
    bench = Bench(directory, sizes, Librdkafka(build(directory)))
    load = os.getloadavg()
    for number in range(rounds):
        print(f"console, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        bench.round(number)
    measurements = bench.results.measurements(Bare.name)
    for each in measurements:
        print(describe(each), file=sys.stderr, flush=True)
    memory = median(bench.memory_mb)
    notes = [
        "The columns of Headrace are a broker with `--metrics`, scraped every second, and `--console`, with the live "
        "updates of one browser; the peer is the same broker without them.",
        f"Console memory: {memory:.0f} MB resident after {sizes.watch_seconds:.0f} s or more, at most "
        f"{max(bench.memory_mb):.0f} MB (goal: below {MEMORY_GOAL_MB} MB"
        f"{'' if max(bench.memory_mb) < MEMORY_GOAL_MB else '; missed'}).",
        f"The console used {100 * median(bench.console_cpu):.1f}% of one core; it shares {os.cpu_count()} cores with "
        "the broker and the load generator.",
        f"Records of {RECORD_BYTES} bytes; {sizes.pace_seconds} s of paced requests and {sizes.megabytes} MB for each "
        "side and round.",
        f"Load averages before the run: {load[0]:.1f}, {load[1]:.1f}, {load[2]:.1f}.",
    ]
    return measurements, notes
