"""How a broker's throughput grows from one to two processes (`headrace server --processes`), next to Apache Kafka.

One broker of Apache Kafka uses all cores of the machine by itself. All sides have the same topics: one replica, and
leaders on all brokers. The sides run one after the other, each alone on the machine, with two producers or consumers
(librdkafka) that share the cores with the brokers.

The notes compare the rate of two processes with a prediction: cores / (CPU time of the broker and of the load generator
for a byte, with one process), at most twice the rate of one process. That is the model of `headrace capacity`, on a
machine whose cores the load generator shares.

    python -m bench processes [--rounds 3] [--quick]
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.support.cluster.server_processes import free_ports

from bench.broker import BATCHES, Goal, Results
from bench.broker_load import PARTITIONS, RECORD_BYTES, Librdkafka, Load, build
from bench.broker_sides import TICKS_PER_SECOND, Headrace, Kafka, Side, family
from bench.broker_wire import await_condition
from bench.cluster_sides import settle
from bench.harness import Measurement, describe
from headrace.admin import Admin, NewTopic

ROUNDS = 3
CLIENTS = 2
TOPIC = "load"
SPEED = Goal("MB/s", 1.0, lower_is_better=False)
CPU = Goal("CPU-s/GB", 1.2)
_READY_SECONDS = 120.0
_END_SECONDS = 60.0


class HeadraceProcesses(Headrace):
    """`headrace server --processes N`."""

    count = 1

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None):
        super().__init__(directory, properties)
        self.port = free_ports(self.count)[0]
        self.arguments = ("--processes", str(self.count))

    def kill(self) -> None:
        pids = family(self.process_id())
        super().kill()
        # The brokers end by themselves when they have lost their parent.
        await_condition("the end of the brokers", lambda: not any(map(_exists, pids)), _END_SECONDS)


class OneProcess(HeadraceProcesses):
    name = "one process"


class TwoProcesses(HeadraceProcesses):
    name = "two processes"
    count = 2


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


KINDS: tuple[type[Side], ...] = (TwoProcesses, OneProcess, Kafka)
"""The first one is compared with each of the others."""


@dataclass(frozen=True)
class Sizes:
    """The megabytes of each case."""

    produced: int = 1000
    warmup: int = 1500
    """A JVM mostly runs interpreted code until then."""
    settle_seconds: float = 2.0


QUICK = Sizes(produced=80, warmup=0, settle_seconds=0.5)


@dataclass
class _Measured:
    """The values of one side in one round, by case."""

    speed: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    generator_cpu: dict[str, float] = field(default_factory=dict)
    """Also in seconds per GB."""


@dataclass
class Bench:
    """The sides, and the load generator."""

    directory: Path
    kinds: tuple[type[Side], ...]
    sizes: Sizes
    generator: Librdkafka
    rounds: list[list[_Measured]] = field(default_factory=list)

    def round(self, number: int) -> None:
        found = [_Measured() for _ in self.kinds]
        for turn in range(len(self.kinds)):
            place = (number + turn) % len(self.kinds)
            directory = self.directory / f"side-{number}-{place}"
            directory.mkdir(parents=True)
            side = self.kinds[place](directory)
            try:
                side.start()
                self._measure(side, found[place])
            finally:
                side.kill()
                shutil.rmtree(directory, ignore_errors=True)
        self.rounds.append(found)

    def _measure(self, side: Side, found: _Measured) -> None:
        batch_bytes = BATCHES["16 KB"]

        def produce(topic: str, megabytes: int) -> Load:
            return self.generator.produce(side.bootstrap, topic, megabytes, batch_bytes, "all", producers=CLIENTS)

        with Admin(bootstrap_servers=side.bootstrap) as admin:
            if self.sizes.warmup:
                create(admin, "warmup", side)
                produce("warmup", self.sizes.warmup)
                admin.delete_topics(["warmup"])
            create(admin, TOPIC, side)
        self._case("produce, 16 KB batches, acks all", side, found, lambda: produce(TOPIC, self.sizes.produced))
        self._case(
            "consume",
            side,
            found,
            lambda: self.generator.consume(side.bootstrap, TOPIC, self.sizes.produced, consumers=CLIENTS),
        )

    def _case(self, name: str, side: Side, found: _Measured, load: Callable[[], Load]) -> None:
        settle(self.sizes.settle_seconds)
        before = side.cpu_seconds()
        done = load()
        cpu = max(side.cpu_seconds() - before, 1 / TICKS_PER_SECOND)
        found.speed[name] = done.mb_per_second
        found.cpu[name] = cpu / done.total_bytes * 1e9
        found.generator_cpu[name] = done.generator_cpu / done.total_bytes * 1e9
        print(f"  {name:<40} {side.name:<24} {done.mb_per_second:>9.2f} MB/s", file=sys.stderr, flush=True)

    def measurements(self) -> list[Measurement]:
        found: list[Measurement] = []
        for place in range(1, len(self.kinds)):
            results = Results()
            for sides in self.rounds:
                ours, theirs = sides[0], sides[place]
                for name in ours.speed:
                    results.add(name, SPEED, ours.speed[name], theirs.speed[name])
                    results.add(f"{name}: CPU of the brokers", CPU, ours.cpu[name], theirs.cpu[name])
            found += results.measurements(self.kinds[place].name)
        return found

    def predictions(self) -> list[str]:
        """Compares the rates of the first side with a prediction from the second one, which has one process."""
        cores = len(os.sched_getaffinity(0))
        lines = []
        for name in self.rounds[0][0].speed:
            measured = median(sides[0].speed[name] for sides in self.rounds)
            one = median(sides[1].speed[name] for sides in self.rounds)
            cpu = median(sides[1].cpu[name] + sides[1].generator_cpu[name] for sides in self.rounds)
            predicted = predict(one, cpu, cores)
            lines.append(
                f"Prediction for two processes, {name}: {predicted:.0f} MB/s, from {one:.0f} MB/s with one process and "
                f"{cpu:.2f} CPU-s/GB of broker and load generator on {cores} cores; measured: {measured:.0f} MB/s."
            )
        return lines


def predict(one_process: float, cpu_seconds_per_gb: float, cores: int) -> float:
    """Returns the MB/s of two processes: twice that of one, unless the cores are too few."""
    return min(2 * one_process, cores / cpu_seconds_per_gb * 1000)


def create(admin: Admin, topic: str, side: Side) -> None:
    """Creates a topic on all brokers of a side, and waits for its leaders."""
    count = side.count if isinstance(side, HeadraceProcesses) else 1
    await_condition(f"{count} brokers", lambda: len(admin.describe_cluster().brokers) == count, _READY_SECONDS)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])

    def has_leaders() -> bool:
        # A broker that has not heard of the topic yet responds with an error and no partitions.
        described = admin.describe_topics([topic], raise_errors=False)[topic]
        leaders = [partition.leader for partition in described.partitions]
        return len(leaders) == PARTITIONS and -1 not in leaders and len(set(leaders)) == count

    await_condition(f"the leaders of {topic}", has_leaders, _READY_SECONDS)


def run(
    directory: Path, rounds: int, *, sizes: Sizes, kinds: tuple[type[Side], ...] = KINDS
) -> tuple[list[Measurement], list[str]]:
    """Runs the benchmark. Returns the measurements and notes."""
    bench = Bench(directory, kinds, sizes, Librdkafka(build(directory)))
    load = os.getloadavg()
    for number in range(rounds):
        print(f"processes, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        bench.round(number)
    measurements = bench.measurements()
    for each in measurements:
        print(describe(each), file=sys.stderr, flush=True)
    notes = [
        "The columns of Headrace are `headrace server --processes 2`; the peer `one process` is `--processes 1`.",
        f"Records of {RECORD_BYTES} bytes, {PARTITIONS} partitions with one replica, {CLIENTS} producers or consumers; "
        f"{sizes.produced} MB per case, {sizes.warmup} MB of warm-up. All processes share the cores.",
        f"Load averages before the run: {load[0]:.1f}, {load[1]:.1f}, {load[2]:.1f}.",
        *bench.predictions(),
    ]
    return measurements, notes
