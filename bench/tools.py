"""Shell tools: how long one takes from the command line to its end, beside Kafka's, against the same Headrace broker.

Kafka's tools run as `kafka-run-class.sh` starts them, with 256 MB and the collector that it chooses, but without the
script around them, which would cost some more.

    python -m bench tools [--rounds 7]
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.apache_kafka.broker import kafka_classpath

from bench.harness import Measurement, describe, from_pairs
from headrace.testing import EmbeddedBroker

ROUNDS = 7
JVM = [
    "java",
    "-Xmx256M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
]
CASES: list[tuple[list[str], str]] = [
    (["topics", "--list"], "org.apache.kafka.tools.TopicCommand"),
    (["topics", "--describe"], "org.apache.kafka.tools.TopicCommand"),
    (["consumer-groups", "--list"], "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    (["configs", "--describe", "--topic", "topic-1"], "kafka.admin.ConfigCommand"),
]
TARGET = 0.2
NOTES = ["With the bytecode that Python keeps, as users have it, whatever PYTHONDONTWRITEBYTECODE says here."]


def run(rounds: int) -> list[Measurement]:
    classpath = kafka_classpath()
    measured: list[Measurement] = []
    with EmbeddedBroker(topics={f"topic-{number}": 3 for number in range(20)}) as broker:
        address = ["--bootstrap-server", broker.bootstrap_servers]
        for arguments, main in CASES:
            headrace = [sys.executable, "-m", "headrace", *arguments, *address]
            kafka = [*JVM, "-cp", classpath, main, *arguments[1:], *address]
            pairs = _rounds(lambda command=headrace: _wall(command), lambda command=kafka: _wall(command), rounds)
            measured.append(from_pairs(f"{' '.join(arguments)}, wall time", "s", "Kafka's tool", pairs, TARGET, True))
            print(describe(measured[-1]), file=sys.stderr, flush=True)
    return measured


def _rounds(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> list[tuple[float, float]]:
    ours(), theirs()
    pairs = []
    for number in range(rounds):
        if number % 2:
            second, first = theirs(), ours()
        else:
            first, second = ours(), theirs()
        pairs.append((first, second))
    return pairs


def _wall(command: Sequence[str | Path]) -> float:
    # As users run it: with the bytecode that Python keeps, whatever this process was told.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    return time.perf_counter() - started
