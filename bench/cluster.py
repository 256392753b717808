"""Compares a cluster of three Headrace brokers with one of three Apache Kafka brokers, both on ZooKeeper.

All processes are real and run on this machine, with the same settings: 3 replicas, `min.insync.replicas=2`, and
producers with acks=all.

Failover: in every round each cluster starts on empty directories, alone on the machine, creates many partitions, and
loses a broker by SIGKILL, then another by a controlled shutdown, then its controller by SIGKILL; before each, all
replicas are in sync again. See `bench/cluster_failover.py`.

Load: both clusters stay up and take turns, as in `bench/broker.py`.

    python -m bench cluster [--rounds 3] [--quick] [--only load]
"""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import cluster_failover
from bench.broker import BATCHES, LARGE_BATCH, RATE, Goal, Results, in_turn
from bench.broker_load import PARTITIONS, RECORD_BYTES, Librdkafka, Load, build
from bench.broker_profiles import explain_misses
from bench.broker_sides import TICKS_PER_SECOND, Side
from bench.cluster_profiles import PROFILES
from bench.cluster_sides import BROKERS, HEAP_MB, KINDS, REPLICATION_FACTOR, SESSION_TIMEOUT_MS, Cluster, settle
from bench.harness import Measurement, describe

ROUNDS = 3
SPEED = Goal("MB/s", 1.0, lower_is_better=False)
CPU = Goal("CPU-s/GB", 1.0)
LATENCY = Goal("ms", 1.0)
SECONDS = Goal("s", 1.0)
MEMORY = Goal("MB", 1.0)


@dataclass(frozen=True)
class Failover:
    """The size of a failover case."""

    partitions: int
    replication_factor: int = REPLICATION_FACTOR
    session_timeout_ms: int = SESSION_TIMEOUT_MS

    def __str__(self) -> str:
        return f"{self.partitions:,} partitions"


@dataclass(frozen=True)
class Sizes:
    """Partitions of the failover cases; the megabytes that the load cases send or read; seconds at a fixed rate."""

    failover: tuple[Failover, ...] = (
        Failover(1_000),
        # On two cores, Kafka's brokers lose shorter sessions, and cannot have 30,000 replicas.
        Failover(10_000, replication_factor=2, session_timeout_ms=18_000),
    )
    small_batches: int = 200
    large_batches: int = 400
    consumed: int = 600
    pace_seconds: int = 10
    warmup: int = 1500
    """The megabytes in 16 KB batches that each cluster gets first: until then, a JVM mostly runs interpreted code."""
    settle_seconds: float = 2.0
    """The pause before each case."""


QUICK = Sizes(failover=(Failover(300),), small_batches=40, large_batches=80, consumed=80, pace_seconds=3, warmup=100)


