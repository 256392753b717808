"""Processes a shop's events on Spark, from raw events to traffic per minute: the demo behind `make run`.

    python examples/shop_demo.py [--events 100000] [--rate 5000] [--master 'local[*]'] [--chart traffic.html]

Starts `headrace server` in its own process, with a temporary directory, and Spark at the same time. While events of a
simulated shop arrive in `ods_log` and `ods_db`, `ods-dwd` turns them into clean rows and `dws-traffic` counts these per
minute, both as streams in one Spark application. The web console shows both while they run. Then an audit reconciles
all topics by id. Nothing keeps running afterwards, and the exit code is 0 only if the audit passed.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.common.errors import HeadraceError
from headrace.pipelines.columns import JsonFields
from headrace.pipelines.loading import load_pipeline
from headrace.pipelines.run_settings import RunSettings
from headrace.pipelines.runner import Runner
from headrace.pipelines.sessions import quiet_session
from headrace.pipelines.topic_reader import read_topics
from headrace.shop.audit import DEAD_LETTERS, Report, audit
from headrace.shop.audit.report import table
from headrace.shop.chart import Section, Series, html_page, text_chart
from headrace.shop.datagen import GeneratedEvents, StreamSettings, create_topics, generate
from headrace.shop.datagen.progress import Progress, bar, time_text
from headrace.shop.dws_traffic import SOURCES, TRAFFIC
from headrace.shop.live_figures import LiveFigures
from headrace.shop.schemas import DWD_PAGE

EVENTS = 100_000
RATE = 5_000
MAX_SECONDS = 60
"""The maximum time to send all events, however many there are."""
SPAN_MS = 3_600_000
WARM_UP_EVENTS = 500
"""Spark compiles its plans while it processes these first events, so that later events need not wait."""
PARTITIONS = 4
WIDTH = 34


def main() -> None:
    arguments = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    began = time.perf_counter()
    try:
        with contextlib.ExitStack() as stack:
            directory = arguments.directory
            if directory is None:
                temporary = tempfile.TemporaryDirectory(prefix="headrace-shop-", ignore_cleanup_errors=True)
                directory = Path(stack.enter_context(temporary))
            report = demo(arguments, directory, stack)
            chart = arguments.chart
    except HeadraceError as error:
        sys.exit(f"\nthe demo failed: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
    print(f"{'everything stopped':<{WIDTH}}{time.perf_counter() - began:6.1f} s in total; chart: {chart}")
    sys.exit(0 if report.ok else 1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--events", type=int, default=EVENTS, help="number of events (default: %(default)s)")
    parser.add_argument("--rate", type=float, help=f"events per second (default: {RATE}, more for many events)")
    parser.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    parser.add_argument("--chart", type=Path, default=Path("traffic.html"), help="HTML page to write (%(default)s)")
    parser.add_argument("--directory", type=Path, help="directory for all data (default: a temporary directory)")
    parser.add_argument("--console", default="127.0.0.1:0", help="address of the console (default: a free port)")
    parser.add_argument("--keep", action="store_true", help="keep broker and console running until Ctrl-C")
    parser.add_argument("--host", default="127.0.0.1", help="address of the broker, for Spark on other machines")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated events (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.events < 1:
        parser.error("--events: expected at least 1")
    if arguments.rate is None:
        arguments.rate = max(RATE, arguments.events / MAX_SECONDS)
    return arguments


def demo(arguments: argparse.Namespace, directory: Path, stack: contextlib.ExitStack) -> Report:
    server, spark = start_all(arguments, directory, stack)
    live = LiveRun(arguments, spark, server, directory)
    live.run()
    stopping = in_background(spark.stop)  # the audit does not need Spark
    print()
    with step("audit: reconcile all topics by id") as report_result:
        report = audit(server, since_ms=live.since_ms)
        report_result(
            f"{sum(each.records for each in report.inputs):,} events, {sum(o.rows for o in report.outputs):,} rows"
        )
    with step("read the traffic") as report_result:
        times_ms, series = read_traffic(server)
        reasons = read_reasons(server)
        views, rows = sum(series[0].values), {output.topic: output.rows for output in report.outputs}[DWD_PAGE]
        if views != rows:
            raise HeadraceError(f"dws-traffic counted {views:,.0f} page views, but {DWD_PAGE} has {rows:,} rows")
        report_result(f"{len(times_ms)} minutes; their page views match {DWD_PAGE}")
    arguments.chart.parent.mkdir(parents=True, exist_ok=True)
    arguments.chart.write_text(page(live, report, reasons, times_ms, series))
    print()
    print("\n".join([*report.lines(), ""]))
    print("\n".join([*summary(live, report, reasons), ""]))
    print("\n".join([*text_chart(times_ms, series), ""]))
    stopping.result()
    if arguments.keep:
        print("broker and console keep running until Ctrl-C", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)
    return report


# ---- broker and Spark


def start_all(arguments: argparse.Namespace, directory: Path, stack: contextlib.ExitStack) -> tuple[str, Any]:
    """Starts the broker and Spark at the same time, and shows what is still missing."""
    began = time.perf_counter()
    progress = Progress(sys.stdout)
    progress.show("starting a broker and Spark")

    def start_broker() -> tuple[str, float]:
        server = stack.enter_context(broker(arguments.host, directory / "broker"))
        create_topics(server, PARTITIONS)
        return server, time.perf_counter() - began

    def start_console() -> tuple[str, float]:
        server, _ = jobs["broker"].result()
        url = stack.enter_context(console(server, arguments.console))
        return url, time.perf_counter() - began

    def start_spark() -> tuple[Any, float]:
        spark = quiet_session("headrace shop", arguments.master, processes_rows=False)
        stack.callback(spark.stop)
        return spark, time.perf_counter() - began

    jobs: dict[str, Future[tuple[Any, float]]] = {"broker": in_background(start_broker)}
    jobs["Spark"] = in_background(start_spark)
    jobs["console"] = in_background(start_console)
    shown: set[str] = set()
    while waiting := [name for name, job in jobs.items() if not job.done()]:
        done = set(jobs) - set(waiting)
        if progress.is_due() or done != shown:
            shown = done
            ready = "".join(f"{name} ready, " for name in jobs if name in done)
            progress.show(f"{ready}waiting for {' and '.join(waiting)}  {time.perf_counter() - began:.1f} s")
        time.sleep(0.05)
    (server, broker_seconds), (spark, spark_seconds), (url, _) = (job.result() for job in jobs.values())
    progress.end(
        f"broker at {server} after {broker_seconds:.1f} s, Spark {spark.version} at {arguments.master} "
        f"after {spark_seconds:.1f} s"
    )
    print(f"console at {url}, until everything stops", flush=True)
    return server, spark


def in_background(function: Callable[[], Any]) -> "Future[Any]":
    """Calls a function in a thread of its own."""
    executor = ThreadPoolExecutor(1)
    try:
        return executor.submit(function)
    finally:
        executor.shutdown(wait=False)


@contextlib.contextmanager
def broker(host: str, directory: Path) -> Iterator[str]:
    """Runs `headrace server` on a free port, and stops it at the end of the block."""
    directory.mkdir(parents=True)
    options = ["--log-level", "ERROR", "-o", f"listeners=PLAINTEXT://{host}:0", "-o", f"log.dirs={directory}"]
    with headrace("server", *options) as first_line:
        if not first_line.startswith("ready"):
            raise HeadraceError("the broker did not start")
        yield first_line.split("://")[1].strip()


@contextlib.contextmanager
def console(server: str, address: str) -> Iterator[str]:
    """Runs `headrace console` for the broker, and stops it at the end of the block."""
    options = ["--bootstrap-server", server, "--listen", address, "--interval", "2"]
    with headrace("console", *options) as first_line:
        if not first_line.startswith("console"):
            raise HeadraceError(f"the console did not start at {address}")
        yield first_line.split()[1]


@contextlib.contextmanager
def headrace(*command: str) -> Iterator[str]:
    """Runs a command of Headrace. Yields the first line that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *command],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C stops the demo, which needs the broker for a graceful stop
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


