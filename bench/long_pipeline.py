"""Runs `ods-dwd` at a fixed rate for a long time, and judges memory, lag, latency and disk use.

    python -m bench.long_pipeline [--rate 20000] [--minutes 60] [--pipeline ods-dwd]

Retention deletes old records, so the disk does not fill. At the end the topics are emptied, the same pipeline processes
a last stretch of events, and the audit reconciles it. The results replace bench/results/long-pipeline.md. The exit code
is 1 if the pipeline failed, the memory of a component was not flat, the lag grew, or the audit failed.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.apache_kafka.jvm import require_java
from tests.support.spark.cluster import start_headrace

from bench.harness import RESULTS
from bench.pipeline.figures import is_sustained, memory_growth, percentile, slope
from bench.pipeline.processes import COMPONENTS, cpu_by_component, disk_mb, find_processes, memory_mb
from bench.pipeline.report import table
from bench.pipeline.sides import ARROW, Side
from bench.pipeline.steady import WARM_EVENTS, WARM_SEED
from bench.pipeline.visible_rows import SourceTimes, VisibleRows
from bench.pipeline.workspace import DEAD_LETTERS, DWD, ODS, PipelineRun, RunFailed, Workspace, WrittenEvents
from headrace import Admin, Consumer, TopicPartition

SAMPLE_SECONDS = 10.0
LATENCY_ROWS = 20
"""The number of rows per sample whose latency is looked up."""
WARM_MINUTES = 15.0
"""The deduplication window (10 minutes) fills up first."""
LAST_SEED = 98
LAST_EVENTS = 200_000
STOP_SECONDS = 120.0
TABLE_ROWS = 13
BROKER = {
    "log.retention.bytes": 1024 * 1024 * 1024,
    "log.retention.check.interval.ms": 5000,
}


@dataclass
class Sample:
    """The state at one moment."""

    second: float
    written: int
    done: int
    rss_mb: dict[str, float]
    pss_mb: dict[str, float]
    cpu_seconds: dict[str, float]
    latencies_ms: list[float]
    checkpoint_mb: float
    topics_mb: float

    @property
    def lag(self) -> int:
        return max(0, self.written - self.done)


@dataclass
class LongRun:
    """The result of a run. `failure` and `audit` are texts for the report."""

    rate: int
    minutes: float
    pipeline: str
    samples: list[Sample] = field(default_factory=list)
    failure: str = ""
    audit: str = ""
    audit_passed: bool = False

    def warm_samples(self) -> list[Sample]:
        """Returns the samples after the warm-up: 15 minutes, or a quarter of a shorter run."""
        begin = min(WARM_MINUTES, self.minutes / 4) * 60
        return [sample for sample in self.samples if sample.second >= begin]

    def growth(self, component: str) -> tuple[float, float, bool]:
        return memory_growth([(sample.second, sample.rss_mb[component]) for sample in self.warm_samples()])

    def problems(self) -> list[str]:
        """Returns everything that did not go well."""
        warm = self.warm_samples()
        found = [self.failure] if self.failure else []
        if len(warm) < 3:
            return [*found, "there are too few samples for a verdict"]
        for name in COMPONENTS:
            per_hour, share, is_flat = self.growth(name)
            if not is_flat:
                found.append(f"the memory of {name} grew by {per_hour:.0f} MB ({share:.1%}) per hour")
        written = (warm[-1].written - warm[0].written) / (warm[-1].second - warm[0].second)
        if not is_sustained(self.rate, written, [sample.lag for sample in warm]):
            found.append(f"the rate was not sustained: {written:,.0f}/s written, or the lag grew")
        if not self.audit_passed:
            found.append("the audit of the last stretch failed or did not run")
        return found


class Watch:
    """Takes samples of a running pipeline."""

    def __init__(
        self, workspace: Workspace, pipeline: PipelineRun, generator: subprocess.Popen[bytes], visible: VisibleRows
    ) -> None:
        self._workspace = workspace
        self._pipeline = pipeline
        self._generator = generator
        self._visible = visible
        self._written = WrittenEvents(workspace.bootstrap)
        self._times = SourceTimes(workspace.bootstrap)
        self._started = time.monotonic()

    def close(self) -> None:
        self._written.close()
        self._times.close()

    def sample(self) -> Sample:
        self._pipeline.check()
        if self._generator.poll() is not None:
            raise RunFailed("the generator ended")
        processes = find_processes(self._workspace.broker.process_id(), self._generator.pid, self._pipeline.process.pid)
        memory = {name: memory_mb(pids) for name, pids in processes.items()}
        rows = self._visible.take_rows()
        chosen = rows[:: max(1, len(rows) // LATENCY_ROWS)][:LATENCY_ROWS]
        return Sample(
            second=round(time.monotonic() - self._started, 1),
            written=self._written.total(),
            done=self._pipeline.metrics.rows(),
            rss_mb={name: round(rss, 1) for name, (rss, _) in memory.items()},
            pss_mb={name: round(pss, 1) for name, (_, pss) in memory.items()},
            cpu_seconds=cpu_by_component(processes),
            latencies_ms=[round(latency) for latency in self._times.latencies_ms(chosen)],
            checkpoint_mb=round(disk_mb(self._pipeline.checkpoint), 2),
            topics_mb=round(disk_mb(self._workspace.broker.data_dir)),
        )


def run(directory: Path, rate: int, minutes: float, pipeline_name: str) -> LongRun:
    result = LongRun(rate, minutes, pipeline_name)
    side = Side(ARROW, ("-m", "headrace", "pipeline", "run", pipeline_name, "--quiet"), rate)
    with Workspace(directory / "workspace", BROKER) as workspace:
        workspace.generate(WARM_EVENTS, "--seed", WARM_SEED)
        pipeline = workspace.start_pipeline(side)
        try:
            pipeline.await_rows(WARM_EVENTS)
            _run_at_rate(workspace, pipeline, result)
            _run_last_stretch(workspace, pipeline, result)
        except (RunFailed, OSError, AssertionError, subprocess.TimeoutExpired) as error:
            result.failure = f"the run failed: {error}"
    return result


def _run_at_rate(workspace: Workspace, pipeline: PipelineRun, result: LongRun) -> None:
    with VisibleRows(workspace.bootstrap) as visible:
        generator = workspace.start_generator("--rate", result.rate)
        watch = Watch(workspace, pipeline, generator, visible)
        try:
            end = time.monotonic() + result.minutes * 60
            while (now := time.monotonic()) < end:
                time.sleep(min(SAMPLE_SECONDS, end - now))
                result.samples.append(watch.sample())
                print(progress_line(result.samples, result.rate), file=sys.stderr, flush=True)
        finally:
            watch.close()
    generator.send_signal(signal.SIGTERM)
    generator.wait(STOP_SECONDS)


def _run_last_stretch(workspace: Workspace, pipeline: PipelineRun, result: LongRun) -> None:
    written = WrittenEvents(workspace.bootstrap)
    try:
        pipeline.await_rows(written.total())
        _empty_topics(workspace.bootstrap)
        workspace.generate(min(LAST_EVENTS, result.rate * 10), "--seed", LAST_SEED, "--rate", result.rate)
        pipeline.await_rows(written.total())
    finally:
        written.close()
    pipeline.process.send_signal(signal.SIGTERM)
    pipeline.await_end(STOP_SECONDS)
    output = workspace.directory / "audit.txt"
    audit = start_headrace(
        ["pipeline", "audit", "--bootstrap-server", workspace.bootstrap, "--master", "local[2]"], output
    )
    result.audit_passed = audit.wait() == 0
    result.audit = output.read_text().strip()


def _empty_topics(bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap) as consumer, Admin(bootstrap_servers=bootstrap) as admin:
        topics = (*ODS, *DWD, DEAD_LETTERS)
        tps = [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)]
        admin.delete_records(dict.fromkeys(tps, -1))


def progress_line(samples: Sequence[Sample], rate: int) -> str:
    """Returns the newest sample as a line."""
    last = samples[-1]
    latency = f"{percentile(last.latencies_ms, 50) / 1000:.2f} s" if last.latencies_ms else "?"
    memory = ", ".join(f"{name} {mb:,.0f}" for name, mb in last.rss_mb.items())
    return (
        f"{last.second / 60:5.1f} min  {last.done:,} of {last.written:,} events  lag {last.lag / rate:.1f} s  latency "
        f"{latency}  checkpoint {last.checkpoint_mb:,.0f} MB  topics {last.topics_mb:,.0f} MB  memory: {memory}"
    )


def report_lines(result: LongRun, load: float) -> list[str]:
    """Returns the report on a run that has samples."""
    problems = result.problems()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    lines = [
        "# long-pipeline",
        "",
        f"`{result.pipeline}` at {result.rate:,} events/s for {result.minutes:g} minutes, with broker and generator. "
        f"{machine}. Load average before: {load:.1f}.",
        "",
        "**Verdict: " + ("; ".join(problems) if problems else "flat memory, steady lag, and a clean audit") + ".**",
    ]
    if warm := result.warm_samples():
        lines += ["", "## Memory and processor time after the warm-up", "", *_growth_table(result, warm)]
    step = max(1, len(result.samples) // (TABLE_ROWS - 1))
    lines += ["", "## Over time", "", *_sample_table(result.samples[::step], result.rate)]
    if result.audit:
        lines += ["", "## Audit of the last stretch", "", "```", result.audit, "```"]
    return lines


def _growth_table(result: LongRun, warm: list[Sample]) -> list[str]:
    rows = []
    for name in COMPONENTS:
        per_hour, share, is_flat = result.growth(name)
        values = [sample.rss_mb[name] for sample in warm]
        cores = (warm[-1].cpu_seconds[name] - warm[0].cpu_seconds[name]) / max(1.0, warm[-1].second - warm[0].second)
        cells = [f"{values[0]:,.0f}", f"{max(values):,.0f}", f"{values[-1]:,.0f}", f"{per_hour:+,.1f}", f"{share:+.1%}"]
        rows.append([name, *cells, "yes" if is_flat else "NO", f"{cores:.2f}"])
    disk = slope([(sample.second, sample.checkpoint_mb) for sample in warm]) * 3600
    return [
        *table(["component", "first MB", "max MB", "last MB", "MB per hour", "share per hour", "flat", "cores"], rows),
        "",
        "- Resident set size; the slope of a least-squares line. Flat: at most 20 MB or 5 % per hour.",
        f"- The checkpoint grew by {disk:+,.1f} MB per hour.",
    ]


def _sample_table(samples: Sequence[Sample], rate: int) -> list[str]:
    rows = []
    for sample in samples:
        latencies = [
            f"{percentile(sample.latencies_ms, p) / 1000:.2f}" if sample.latencies_ms else "" for p in (50, 99)
        ]
        memory = [f"{sample.rss_mb[name]:,.0f}" for name in COMPONENTS]
        disk = [f"{sample.checkpoint_mb:,.1f}", f"{sample.topics_mb:,.0f}"]
        rows.append([f"{sample.second / 60:.1f}", f"{sample.lag / rate:.1f}", *latencies, *memory, *disk])
    header = ["minute", "lag s", "p50 s", "p99 s", *(f"{name} MB" for name in COMPONENTS)]
    return table([*header, "checkpoint MB", "topics MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.long_pipeline", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rate", type=int, default=20_000, help="events per second (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60, help="duration (default: %(default)s)")
    parser.add_argument("--pipeline", default="ods-dwd", help="pipeline or file (default: %(default)s)")
    parser.add_argument("--directory", type=Path, default=Path(".bench-data"), help="directory for data")
    parser.add_argument("--quick", action="store_true", help="do not write results")
    arguments = parser.parse_args()
    require_java()
    load = os.getloadavg()[0]
    arguments.directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        result = run(Path(directory).absolute(), arguments.rate, arguments.minutes, arguments.pipeline)
    lines = report_lines(result, load)
    print("\n".join(lines))
    if not arguments.quick:
        (RESULTS / "long-pipeline.md").write_text("\n".join(lines) + "\n")
        (RESULTS / "long-pipeline.json").write_text(json.dumps(asdict(result)) + "\n")
    sys.exit(bool(result.problems()))


if __name__ == "__main__":
    main()
