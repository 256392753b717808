"""One run: a cluster on a network of its own, workers, faults, the final reads, the verdict.

report = run(RunConfig(system="headrace", seconds=60, seed=1), Path("build/jepsen/run"))
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.jepsen.checker import Op, Verdict, check, write_history
from tests.jepsen.checker.history import from_json, number_ops, to_json
from tests.jepsen.run.faults import Faults
from tests.jepsen.run.machines import Cluster
from tests.jepsen.run.network import Network

TOPICS = ("t0", "t1", "t2")
PARTITIONS = 2
KEYS = [f"{topic}-{partition}" for topic in TOPICS for partition in range(PARTITIONS)]
CLIENTS = ("confluent", "confluent", "headrace", "confluent")
CRASH_SECONDS = 30.0
STUCK_SECONDS = 75.0
"""A worker without a completed operation for so long is replaced."""
STOP_SECONDS = 30.0
PROGRESS_SECONDS = 180.0
INCARNATION = 1000
"""Process 3007 is the eighth process of worker 3."""


@dataclass
class RunConfig:
    system: str = "headrace"
    seconds: float = 60.0
    seed: int = 0
    faults: tuple[str, ...] = Faults.names()
    brokers: int = 3
    workers: int = 4
    shortest_fault: float = 2.0
    longest_fault: float = 12.0


@dataclass
class Report:
    config: RunConfig
    verdict: Verdict
    operations: Counter[str]
    injected: Counter[str]
    longest_pause: float
    sent: int
    polled: int
    crashes: int
    stuck: int
    unexpected_exits: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Other things that a reader should know, such as a final read that did not get to its end."""

    def describe(self) -> str:
        operations = ", ".join(f"{count:,} {what}" for what, count in sorted(self.operations.items()))
        injected = ", ".join(f"{count} {kind}" for kind, count in sorted(self.injected.items()))
        lines = [
            f"{self.config.system}, {self.config.brokers} brokers, seed {self.config.seed}, "
            f"{self.config.seconds:.0f} s of faults",
            f"operations: {operations}; {self.sent:,} values acknowledged, {self.polled:,} polled",
            f"faults: {sum(self.injected.values())} ({injected}), {self.crashes} client crashes",
            f"longest time without a committed transaction: {self.longest_pause:.1f} s",
            f"replaced clients that did not answer: {self.stuck}",
            f"brokers that ended unexpectedly: {len(self.unexpected_exits)}",
            *self.unexpected_exits,
            *self.problems,
            self.verdict.describe(),
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        return json.dumps(
            {
                "system": self.config.system,
                "seed": self.config.seed,
                "seconds": self.config.seconds,
                "operations": self.operations,
                "faults": self.injected,
                "crashes": self.crashes,
                "acknowledged": self.sent,
                "polled": self.polled,
                "longest_pause": round(self.longest_pause, 2),
                "unexpected_exits": len(self.unexpected_exits),
                "problems": self.problems,
                "anomalies": self.verdict.anomalies,
                "allowed": self.verdict.allowed,
            },
            indent=1,
        )


class WorkerProcesses(threading.Thread):
    """Starts the workers, kills one about every 30 seconds, and replaces those that end."""

    def __init__(self, config: RunConfig, bootstrap: str, directory: Path):
        super().__init__(name="workers", daemon=True)
        self._config = config
        self._servers = bootstrap
        self._directory = directory
        self._random = random.Random(config.seed)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._numbers = {worker: worker * INCARNATION - 1 for worker in range(1, config.workers + 1)}
        self._enough = threading.Event()
        self._stop_file = directory / "stop"
        self.crashes = self.stuck = 0

    def _history(self, worker: int) -> Path:
        return self._directory / f"worker-{worker}.jsonl"

    def histories(self) -> list[Path]:
        return sorted(self._directory.glob("worker-*.jsonl"))

    def _launch(self, worker: int, *, is_final: bool = False) -> None:
        self._numbers[worker] = number = self._numbers.get(worker, worker * INCARNATION - 1) + 1
        arguments = {
            "--client": CLIENTS[(worker - 1) % len(CLIENTS)],
            "--bootstrap": self._servers,
            "--keys": ",".join(KEYS),
            "--name": f"worker-{worker}",
            "--process": number,
            "--seed": self._config.seed * 1_000_003 + number,
            "--history": self._history(worker),
            "--stop": self._stop_file,
        }
        command = [sys.executable, "-m", "tests.jepsen.run.worker"]
        for name, value in arguments.items():
            command += [name, str(value)]
        with (self._directory / f"worker-{worker}.log").open("ab") as output:
            self._processes[worker] = subprocess.Popen(
                [*command, "--final"] if is_final else command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).parents[3],
            )

    def run(self) -> None:
        started = dict.fromkeys(self._numbers, time.monotonic())
        for worker in self._numbers:
            self._launch(worker)
        next_crash = time.monotonic() + self._random.uniform(0.5, 1.5) * CRASH_SECONDS
        while not self._enough.wait(0.2):
            now = time.monotonic()
            if now >= next_crash:
                self._crash(self._random.choice(list(self._numbers)))
                self.crashes += 1
                next_crash = now + self._random.uniform(0.5, 1.5) * CRASH_SECONDS
            for worker, process in self._processes.items():
                if process.poll() is None and now - max(started[worker], self._last_write(worker)) > STUCK_SECONDS:
                    self.stuck += 1
                    self._crash(worker)
                if process.poll() is not None:
                    self._complete_history(worker)
                    self._launch(worker)
                    started[worker] = now

    def _last_write(self, worker: int) -> float:
        """Returns when the worker wrote to its history, by the monotonic clock."""
        try:
            return time.monotonic() - (time.time() - self._history(worker).stat().st_mtime)
        except FileNotFoundError:
            return 0.0

    def _crash(self, worker: int) -> None:
        process = self._processes[worker]
        process.kill()
        process.wait()
        self._complete_history(worker)
        with self._history(worker).open("a") as file:
            for kind in ("invoke", "info"):
                file.write(to_json(Op(self._numbers[worker], kind, "crash", time=time.monotonic())) + "\n")

    def _complete_history(self, worker: int) -> None:
        """Writes the unknown outcome of the operation that a worker did not end."""
        path = self._history(worker)
        if not path.exists() or not (lines := path.read_text().splitlines()):
            return
        last = from_json(lines[-1])
        if last.type == "invoke":
            op = Op(last.process, "info", last.f, last.value, time.monotonic(), error="the process ended")
            with path.open("a") as file:
                file.write(to_json(op) + "\n")

    def await_start(self) -> bool:
        """Waits until each worker has completed operations. Returns False if that took too long."""
        return self._await(lambda: all(self._completed(worker) > 2 for worker in self._numbers))

    def await_progress(self) -> bool:
        """Waits until the workers have completed some more operations. Returns False if that took too long."""
        wanted = sum(map(self._completed, self._numbers)) + 10 * len(self._numbers)
        return self._await(lambda: sum(map(self._completed, self._numbers)) >= wanted)

    @staticmethod
    def _await(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PROGRESS_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def _completed(self, worker: int) -> int:
        path = self._history(worker)
        return path.read_bytes().count(b'"type":"ok"') if path.exists() else 0

    def finish(self) -> None:
        """Lets all workers end their last operation."""
        self._enough.set()
        self.join()
        self._stop_file.touch()
        deadline = time.monotonic() + STOP_SECONDS
        for worker, process in self._processes.items():
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                self.stuck += 1
                process.kill()
                process.wait()
            self._complete_history(worker)

    def read_everything(self) -> list[str]:
        """Runs a new process of each kind of client that reads all keys. Returns what went wrong."""
        self._processes.clear()
        readers = [len(self._numbers) + 1 + number for number in range(len(CLIENTS))]
        readers = [reader for reader in readers if CLIENTS[(reader - 1) % len(CLIENTS)] == "headrace"] + readers[:1]
        for reader in readers:
            self._launch(reader, is_final=True)
        problems = []
        for reader in readers:
            status = self._processes[reader].wait()
            if status:
                log = (self._directory / f"worker-{reader}.log").read_text(errors="replace")[-2000:]
                problems.append(f"reader {reader} did not read everything: status {status}\n{log}")
        return problems

    def kill(self) -> None:
        self._enough.set()
        for process in self._processes.values():
            process.kill()
            process.wait()


def merge(paths: list[Path]) -> list[Op]:
    """Returns the operations of all workers by time. All have the same clock. At equal times invocations come first, so
    that no order is invented."""
    rows: list[tuple[float, bool, int, int, Op]] = []
    for worker, path in enumerate(paths):
        with path.open() as file:
            for line, text in enumerate(file):
                op = from_json(text)
                rows.append((op.time, op.type != "invoke", worker, line, op))
    rows.sort(key=lambda row: row[:4])
    return number_ops(row[4] for row in rows)


def run(config: RunConfig, directory: Path) -> Report:
    """Runs, checks, and writes history.jsonl, report.txt, report.json and faults.txt into the directory."""
    directory.mkdir(parents=True)
    with (
        Network() as network,
        Cluster(
            config.system, config.brokers, network, directory, has_clock_faults="clock" in config.faults
        ) as cluster,
    ):
        cluster.create_topics(list(TOPICS), PARTITIONS)
        faults = Faults(cluster, network, config.faults, config.seed, directory / "faults.txt")
        workers = WorkerProcesses(config, cluster.bootstrap, directory)
        workers.start()
        try:
            problems = [] if workers.await_start() else ["not all workers started before the faults"]
            faults.run(config.seconds, config.shortest_fault, config.longest_fault)
            cluster.wait_until_in_sync()
            if not workers.await_progress():
                problems.append("the workers made no progress after the faults")
            finished_at = time.monotonic()
            workers.finish()
            problems += workers.read_everything()
        finally:
            workers.kill()
            faults.supervisor.stop()
    history = merge(workers.histories())
    write_history(directory / "history.jsonl", history)
    report = _report(config, history, faults, workers, problems, finished_at)
    (directory / "report.txt").write_text(report.describe() + "\n")
    (directory / "report.json").write_text(report.to_json() + "\n")
    return report


def _report(
    config: RunConfig,
    history: list[Op],
    faults: Faults,
    workers: WorkerProcesses,
    problems: list[str],
    finished_at: float,
) -> Report:
    operations: Counter[str] = Counter()
    sent = polled = 0
    last, longest = None, 0.0
    for op in history:
        if op.type == "invoke":
            continue
        operations[f"{op.f} {op.type}"] += 1
        polled += sum(map(len, op.reads().values()))
        if op.type == "ok" and op.f == "txn":
            sent += sum(map(len, op.writes().values()))
            if op.time <= finished_at:
                longest = max(longest, op.time - (last or op.time))
                last = op.time
    return Report(
        config,
        check(history),
        operations,
        faults.injected,
        longest,
        sent,
        polled,
        workers.crashes,
        workers.stuck,
        faults.supervisor.unexpected_exits,
        problems,
    )
