"""Compares Headrace's broker with Apache Kafka's, on the same machine and disk, with the same load generators.

Fresh brokers: in every round each broker starts on an empty directory (formatted beforehand for Apache Kafka), alone on
the machine. Measured are the time to the first acknowledged record, and the memory when idle and after some gigabytes.

Warm brokers: both stay up. Each case runs on one broker and immediately afterwards on the other, while the first one
idles. Both values of a pair meet the same noise, and the JVM keeps its compiled code. The notes include the CPU usage
of the idle brokers.

Topics have six partitions and one replica, unless the case says otherwise. Neither broker syncs to disk (the default of
both). After each case the topic's files are deleted, and dirty pages are written back before the next one, so the disk
has no influence.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.broker_load import PARTITIONS, RECORD_BYTES, SMALL_RECORD_BYTES, Java, Librdkafka, Load, build
from bench.broker_profiles import explain_misses
from bench.broker_sides import Headrace, Kafka, Side
from bench.broker_wire import await_first_record, drop_topic, make_topic
from bench.harness import Measurement, describe, from_pairs

ROUNDS = 5
RATE = 1000
IDLE_SECONDS = 5
LARGE_BATCH = 1024 * 1024
BATCHES = {"16 KB": 16 * 1024, "1 MB": LARGE_BATCH}
CLIENTS_PRODUCING = (1, 10, 100)
CLIENTS_CONSUMING = (1, 10, 50)
MANY_PARTITIONS = 100
Pair = tuple[float, float]
Generator = Librdkafka | Java


@dataclass(frozen=True)
class Sizes:
    """The megabytes that each case sends or reads, and the duration of the case with a fixed rate."""

    small_batches: int = 300
    large_batches: int = 800
    consumed: int = 1200
    many_producers: int = 200
    unbatched_records: int = 40_000
    memory: int = 3000
    pace_seconds: int = 6


QUICK = Sizes(
    small_batches=150,
    large_batches=400,
    consumed=400,
    many_producers=100,
    unbatched_records=10_000,
    memory=1000,
    pace_seconds=3,
)


@dataclass(frozen=True)
class Goal:
    unit: str
    target: float
    lower_is_better: bool = True


SPEED = Goal("MB/s", 1.0, lower_is_better=False)
HIGH_SPEED = Goal("MB/s", 1.2, lower_is_better=False)
RECORD_RATE = Goal("records/s", 1.0, lower_is_better=False)
CPU = Goal("CPU-s/GB", 1.0)
LOW_CPU = Goal("CPU-s/GB", 0.8)
LATENCY = Goal("us", 0.5)
START = Goal("s", 0.2)
MEMORY = Goal("MB", 0.2)


@dataclass
class Results:
    """Pairs of Headrace's and the peer's value by case name, in the order of the first round."""

    goals: dict[str, Goal] = field(default_factory=dict)
    pairs: dict[str, list[Pair]] = field(default_factory=dict)

    def add(self, name: str, goal: Goal, ours: float, theirs: float) -> None:
        self.goals[name] = goal
        self.pairs.setdefault(name, []).append((ours, theirs))
        print(f"  {name:<58} {ours:>9.2f} vs {theirs:>9.2f} {goal.unit}", file=sys.stderr, flush=True)

    def measurements(self, peer: str) -> list[Measurement]:
        return [self._measurement(name, goal, peer) for name, goal in self.goals.items()]

    def _measurement(self, name: str, goal: Goal, peer: str) -> Measurement:
        return from_pairs(name, goal.unit, peer, self.pairs[name], goal.target, goal.lower_is_better)


class Bench:
    """The two brokers, the load generators, and the results."""

    def __init__(self, directory: Path, kinds: tuple[type[Side], type[Side]], sizes: Sizes, only: str):
        self.results = Results()
        self.notes: list[str] = []
        self._directory = directory
        self._kinds = kinds
        self._sizes = sizes
        self._only = only
        self._count = 0
        self._librdkafka = Librdkafka(build(directory))
        self._java = Java()
        self._generator_cpu: list[float] = []

    def wants(self, *names: str) -> bool:
        return any(self._only in name for name in names)

    def make_side(self, place: int) -> Side:
        self._count += 1
        return self._kinds[place](self._directory / f"broker-{self._count}")

    # ---- fresh brokers

    def fresh_round(self, number: int) -> None:
        """Measures start time and memory, with one broker running at a time."""
        gigabytes = f"after {self._sizes.memory / 1000:g} GB"
        names = ["start to first acknowledged record"]
        names += [f"memory {when}, {kind}" for when in ("idle", gigabytes) for kind in ("RSS", "PSS")]
        if not self.wants(*names):
            return
        found: list[list[float]] = [[], []]
        for place in in_turn(number):
            found[place] = self._measure_fresh(self.make_side(place))
        for name, goal, ours, theirs in zip(names, [START, *[MEMORY] * 4], *found, strict=True):
            self.results.add(name, goal, ours, theirs)

    def _measure_fresh(self, side: Side) -> list[float]:
        os.sync()
        side.spawn()
        try:
            seconds = await_first_record(side.port, "first", RECORD_BYTES) - side.started_at
            time.sleep(IDLE_SECONDS)
            idle = side.memory_mb()
            make_topic(side.port, "memory", PARTITIONS)
            self._librdkafka.produce(side.bootstrap, "memory", self._sizes.memory, LARGE_BATCH, "1")
            used = side.memory_mb()
        finally:
            side.stop()
        shutil.rmtree(side.data_dir)
        return [seconds, *idle, *used]

    # ---- warm brokers

    def warm_rounds(self, rounds: int) -> None:
        sides = [self.make_side(0), self.make_side(1)]
        try:
            for side in sides:
                side.start()
                # All rounds read this topic; writing it is part of the warm-up.
                make_topic(side.port, "consumed", PARTITIONS)
                self._librdkafka.produce(side.bootstrap, "consumed", self._sizes.consumed, BATCHES["16 KB"], "1")
            print("warm-up, not counted", file=sys.stderr, flush=True)
            kept, self.results = self.results, Results()
            self._warm_round(sides, 0)
            self.results = kept
            self._generator_cpu.clear()
            self._note_idle(sides)
            for number in range(rounds):
                print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
                self._warm_round(sides, number)
            if self._generator_cpu:
                most = max(self._generator_cpu)
                self.notes.append(f"The librdkafka generator itself used at most {most:.2f} CPU-s per GB.")
        finally:
            for side in sides:
                side.stop()

    def _warm_round(self, sides: list[Side], number: int) -> None:
        for generator in (self._librdkafka, self._java):
            for label, batch_bytes in BATCHES.items():
                for acks in ("1", "all"):
                    self._produce_case(sides, number, generator, label, batch_bytes, acks)
        for producers in CLIENTS_PRODUCING:
            self._many_producers_case(sides, number, producers)
        self._unbatched_case(sides, number)
        for generator in (self._librdkafka, self._java):
            self._consume_case(sides, number, generator)
        for consumers in CLIENTS_CONSUMING:
            self._many_consumers_case(sides, number, consumers, cold=False)
            self._many_consumers_case(sides, number, consumers, cold=True)
        self._latency(sides, number)

    def _consume_case(self, sides: list[Side], number: int, generator: Generator) -> None:
        def consume(side: Side) -> Load:
            return generator.consume(side.bootstrap, "consumed", self._sizes.consumed)

        self._throughput(sides, number, f"consume, {generator.name}", consume, speed=HIGH_SPEED, cpu=LOW_CPU)

    def _many_consumers_case(self, sides: list[Side], number: int, consumers: int, cold: bool) -> None:
        def consume(side: Side) -> Load:
            if cold:
                side.drop_cached("consumed")
            return self._librdkafka.consume(side.bootstrap, "consumed", self._sizes.consumed, consumers=consumers)

        cache = "cold" if cold else "cached"
        clients = "1 consumer" if consumers == 1 else f"{consumers} consumers in different groups"
        self._throughput(sides, number, f"consume with {clients}, {cache}", consume)
        if cold:
            for side in sides:
                side.fill_cache("consumed")  # for the cases that follow

    def _many_producers_case(self, sides: list[Side], number: int, producers: int) -> None:
        def produce(side: Side) -> Load:
            return self._librdkafka.produce(
                side.bootstrap,
                "produced",
                self._sizes.many_producers,
                BATCHES["16 KB"],
                "1",
                partitions=MANY_PARTITIONS,
                producers=producers,
            )

        clients = "1 producer" if producers == 1 else f"{producers} producers"
        name = f"produce from {clients} to {MANY_PARTITIONS} partitions, 16 KB batches"
        self._throughput(sides, number, name, produce, "produced", MANY_PARTITIONS)

    def _unbatched_case(self, sides: list[Side], number: int) -> None:
        def produce(side: Side) -> Load:
            return self._librdkafka.produce_unbatched(side.bootstrap, "produced", self._sizes.unbatched_records)

        name = f"produce unbatched records of {SMALL_RECORD_BYTES} bytes"
        self._throughput(sides, number, name, produce, "produced", speed=RECORD_RATE)

    def _produce_case(
        self, sides: list[Side], number: int, generator: Generator, label: str, batch_bytes: int, acks: str
    ) -> None:
        megabytes = self._sizes.large_batches if batch_bytes == LARGE_BATCH else self._sizes.small_batches

        def produce(side: Side) -> Load:
            return generator.produce(side.bootstrap, "produced", megabytes, batch_bytes, acks)

        name = f"produce, {label} batches, acks {acks}, {generator.name}"
        goal = HIGH_SPEED if generator is self._java and batch_bytes != LARGE_BATCH else SPEED
        self._throughput(sides, number, name, produce, "produced", speed=goal)

    def _throughput(
        self,
        sides: list[Side],
        number: int,
        name: str,
        load: Callable[[Side], Load],
        topic: str | None = None,
        partitions: int = PARTITIONS,
        *,
        speed: Goal = SPEED,
        cpu: Goal = CPU,
    ) -> None:
        """Measures throughput and broker CPU time. `topic`, if given, is created for this case and then deleted."""
        if not self.wants(name):
            return
        speeds, cpus = [0.0, 0.0], [0.0, 0.0]
        for place in in_turn(number):
            side = sides[place]
            if topic:
                make_topic(side.port, topic, partitions)
            os.sync()
            before = side.cpu_seconds()
            done = load(side)
            speeds[place] = done.mb_per_second * (1e6 / SMALL_RECORD_BYTES if speed is RECORD_RATE else 1)
            cpus[place] = (side.cpu_seconds() - before) / done.total_bytes * 1e9
            if done.generator_cpu and speed is not RECORD_RATE:
                self._generator_cpu.append(done.generator_cpu / done.total_bytes * 1e9)
            if topic:
                drop_topic(side.port, topic, side.data_dir)
        self.results.add(name, speed, *speeds)
        self.results.add(f"{name}: broker CPU", cpu, *cpus)

    def _latency(self, sides: list[Side], number: int) -> None:
        names = [f"round trip of one record at {RATE:,}/s, acks 1, p{percent}" for percent in (50, 99)]
        if not self.wants(*names):
            return
        found: list[list[float]] = [[], []]
        for place in in_turn(number):
            side = sides[place]
            make_topic(side.port, "paced", 1)
            os.sync()
            pace = self._librdkafka.pace(side.port, "paced", RATE, self._sizes.pace_seconds, self._directory)
            found[place] = [pace.p50_us, pace.p99_us]
            drop_topic(side.port, "paced", side.data_dir)
        for name, ours, theirs in zip(names, *found, strict=True):
            self.results.add(name, LATENCY, ours, theirs)

    def _note_idle(self, sides: list[Side]) -> None:
        before = [side.cpu_seconds() for side in sides]
        time.sleep(IDLE_SECONDS)
        shares = [
            f"{side.name} {100 * (side.cpu_seconds() - start) / IDLE_SECONDS:.1f}%"
            for side, start in zip(sides, before, strict=True)
        ]
        self.notes.append(f"CPU usage when idle after the warm-up, in percent of one core: {', '.join(shares)}.")


def in_turn(number: int) -> tuple[int, int]:
    """Returns the order of the brokers in a round. The first one alternates, in case the order matters."""
    return (1, 0) if number % 2 else (0, 1)


def run(
    directory: Path, rounds: int, *, quick: bool = False, self_check: bool = False, only: str = ""
) -> tuple[list[Measurement], list[str]]:
    """Runs the benchmark. With `self_check`, compares Apache Kafka with itself: all ratios should be near 1."""
    sizes = QUICK if quick else Sizes()
    kinds: tuple[type[Side], type[Side]] = (Kafka if self_check else Headrace, Kafka)
    bench = Bench(directory, kinds, sizes, only)
    bench.notes.append(f"Load average before the run: {os.getloadavg()[0]:.1f} (a quiet machine is near 0).")
    for number in range(rounds):
        print(f"fresh brokers, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        bench.fresh_round(number)
    bench.warm_rounds(rounds)
    measurements = bench.results.measurements(Kafka.name)
    for each in measurements:
        print(describe(each), file=sys.stderr)
    return measurements, [*bench.notes, *_explain(sizes), *explain_misses(measurements)]


def _explain(sizes: Sizes) -> list[str]:
    return [
        "Ratios are Headrace to Kafka: high is good for speed; low is good for CPU, latency, start and memory.",
        f"Records of {RECORD_BYTES} bytes, topics with {PARTITIONS} partitions and 1 replica, one producer or consumer "
        f"at a time; {sizes.small_batches} MB with 16 KB batches, {sizes.large_batches} MB with 1 MB batches, "
        f"{sizes.consumed} MB consumed (written in 16 KB batches, from the page cache).",
        f"Several producers or consumers: {sizes.many_producers} MB produced and {sizes.consumed} MB consumed in "
        "total, by clients of one librdkafka process. Cold: the topic is removed from the page cache first. Unbatched: "
        f"{sizes.unbatched_records:,} requests of one record.",
        "Generators: librdkafka (a C program with confluent-kafka's library) and Java (Kafka's ProducerPerformance; "
        "a consumer with ConsumerPerformance's settings and assigned partitions). Their start and warm-up are not "
        "timed. Idempotence is off.",
        "Broker CPU is the user and system time of all broker threads, from /proc, including the warm-up.",
        "Round trip: one producer on a plain socket, which sends on schedule without waiting for responses.",
        "Apache Kafka in KRaft mode, one node with both roles, with its shipped config and JVM options (1 GB heap); "
        "one whole round warms it up. Both brokers stay up and take turns, except for start and memory.",
        "Neither broker syncs to disk. After each case, files are deleted and dirty pages are written back.",
    ]
