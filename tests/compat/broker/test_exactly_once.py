"""A loop that reads, processes and writes in transactions, killed again and again together with the broker.

What `read_committed` readers see of its output is every record of the input once and in order. The seed of the kills is
printed; `HEADRACE_KILL_ROUNDS` sets how many there are.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as confluent
from tests.support.broker_admins import ConfluentAdmin
from tests.support.broker_clients import Confluent
from tests.support.broker_process import make_broker
from tests.support.broker_records import START_MS, Record

ROUNDS = int(os.environ.get("HEADRACE_KILL_ROUNDS", "8"))
PARTITIONS = 2
PER_ROUND = 60
DEADLINE_SECONDS = 60.0
PATIENCE_SECONDS = 8.0
ROOT = Path(__file__).parents[3]


class Worker:
    """The loop, in a process of its own."""

    def __init__(self, *arguments: str):
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._process = None  # an error that it could not go on after
        if self._process is None:
            command = [sys.executable, "-m", "tests.support.copy_worker", *self._arguments]
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def following(bootstrap: str, topic: str) -> Iterator[confluent.Consumer]:
    consumer = Confluent(bootstrap).consumer(isolation_level="read_committed", enable_partition_eof=False)
    consumer.assign([confluent.TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_loop_that_is_killed_with_its_broker(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choices = random.Random(seed)
    count = PER_ROUND * ROUNDS
    with make_broker(tmp_path / "data", {"group.initial.rebalance.delay.ms": 0}) as broker:
        admin = ConfluentAdmin(broker.bootstrap)
        for topic in ("source", "target"):
            admin.create(topic, PARTITIONS)
        admin.close()
        rows = [
            Record(partition, b"", b"%d of %d" % (number, partition), timestamp=START_MS)
            for number in range(count)
            for partition in range(PARTITIONS)
        ]
        assert {ack.error for ack in Confluent(broker.bootstrap).write("source", rows)} == {0}
        worker = Worker(broker.bootstrap, "source", "target", "copy")
        seen: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
        try:
            with following(broker.bootstrap, "target") as consumer:
                for number in range(1, ROUNDS + 1):
                    goal = PARTITIONS * count if number == ROUNDS else PARTITIONS * PER_ROUND * number
                    wait_for(goal, worker, consumer, seen)
                    if number == ROUNDS:
                        break
                    kind = choices.choice(("worker", "broker", "both"))
                    if kind != "broker":
                        worker.kill()
                    if kind != "worker":
                        broker.kill()
                        broker.start()
        finally:
            worker.kill()
        found = Confluent(broker.bootstrap).read("target", range(PARTITIONS), isolation_level="read_committed")
    for partition in range(PARTITIONS):
        expected = [b"%d of %d" % (number, partition) for number in range(count)]
        assert seen[partition] == expected
        assert [each.value for each in found if each.partition == partition] == expected


def wait_for(goal: int, worker: Worker, consumer: confluent.Consumer, seen: dict[int, list[bytes]]) -> None:
    """Until so many records of the output have been seen.

    A worker that stands still is killed: librdkafka (2.15) was seen to wait in `send_offsets_to_transaction`, far past
    its timeout and with nothing asked of the broker any more, if the connection broke meanwhile.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    patience = time.monotonic() + PATIENCE_SECONDS
    while sum(map(len, seen.values())) < goal:
        assert time.monotonic() < deadline, "the loop does not get on"
        if time.monotonic() > patience:
            worker.kill()
            patience = time.monotonic() + PATIENCE_SECONDS
        worker.keep_running()
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            patience = time.monotonic() + PATIENCE_SECONDS
            seen[message.partition() or 0].append(message.value() or b"")