# ---- events and pipelines


class LiveRun:
    """Sends events while both pipelines run, until they have processed all events."""

    def __init__(self, arguments: argparse.Namespace, spark: Any, server: str, directory: Path):
        self._events = arguments.events
        self._warm_up = min(WARM_UP_EVENTS, arguments.events // 2)
        self._rate = arguments.rate
        self._seed = arguments.seed
        self._server = server
        run_settings = RunSettings(
            bootstrap_servers=server, checkpoint=str(directory / "checkpoints"), warehouse=str(directory / "warehouse")
        )
        self._ods, self._dws = (Runner(load_pipeline(name), spark, run_settings) for name in ("ods-dwd", "dws-traffic"))
        self._generated = [GeneratedEvents(), GeneratedEvents()]
        self._error: BaseException | None = None
        self._warmed_up = threading.Event()
        self._stop = threading.Event()
        self.figures = LiveFigures()
        self.seconds = 0.0
        """The time from the first event after the warm-up until all events are clean rows."""
        self.since_ms = 0

    def run(self) -> None:
        sending = threading.Thread(target=self._send, name="datagen")
        progress = Progress(sys.stdout)
        began = time.perf_counter()
        try:
            sending.start()
            for runner in (self._ods, self._dws):
                progress.show(f"starting the pipelines  {time.perf_counter() - began:.1f} s")
                start(runner)
            while sending.is_alive() or not self._caught_up():
                if self._ods.wait(0.05) or self._dws.wait(0.05):
                    raise HeadraceError("a pipeline stopped unexpectedly")
                if self._error is not None:
                    raise self._error
                if self._is_warm() and not self._warmed_up.is_set():
                    progress.end(f"first rows of both pipelines after {time.perf_counter() - began:.1f} s")
                    began, self.since_ms = time.perf_counter(), round(time.time() * 1000)
                    self._warmed_up.set()
                self._take_sample(time.perf_counter() - began)
                if not sending.is_alive() and self._cleaned():
                    self.seconds = self.seconds or time.perf_counter() - began
                if progress.is_due():
                    progress.show(self._line(time.perf_counter() - began))
            self.seconds = self.seconds or time.perf_counter() - began
            progress.end(self._line(time.perf_counter() - began))
        finally:
            self._stop.set()
            self._warmed_up.set()
            if sending.is_alive():
                sending.join()
            for runner in (self._ods, self._dws):
                runner.stop()

    def _take_sample(self, seconds: float) -> None:
        """Notes the counters after the warm-up."""
        if self._warmed_up.is_set():
            ods = self._ods.summary()
            done = max(0, ods.rows - self._warm_up)
            self.figures.add(seconds, self._generated[1].events, done, sum(ods.outputs.values()))

    def _send(self) -> None:
        start_ms = round(time.time()) // 60 * 60_000 - SPAN_MS
        try:
            if self._warm_up:
                span_ms = SPAN_MS * self._warm_up // self._events + 1000
                self._generate(0, self._warm_up, span_ms, start_ms - span_ms)
            self._warmed_up.wait()
            self._generate(1, self._events - self._warm_up, SPAN_MS, start_ms)
        except BaseException as error:  # noqa: BLE001 - run() raises it again
            self._error = error

    def _generate(self, part: int, events: int, span_ms: int, start_ms: int) -> None:
        def sent(generated: GeneratedEvents, _bytes: int) -> None:
            self._generated[part] = generated

        settings = StreamSettings(events=events, span_ms=span_ms, seed=self._seed)
        generate(self._server, settings, rate=self._rate, start_ms=start_ms, report=sent, stopped=self._stop.is_set)

    def _is_warm(self) -> bool:
        return self._ods.summary().rows >= self._warm_up and self._dws.summary().rows >= self._to_count()

    def _cleaned(self) -> bool:
        return self._ods.summary().rows >= self._events

    def _caught_up(self) -> bool:
        """Returns True once all events are clean rows, and dws-traffic has counted them."""
        return self._cleaned() and self._dws.summary().rows >= self._to_count()

    def _to_count(self) -> int:
        written = self._ods.summary().outputs
        return sum(rows for topic, rows in written.items() if topic in SOURCES)

    def _line(self, seconds: float) -> str:
        if not self._warmed_up.is_set():
            ods, dws = self._ods.summary(), self._dws.summary()
            return (
                f"waiting for the first batches: ods-dwd {ods.rows:,} of {self._warm_up:,} events, "
                f"dws-traffic {dws.rows:,} rows  {seconds:.1f} s"
            )
        last, (sent, rows), latencies = self.figures.last, self.figures.rates(), self.figures.latencies()
        latency = "" if latencies is None else f"  latency p50 {latencies.p50:.1f} s p99 {latencies.p99:.1f} s"
        return (
            f"{bar(self.events / self._events, 10)} {self.events:,} events {sent:,.0f}/s  {last.rows:,} rows "
            f"{rows:,.0f}/s  lag {last.lag:,}{latency}  {time_text(seconds)}"
        )

    @property
    def events(self) -> int:
        """The number of events sent so far."""
        return sum(generated.events for generated in self._generated)

    @property
    def speed(self) -> float:
        """Events per second after the warm-up."""
        return self._generated[1].events / self.seconds


def start(runner: Runner) -> None:
    """Starts a pipeline and waits until it is ready for data."""
    runner.start()
    while not runner.is_ready:
        if runner.wait(0.1):
            raise HeadraceError("a pipeline stopped unexpectedly")


# ---- results


def read_traffic(server: str) -> tuple[list[int], list[Series]]:
    """Returns the minutes, and the numbers of dws-traffic for each. The newest version of a minute counts."""
    rows: dict[int, dict[str, Any]] = {}
    for records in read_topics(server, [TRAFFIC]):
        for value in records.values.to_pylist():
            row = json.loads(value)
            minute = round(datetime.fromisoformat(row["minute"]).timestamp())
            if minute not in rows or row["version"] >= rows[minute]["version"]:
                rows[minute] = row
    minutes = range(min(rows), max(rows) + 60, 60)
    found = [rows.get(start) for start in minutes]
    return [start * 1000 for start in minutes], [
        Series(name.replace("_", " "), [float(row[name]) if row else 0.0 for row in found], digits)
        for name, digits in (("page_views", 0), ("visitors", 0), ("orders", 0), ("revenue", 2))
    ]


def read_reasons(server: str) -> list[tuple[str, int]]:
    """Returns the reasons of dead letters, the most frequent first."""
    counts: Counter[str] = Counter()
    for records in read_topics(server, [DEAD_LETTERS]):
        counts.update(map(str, JsonFields(["reason"]).of(records.values)[0].to_pylist()))
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


def summary(live: LiveRun, report: Report, reasons: list[tuple[str, int]]) -> list[str]:
    rows = sum(output.rows for output in report.outputs)
    return [
        *table(["dead letters", "rows"], [[reason, count] for reason, count in reasons]),
        "",
        f"{live.events:,} events became {rows:,} clean rows and {sum(count for _, count in reasons):,} dead letters",
        f"{live.speed:,.0f} events per second ({live.speed * rows / live.events:,.0f} rows), with generator and broker",
    ]


def page(
    live: LiveRun, report: Report, reasons: list[tuple[str, int]], times_ms: list[int], series: list[Series]
) -> str:
    latency = report.latency
    rows = sum(output.rows for output in report.outputs)
    figures = [
        ("events", f"{live.events:,}"),
        ("clean rows", f"{rows:,}"),
        ("events per second", f"{live.speed:,.0f}"),
        ("event to row, p50", f"{latency.p50_ms / 1000:.1f} s" if latency else "-"),
        ("event to row, p99", f"{latency.p99_ms / 1000:.1f} s" if latency else "-"),
        ("dead letters", f"{sum(each.letters for each in report.dead_letters):,}"),
    ]
    run = live.figures.per_second()
    names = ("rows", "expected", "lost", "doubled", "unexpected", "misplaced", "disordered")
    outputs = [[each.topic, *(f"{getattr(each, name):,}" for name in names)] for each in report.outputs]
    about = (
        f"{live.events:,} events of a simulated shop, from raw JSON to clean rows and to numbers per minute: two Spark "
        f"pipelines, the broker and the generator on {os.cpu_count()} cores. "
        f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC, Headrace {__version__}."
    )
    sections = [
        Section(
            "The run",
            "Per second, from the first event after the warm-up until everything is processed.",
            run.times_ms,
            [
                Series("events sent per second", run.sent),
                Series("events processed per second", run.done),
                Series("lag, in events", run.lag),
                Series("median latency, event to rows", run.latency, 1, " s"),
            ],
            label=lambda time_ms: time_text(time_ms / 1000),
        ),
        Section("The shop's traffic", "Counted per minute by dws-traffic.", times_ms, series, is_other=True),
        Section(
            "The audit",
            "Every event and every row, reconciled by id.",
            table=[["output", *names], *outputs],
        ),
        Section(
            "Dead letters",
            "Broken events, kept with the reason.",
            table=[["reason", "rows"], *([reason, f"{count:,}"] for reason, count in reasons)],
        ),
    ]
    return html_page(
        "A shop's events on Headrace and Spark", about, figures, sections, (report.ok, f"audit {report.verdict}")
    )


@contextlib.contextmanager
def step(title: str) -> Iterator[Any]:
    """Prints a title, then the duration of the block and a message from it."""
    start = time.perf_counter()
    print(f"{title:<{WIDTH}}", end="", flush=True)
    messages: list[str] = []
    yield messages.append
    print(f"{time.perf_counter() - start:6.1f} s   {messages[0] if messages else ''}", flush=True)


if __name__ == "__main__":
    main()