@dataclass
class Bench:
    """The results, and the load generator."""

    directory: Path
    kinds: tuple[type[Side], type[Side]]
    sizes: Sizes
    generator: Librdkafka
    results: Results = field(default_factory=Results)
    count: int = 0

    def make_cluster(self, place: int, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Cluster:
        self.count += 1
        return Cluster(self.kinds[place], self.directory / f"cluster-{self.count}", session_timeout_ms)

    # ---- failover

    def failover_round(self, number: int, size: Failover) -> None:
        found: list[dict[str, float]] = [{}, {}]
        for place in in_turn(number):
            with self.make_cluster(place, size.session_timeout_ms) as cluster:
                found[place] = cluster_failover.measure(cluster, size.partitions, size.replication_factor)
                print(f"{cluster.name}, {size}: {found[place]}", file=sys.stderr, flush=True)
        for case, ours in found[0].items():
            self.results.add(f"{case}, {size}", SECONDS, ours, found[1][case])

    # ---- load

    def load_rounds(self, rounds: int) -> None:
        with ExitStack() as stack:
            clusters = [stack.enter_context(self.make_cluster(place)) for place in (0, 1)]
            self._memory(clusters, "idle")
            for cluster in clusters:
                # All rounds read this topic; writing it is part of the warm-up.
                cluster.create_partitions("consumed", PARTITIONS, list(BROKERS))
                self._produce(cluster, "consumed-0", self.sizes.consumed, BATCHES["16 KB"])
            if self.sizes.warmup:
                self._warm_up(clusters)
            for number in range(rounds):
                print(f"load, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
                self._load_round(clusters, number)
            self._memory(clusters, "after the load")

    def _warm_up(self, clusters: list[Cluster]) -> None:
        print("warm-up, not counted", file=sys.stderr, flush=True)
        for cluster in clusters:
            cluster.create_partitions("warmup", PARTITIONS, list(BROKERS))
            self._produce(cluster, "warmup-0", self.sizes.warmup, BATCHES["16 KB"])
            cluster.drop_topic("warmup-0")
        kept, self.results = self.results, Results()
        self._load_round(clusters, 0)
        self.results = kept

    def _load_round(self, clusters: list[Cluster], number: int) -> None:
        for label, batch_bytes in BATCHES.items():
            megabytes = self.sizes.large_batches if batch_bytes == LARGE_BATCH else self.sizes.small_batches

            def produce(cluster: Cluster, megabytes: int = megabytes, batch_bytes: int = batch_bytes) -> Load:
                return self._produce(cluster, "produced-0", megabytes, batch_bytes)

            self._throughput(clusters, number, f"produce, {label} batches, acks all", produce, "produced")
        self._throughput(
            clusters,
            number,
            "consume",
            lambda cluster: self.generator.consume(cluster.bootstrap, "consumed-0", self.sizes.consumed),
        )
        self._latency(clusters, number)

    def _produce(self, cluster: Cluster, topic: str, megabytes: int, batch_bytes: int) -> Load:
        return self.generator.produce(cluster.bootstrap, topic, megabytes, batch_bytes, "all")

    def _throughput(
        self,
        clusters: list[Cluster],
        number: int,
        name: str,
        load: Callable[[Cluster], Load],
        topic: str | None = None,
    ) -> None:
        """Measures throughput and CPU time of all brokers. `topic`, if given, is created for this case and deleted."""
        speeds, cpus = [0.0, 0.0], [0.0, 0.0]
        for place in in_turn(number):
            cluster = clusters[place]
            if topic:
                cluster.create_partitions(topic, PARTITIONS, list(BROKERS))
            settle(self.sizes.settle_seconds)
            before = cluster.cpu_seconds()
            done = load(cluster)
            speeds[place] = done.mb_per_second
            cpu = max(cluster.cpu_seconds() - before, 1 / TICKS_PER_SECOND)  # a tiny load may take no whole tick
            cpus[place] = cpu / done.total_bytes * 1e9
            if topic:
                cluster.drop_topic(f"{topic}-0")
        self.results.add(name, SPEED, *speeds)
        self.results.add(f"{name}: CPU of the brokers", CPU, *cpus)

    def _latency(self, clusters: list[Cluster], number: int) -> None:
        found: list[list[float]] = [[], []]
        for place in in_turn(number):
            cluster = clusters[place]
            cluster.create_partitions("paced", 1, list(BROKERS))
            settle(self.sizes.settle_seconds)
            leader = cluster.brokers[BROKERS[0]]
            pace = self.generator.pace(leader.port, "paced-0", RATE, self.sizes.pace_seconds, self.directory, acks=-1)
            found[place] = [pace.p50_us / 1000, pace.p99_us / 1000]
            cluster.drop_topic("paced-0")
        for percent, ours, theirs in zip((50, 99), *found, strict=True):
            self.results.add(f"produce of one record at {RATE:,}/s, acks all, p{percent}", LATENCY, ours, theirs)

    def _memory(self, clusters: list[Cluster], when: str) -> None:
        settle(self.sizes.settle_seconds)
        for kind, ours, theirs in zip(("RSS", "PSS"), *(cluster.memory_mb() for cluster in clusters), strict=True):
            self.results.add(f"memory of the brokers {when}, {kind}", MEMORY, ours, theirs)


def run(
    directory: Path,
    rounds: int,
    *,
    sizes: Sizes,
    kinds: tuple[type[Side], type[Side]] = KINDS,
    only: str = "",
    after_part: Callable[[list[Measurement], list[str]], None] = lambda *_: None,
) -> tuple[list[Measurement], list[str]]:
    """Runs the benchmark, or only one part of it: `load` or `failover`. Calls `after_part` with the results so far."""
    bench = Bench(directory, kinds, sizes, Librdkafka(build(directory)))
    loads = [os.getloadavg()]

    def results() -> tuple[list[Measurement], list[str]]:
        measurements = bench.results.measurements(kinds[1].name)
        notes = _explain(sizes, loads) if bench.results.pairs else []
        return measurements, [*notes, *explain_misses(measurements, PROFILES)]

    def end_part() -> None:
        loads.append(os.getloadavg())
        after_part(*results())

    if only in ("", "load"):
        bench.load_rounds(rounds)
        end_part()
    if only in ("", "failover"):
        for size in sizes.failover:
            for number in range(rounds):
                print(f"failover, {size}, round {number + 1} of {rounds}", file=sys.stderr)
                bench.failover_round(number, size)
                end_part()
    measurements, notes = results()
    for each in measurements:
        print(describe(each), file=sys.stderr, flush=True)
    return measurements, notes


def _explain(sizes: Sizes, loads: list[tuple[float, float, float]]) -> list[str]:
    before = loads[0]
    averages = "; ".join(f"{one:.1f}, {five:.1f}, {fifteen:.1f}" for one, five, fifteen in loads)
    quiet = "was quiet before the run" if before[0] < 1 and before[1] < 1 else "was not quiet: other programs used it"
    failovers = "; ".join(
        f"{size} with replication factor {size.replication_factor} and session timeout "
        f"{size.session_timeout_ms / 1000:g} s"
        for size in sizes.failover
    )
    return [
        f"Load averages over 1, 5 and 15 minutes, before the run and after each part, which adds its own load: "
        f"{averages}. The machine {quiet}.",
        "Ratios are Headrace to Kafka: high is good for speed; low is good for CPU, latency, times and memory.",
        f"Three brokers each, with 3 replicas, min.insync.replicas 2, and one ZooKeeper; brokers of Kafka with a heap "
        f"of at most {HEAP_MB} MB. CPU and memory are those of the three brokers, without ZooKeeper. All "
        "processes and the load generator share the cores.",
        f"Load: records of {RECORD_BYTES} bytes, {PARTITIONS} partitions, one producer or consumer (librdkafka, "
        f"idempotence off); {sizes.small_batches} MB with 16 KB batches, {sizes.large_batches} MB with 1 MB batches, "
        f"{sizes.consumed} MB consumed. Both clusters stay up and take turns. "
        f"{sizes.warmup + sizes.consumed:,} MB in 16 KB batches and a whole round warm them up.",
        f"One record at a time: a producer on a plain socket sends on schedule, {RATE:,} requests per second for "
        f"{sizes.pace_seconds} s, to one partition.",
        "After SIGKILL: from the deletion of the broker's registration in ZooKeeper (the session timeout "
        "before it is not counted) until all its partitions have a leader that answers; it led a "
        "third of all partitions. Failover of the controller: the same for the broker that is the controller, which "
        "includes the election of the next one.",
        "Controlled shutdown: the longest time without leader of up to 200 of the broker's partitions, and the time "
        "from SIGTERM to the end of the process.",
        f"Failover: {failovers}. The partitions are empty. Each cluster is new in each round, so the code of the JVMs "
        "for these events runs for the first time or nearly so, as it does when a real broker fails.",
    ]
