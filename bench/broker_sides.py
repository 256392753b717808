"""The two brokers of the benchmark as processes: started the same way, and measured from outside, through /proc.

Apache Kafka runs with its shipped `server.properties` and JVM options (a heap of 1 GB from the start, G1), Headrace
with its defaults. `COMMON` contains the additional configuration of both.
"""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.support.apache_kafka.broker import KAFKA_VERSION, BrokerFailed, KafkaBroker, answers_metadata
from tests.support.broker.process import free_port

from bench.broker_wire import HOST, await_condition

STOP_SECONDS = 60.0
START_SECONDS = 60.0
COMMON = {
    "auto.create.topics.enable": "false",
    # Delete a topic's files after a second instead of a minute, before they are written back to disk.
    "log.segment.delete.delay.ms": 1000,
}
# From the distribution's config/server.properties, or Kafka's defaults where the test harness overrides them.
KAFKA_PROPERTIES = {
    "num.network.threads": 3,
    "num.io.threads": 8,
    "socket.send.buffer.bytes": 102400,
    "socket.receive.buffer.bytes": 102400,
    "log.cleaner.backoff.ms": 15000,
    "log.cleaner.dedupe.buffer.size": 128 * 1024 * 1024,
    "log.cleaner.threads": 1,
    "offsets.topic.num.partitions": 50,
    "transaction.state.log.num.partitions": 50,
    "share.coordinator.state.topic.num.partitions": 50,
    "group.initial.rebalance.delay.ms": 3000,
    "broker.session.timeout.ms": 9000,
    "broker.heartbeat.interval.ms": 2000,
    **COMMON,
}
# From the distribution's kafka-server-start.sh and kafka-run-class.sh.
KAFKA_JVM_ARGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Side:
    """A broker that can be started and stopped, with its data below `directory`."""

    name: str
    data_dir: Path
    port: int
    started_at: float  # time.perf_counter at the start of the process

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def spawn(self) -> None:
        """Starts the process and returns immediately."""
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Kills the broker, like a crash."""
        raise NotImplementedError

    def wait(self, seconds: float) -> int:
        """Waits until the broker ends by itself. Returns its exit status."""
        raise NotImplementedError

    def process_id(self) -> int:
        raise NotImplementedError

    def start(self, seconds: float = START_SECONDS) -> None:
        """Starts the broker and waits until it answers a metadata request."""
        self.spawn()

        def answers() -> bool:
            if self.has_exited():
                raise BrokerFailed(f"{self.name} exited during startup; see {self.data_dir.parent}")
            return answers_metadata(self.port)

        await_condition(f"the start of {self.name}", answers, seconds)

    def has_exited(self) -> bool:
        return _stat_fields(self.process_id())[0] == "Z"

    def cpu_seconds(self) -> float:
        """Returns the broker's CPU time so far: all threads, including finished ones, and its child processes."""
        return sum(cpu_ticks(pid) for pid in family(self.process_id())) / TICKS_PER_SECOND

    def drop_cached(self, topic: str) -> None:
        """Removes a topic's segments from the page cache."""
        os.sync()
        for path in self.data_dir.glob(f"{topic}-*/*.log"):
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def fill_cache(self, topic: str) -> None:
        """Reads a topic's segments, so that they are in the page cache."""
        for path in self.data_dir.glob(f"{topic}-*/*.log"):
            with path.open("rb", buffering=0) as file:
                while file.read(1024 * 1024):
                    pass

    def memory_mb(self) -> tuple[float, float]:
        """Returns the resident and the proportional set size."""
        rss = pss = 0
        for pid in family(self.process_id()):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    rss += int(line.split()[1])
                elif line.startswith("Pss:"):
                    pss += int(line.split()[1])
        return rss * 1024 / 1e6, pss * 1024 / 1e6


class Kafka(Side):
    name = f"Apache Kafka {KAFKA_VERSION}"

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        self.data_dir = directory / "kafka-data"
        self.port = free_port()
        self._broker = KafkaBroker(self.data_dir, {**KAFKA_PROPERTIES, **(properties or {})}, jvm_args=KAFKA_JVM_ARGS)
        self._config = self._broker.prepare(self.port, free_port())

    def spawn(self) -> None:
        self.started_at = time.perf_counter()
        self._broker.spawn(self._config)

    def stop(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        self._broker.kill()

    def wait(self, seconds: float) -> int:
        return self._broker.wait(seconds)

    def process_id(self) -> int:
        assert self._broker.pid is not None
        return self._broker.pid


class Headrace(Side):
    name = "Headrace"
    arguments: tuple[str, ...] = ()

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        self.data_dir = directory / "headrace-data"
        self._properties = dict(properties or {})
        self.port = free_port()
        self._log_file = directory / "headrace.log"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def spawn(self) -> None:
        config = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": self.data_dir, **COMMON, **self._properties}
        command = [str(Path(sys.executable).with_name("headrace")), "server", *self.arguments]
        for key, value in config.items():
            command += ["--override", f"{key}={value}"]
        with self._log_file.open("ab") as output:
            self.started_at = time.perf_counter()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        atexit.register(self._process.kill)

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"{self.name} did not stop in {STOP_SECONDS:.0f} s") from None
        finally:
            atexit.unregister(process.kill)
            self._process = None

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            atexit.unregister(process.kill)

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid


def _stat_fields(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name, which may contain spaces. Index 0 is the state (field 3)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_ticks(pid: int) -> int:
    fields = _stat_fields(pid)
    return int(fields[11]) + int(fields[12])  # user and system time


def rss_mb(pid: int) -> float:
    """Returns a process' resident set size."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def family(pid: int) -> list[int]:
    """Returns the process and all its descendants."""
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
                pids += [int(child) for child in (task / "children").read_text().split()]
    return pids
