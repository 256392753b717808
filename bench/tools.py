"""Compares the wall time of shell tools with Kafka's, from start to exit, against the same Headrace broker.

Kafka's tools run with the JVM options of `kafka-run-class.sh` (a heap of 256 MB, G1), but without the script itself,
which would add some time.

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
NOTES = ["Python's cached bytecode is used, as it is for users, even if PYTHONDONTWRITEBYTECODE is set here."]


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
    # Users run the tools with cached bytecode, so PYTHONDONTWRITEBYTECODE is not passed on.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    return time.perf_counter() - started
