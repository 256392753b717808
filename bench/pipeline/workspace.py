"""A broker with its own directory, and the commands of a run: generator and pipeline, as a user starts them.

The bench process owns all processes. Leaving the block kills those that still run.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.spark.cluster import kill_tree, start_headrace, start_python

from bench.broker_sides import Headrace
from bench.pipeline.sides import Side
from headrace import Admin, Consumer, TopicPartition
from headrace.admin import NewTopic

ODS = ("ods_log", "ods_db")
DWD = (
    "dwd_start",
    "dwd_page",
    "dwd_display",
    "dwd_action",
    "dwd_error",
    "dwd_order",
    "dwd_payment",
    "dwd_refund",
    "dwd_cart",
)
DEAD_LETTERS = "ods_dwd_dead_letters"
PARTITIONS = 4
MASTER = "local[2]"
WAIT_SECONDS = 900.0
BROKER = {"log.segment.bytes": 64 * 1024 * 1024}


class RunFailed(Exception):
    """A command of the run failed; the message contains the end of its output."""


class MetricsFile:
    """The batches that a pipeline has reported. Each read continues where the last one ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[dict[str, Any]] = []
        self._position = 0

    def read(self) -> list[dict[str, Any]]:
        """Returns all batches so far. Leaves a line that is still being written."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._position)
                complete = file.read().rpartition(b"\n")[0]
            if complete:
                self._position += len(complete) + 1
                self.batches += [json.loads(line) for line in complete.split(b"\n")]
        return self.batches

    def rows(self) -> int:
        return sum(int(batch["rows"]) for batch in self.read())


class PipelineRun:
    """A pipeline that runs in its own process, with its checkpoint and its metrics."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes], started: float, log: Path) -> None:
        self.checkpoint = directory / "checkpoint"
        self.metrics = MetricsFile(directory / "metrics.jsonl")
        self.process = process
        self.started = started
        self._log = log

    def check(self) -> None:
        if (status := self.process.poll()) is not None:
            raise RunFailed(f"the pipeline ended with {status}\n{self._log.read_text()[-3000:]}")

    def await_rows(self, rows: int, seconds: float = WAIT_SECONDS) -> None:
        """Waits until the pipeline has processed this many events."""
        self.await_condition(lambda: self.metrics.rows() >= rows, f"{rows:,} processed events", seconds)

    def await_condition(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise RunFailed(f"no {what} in {seconds:.0f} s\n{self._log.read_text()[-3000:]}")
            time.sleep(0.05)

    def await_end(self, seconds: float = WAIT_SECONDS) -> None:
        """Waits until a run over the existing events has ended."""
        if (status := self.process.wait(seconds)) != 0:
            raise RunFailed(f"the pipeline ended with {status}\n{self._log.read_text()[-3000:]}")

    def kill(self) -> None:
        kill_tree(self.process.pid)
        self.process.wait()


class Workspace:
    """A context manager: a broker with the topics of the pipeline."""

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.broker = Headrace(directory / "broker", {**BROKER, **(properties or {})})
        self._log = directory / "commands.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._runs = 0

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def __enter__(self) -> "Workspace":
        self.broker.start()
        try:
            with Admin(bootstrap_servers=self.bootstrap) as admin:
                admin.create_topics([NewTopic(name, PARTITIONS) for name in ODS])
                admin.create_topics([NewTopic(name) for name in (*DWD, DEAD_LETTERS)])
                admin.wait_for_topics([*ODS, *DWD, DEAD_LETTERS])
        except BaseException:
            self.broker.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            kill_tree(process.pid)
            process.wait()
        self.broker.kill()
        shutil.rmtree(self.directory)

    def start_generator(self, *arguments: object) -> subprocess.Popen[bytes]:
        process = start_headrace(
            ["datagen", "--bootstrap-server", self.bootstrap, "--quiet", "--partitions", PARTITIONS, *arguments],
            self._log,
        )
        self._processes.append(process)
        return process

    def generate(self, events: int, *arguments: object) -> None:
        """Writes events as fast as possible."""
        if self.start_generator("--events", events, *arguments).wait(WAIT_SECONDS) != 0:
            raise RunFailed(f"the generator failed\n{self._log.read_text()[-3000:]}")

    def start_pipeline(self, side: Side, *arguments: object, master: str = MASTER) -> PipelineRun:
        """Starts a pipeline with a new checkpoint."""
        self._runs += 1
        directory = self.directory / f"run-{self._runs}"
        directory.mkdir()
        files = ["--checkpoint", directory / "checkpoint", "--metrics", directory / "metrics.jsonl"]
        started = time.monotonic()
        process = start_python(
            [*side.command, "--bootstrap-server", self.bootstrap, *files, "--master", master, *arguments], self._log
        )
        self._processes.append(process)
        return PipelineRun(directory, process, started, self._log)

    def written(self) -> "WrittenEvents":
        return WrittenEvents(self.bootstrap)


class WrittenEvents:
    """The number of records that were written to the ODS topics."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(bootstrap_servers=bootstrap)
        self._tps = [TopicPartition(topic, number) for topic in ODS for number in range(PARTITIONS)]

    def total(self) -> int:
        return sum(self._consumer.end_offsets(self._tps).values())

    def close(self) -> None:
        self._consumer.close()
