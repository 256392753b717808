"""Consume-process-produce loops with transactions that are killed repeatedly, together with the broker.

Several loops share a group; they start, stop, and sometimes abort. Two `read_committed` readers of their output, one
during the test and one at the end, receive every input record once and in order. `HEADRACE_SEED` sets the
random seed, which is printed; `HEADRACE_TRANSACTION_ROUNDS` sets the number of rounds.
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
from tests.support.broker.admin_clients import ConfluentAdmin
from tests.support.broker.clients import Confluent
from tests.support.broker.records import START_MS, Record
from tests.support.broker.under_test import make_broker
from tests.support.seeds import choose_seed

ROUNDS = int(os.environ.get("HEADRACE_TRANSACTION_ROUNDS", "4"))
PARTITIONS = 4
PER_ROUND = 200
"""Records for each partition; the kills happen while they are copied."""
DEADLINE_SECONDS = 120.0
Seen = dict[int, dict[int, bytes]]
"""Partition → offset → value."""
ROOT = Path(__file__).parents[3]
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
KINDS = ("kill a loop", "kill all loops", "kill the broker", "kill all", "a loop leaves")


class Loop:
    """One of the loops in its own process. If errors of the broker end it, it is restarted."""

    def __init__(self, *arguments: str):
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "tests.support.broker.copy_worker", *self._arguments]
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def leave(self) -> None:
        """Ends the process after it left the group, and restarts it."""
        if self._process is not None:
            self._process.terminate()

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


def test_exactly_once_when_clients_and_broker_are_killed(tmp_path: Path) -> None:
    choices = random.Random(choose_seed())
    with make_broker(tmp_path / "data", SETTINGS) as broker:
        admin = ConfluentAdmin(broker.bootstrap)
        for topic in ("source", "target"):
            admin.create(topic, PARTITIONS)
        admin.close()
        names = (("first", "static"), ("second", "static"), ("third",))
        loops = [Loop(broker.bootstrap, "source", "target", "copy", *each) for each in names]
        seen: Seen = {each: {} for each in range(PARTITIONS)}
        try:
            with following(broker.bootstrap, "target") as consumer:
                for number in range(ROUNDS):
                    rows = rows_of(number)
                    acks = Confluent(broker.bootstrap).write("source", rows, enable_idempotence=True)
                    assert {ack.error for ack in acks} == {0}
                    done = len(rows) * number
                    wait_for(done + choices.randrange(len(rows)), loops, consumer, seen)
                    kind = choices.choice(KINDS)
                    one = choices.choice(loops)
                    if kind == "a loop leaves":
                        one.leave()
                    elif kind != "kill the broker":
                        for each in (one,) if kind == "kill a loop" else loops:
                            each.kill()
                    if kind in ("kill the broker", "kill all"):
                        broker.kill()
                        broker.start()
                    wait_for(done + len(rows), loops, consumer, seen)
        finally:
            for each in loops:
                each.kill()
        reader = Confluent(broker.bootstrap)
        given, found = (
            reader.read(topic, range(PARTITIONS), isolation_level="read_committed") for topic in ("source", "target")
        )
    for partition in range(PARTITIONS):
        expected = [row.value for number in range(ROUNDS) for row in rows_of(number) if row.partition == partition]
        assert [each.value for each in given if each.partition == partition] == expected
        assert [each.value for each in found if each.partition == partition] == expected
        assert list(seen[partition].values()) == expected


def rows_of(number: int) -> list[Record]:
    """Writes the input of a round."""
    return [
        Record(partition, b"", b"%d of %d" % (each, partition), timestamp=START_MS)
        for each in range(PER_ROUND * number, PER_ROUND * (number + 1))
        for partition in range(PARTITIONS)
    ]


def wait_for(goal: int, loops: list[Loop], consumer: confluent.Consumer, seen: Seen) -> None:
    """Waits until this number of output records was read."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while sum(map(len, seen.values())) < goal:
        assert time.monotonic() < deadline, "the loops do not get on"
        for each in loops:
            each.keep_running()
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            note(seen[message.partition() or 0], message.offset() or 0, message.value() or b"")


def note(seen: dict[int, bytes], offset: int, value: bytes) -> None:
    """Checks that an offset that is read again after a lost connection has the same value."""
    if offset in seen:
        print(f"offset {offset} was read again")
        assert seen[offset] == value
    else:
        assert not seen or offset > next(reversed(seen)), "an offset that was not there before"
        seen[offset] = value
