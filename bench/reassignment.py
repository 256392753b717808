"""Compares the latency of a producer while partitions move to other brokers, with a throttle, to that of Apache Kafka.

Both clusters have three brokers on ZooKeeper, stay up, and take turns. In every round, on each of them:

    before    a producer sends one record at a time on schedule, acks=all, to a partition on all three brokers
    during    the same, while filled partitions get a replica on broker 3 in place of one on broker 1, throttled so that
              the reassignment lasts longer than the measurement
    after     the throttle is removed; how fast the rest is copied

    python -m bench reassignment [--rounds 3] [--quick]
"""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from bench.broker import BATCHES, RATE, Goal, Results, in_turn
from bench.broker_load import PARTITIONS, RECORD_BYTES, Librdkafka, build
from bench.broker_sides import Side
from bench.broker_wire import await_condition
from bench.cluster_sides import BROKERS, KINDS, SECONDS, Assignment, Cluster, settle
from bench.harness import Measurement, describe
from headrace import Admin, TopicPartition
from headrace.admin import ConfigResource

ROUNDS = 3
LATENCY = Goal("ms", 1.0)
SPEED = Goal("MB/s", 1.0, lower_is_better=False)
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_OLD, _NEW = [1, 2], [2, 3]
_LEADER = BROKERS[0]
"""The leader of the partition that is measured, and of half of the partitions that move."""


@dataclass(frozen=True)
class Sizes:
    """The megabytes that move, the throttle in megabytes per second and broker, and the seconds of a measurement."""

    moved: int = 1200
    throttle: int = 40
    pace_seconds: int = 10
    warmup: int = 1500
    settle_seconds: float = 2.0


QUICK = Sizes(moved=400, throttle=20, pace_seconds=5, warmup=100)


@dataclass
class Bench:
    """The results, and the load generator."""

    directory: Path
    kinds: tuple[type[Side], type[Side]]
    sizes: Sizes
    generator: Librdkafka
    results: Results = field(default_factory=Results)

    def rounds(self, rounds: int) -> None:
        with ExitStack() as stack:
            clusters = [
                stack.enter_context(Cluster(kind, self.directory / f"cluster-{place}"))
                for place, kind in enumerate(self.kinds)
            ]
            for cluster in clusters:
                cluster.create_partitions("paced", 1, list(BROKERS))
                if self.sizes.warmup:
                    cluster.create_partitions("warmup", PARTITIONS, list(BROKERS))
                    self._fill(cluster, "warmup-0", self.sizes.warmup)
                    self._pace(cluster)
                    cluster.drop_topic("warmup-0")
            for number in range(rounds):
                print(f"reassignment, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
                found: list[dict[str, float]] = [{}, {}]
                for place in in_turn(number):
                    found[place] = self._measure(clusters[place])
                for case, ours in found[0].items():
                    self.results.add(case, SPEED if "copy" in case else LATENCY, ours, found[1][case])

    def _fill(self, cluster: Cluster, topic: str, megabytes: int) -> None:
        self.generator.produce(cluster.bootstrap, topic, megabytes, BATCHES["16 KB"], "all")

    def _pace(self, cluster: Cluster) -> tuple[float, float]:
        """Returns the median and the 99th percentile in ms."""
        settle(self.sizes.settle_seconds)
        port = cluster.brokers[_LEADER].port
        pace = self.generator.pace(port, "paced-0", RATE, self.sizes.pace_seconds, self.directory, acks=-1)
        return pace.p50_us / 1000, pace.p99_us / 1000

    def _measure(self, cluster: Cluster) -> dict[str, float]:
        assignment = cluster.create_partitions("moved", PARTITIONS, _OLD, replication_factor=2)
        self._fill(cluster, "moved-0", self.sizes.moved)
        found: dict[str, float] = {}
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for when in ("before", "during"):
                if when == "during":
                    self._begin(admin, assignment)
                p50, p99 = self._pace(cluster)
                found[f"produce of one record at {RATE:,}/s {when} a throttled reassignment, p50"] = p50
                found[f"produce of one record at {RATE:,}/s {when} a throttled reassignment, p99"] = p99
            assert admin.list_partition_reassignments(), "the reassignment ended before the measurement: move more"
            found["copying the rest without a throttle"] = self._finish(cluster, admin)
        cluster.drop_topic("moved-0")
        return found

    def _begin(self, admin: Admin, assignment: Assignment) -> None:
        rate = self.sizes.throttle * 1_000_000
        admin.alter_configs(ConfigResource("broker", str(broker), dict.fromkeys(_RATES, rate)) for broker in BROKERS)
        admin.alter_configs([ConfigResource("topic", "moved-0", dict.fromkeys(_REPLICAS, "*"))])
        admin.alter_partition_reassignments({TopicPartition(*partition): _NEW for partition in assignment})

    def _finish(self, cluster: Cluster, admin: Admin) -> float:
        """Removes the throttle. Returns the speed of the copy from then on, in MB/s."""
        before = self._copied(cluster)
        started = perf_counter()
        admin.reset_configs(ConfigResource("broker", str(broker), _RATES) for broker in BROKERS)
        await_condition(
            f"{cluster.name}: the end of the reassignment",
            lambda: not admin.list_partition_reassignments(),
            SECONDS,
            pause=0.05,
        )
        seconds = perf_counter() - started
        admin.reset_configs([ConfigResource("topic", "moved-0", _REPLICAS)])
        return max(self._copied(cluster) - before, 1) / 1_000_000 / seconds

    @staticmethod
    def _copied(cluster: Cluster) -> int:
        directories = cluster.brokers[_NEW[-1]].data_dir.glob("moved-0-*")
        return sum(file.stat().st_size for directory in directories for file in directory.glob("*.log"))


def run(
    directory: Path, rounds: int, *, sizes: Sizes, kinds: tuple[type[Side], type[Side]] = KINDS
) -> tuple[list[Measurement], list[str]]:
    """Runs the benchmark."""
    load = os.getloadavg()
    bench = Bench(directory, kinds, sizes, Librdkafka(build(directory)))
    bench.rounds(rounds)
    measurements = bench.results.measurements(kinds[1].name)
    for each in measurements:
        print(describe(each), file=sys.stderr, flush=True)
    return measurements, [
        "Load averages over 1, 5 and 15 minutes before the run: " + ", ".join(f"{each:.1f}" for each in load) + ".",
        "Ratios are Headrace to Kafka: low is good for latency, high for the speed of copying.",
        "Three brokers each on one ZooKeeper, with the settings of the benchmark `cluster`.",
        f"{sizes.moved} MB of records of {RECORD_BYTES} bytes in {PARTITIONS} partitions move from brokers {_OLD} to "
        f"{_NEW}, with a throttle of {sizes.throttle} MB/s.",
        f"A producer on a plain socket sends {RATE:,} requests per second for {sizes.pace_seconds} s to one partition "
        "with three replicas, with acks=all.",
    ]
