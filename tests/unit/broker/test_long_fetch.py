"""A delayed fetch of very many partitions: checks in turns, sees every event, completes once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker.replicas import TOPIC_ID, TP, TP_1, Replicas
from tests.support.storage.logs import make_batch

from headrace.broker.fetch_sessions import FetchedPartition
from headrace.broker.fetching import CONSUMER, FetchLimits, Reads, fetch_isolation
from headrace.broker.long_fetch import DelayedLongFetch, LongReads, read_in_turns
from headrace.broker.partition import Partition
from headrace.broker.yielding import InTurns, parts
from headrace.common.types import TopicPartition

BATCH_BYTES = len(make_batch())
MAX_WAIT_MS = 500


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as replicas:
        yield replicas


@pytest.fixture(autouse=True)
def single_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives way after each partition."""
    monkeypatch.setattr("headrace.broker.long_fetch.parts", lambda items: parts(items, 1))


def append(replicas: Replicas, partition: Partition) -> None:
    partition.append(make_batch(), 1)
    replicas.appended(partition)


class Fetch:
    """A fetch of two partitions, whose turns the test runs."""

    def __init__(self, replicas: Replicas, min_bytes: int = 1, *tps: TopicPartition):
        self.replicas = replicas
        self.limits = FetchLimits(min_bytes, 1 << 20, MAX_WAIT_MS, fetch_isolation(CONSUMER, 0), CONSUMER)
        self.fetched = [FetchedPartition(tp.topic, TOPIC_ID, tp.partition, 0, 1 << 20) for tp in tps or (TP, TP_1)]
        self.work: list[InTurns[None]] = []
        self.responses: list[Reads | None] = []

    def read(self) -> InTurns[LongReads]:
        return read_in_turns(self.replicas, self.fetched, self.limits, lambda: True)

    def wait(self, reads: LongReads | None = None) -> None:
        self.operation = DelayedLongFetch(
            self.replicas,
            reads or result_of(self.read()),
            self.limits,
            lambda: True,
            self.work.append,
            self.responses.append,
        )
        self.replicas.fetches.try_complete_else_watch(self.operation, self.operation.keys())

    def run(self) -> int:
        """Runs all turns. Returns their number."""
        turns = 0
        while self.work:
            turns += len(list(self.work.pop(0)))
        return turns


def result_of(work: InTurns[LongReads]) -> LongReads:
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value


def test_events_cause_one_check(replicas: Replicas) -> None:
    one, other = replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas, 4 * BATCH_BYTES)
    fetch.wait()
    assert fetch.run() == 2, "the first check finds no change"
    append(replicas, one)
    append(replicas, other)
    assert len(fetch.work) == 1
    assert fetch.run() == 4, "it compares two partitions and reads them"
    assert fetch.responses == []
    append(replicas, one)
    append(replicas, other)
    fetch.run()
    (reads,) = fetch.responses
    assert [read.size for read in reads.partitions] == [2 * BATCH_BYTES] * 2
    assert replicas.fetches.delayed == 0


def test_data_that_arrives_while_others_are_read(replicas: Replicas) -> None:
    """The first partition gets data after it was read, and before the fetch waits for it."""
    one, _ = replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas)
    reading = fetch.read()
    next(reading)
    append(replicas, one)
    reads = result_of(reading)
    assert reads.size == 0
    fetch.wait(reads)
    fetch.run()
    (found,) = fetch.responses
    assert found.size == BATCH_BYTES


def test_data_that_arrives_during_a_check(replicas: Replicas) -> None:
    one, _ = replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas)
    fetch.wait()
    check = fetch.work.pop()
    next(check)
    append(replicas, one)
    assert fetch.work == [], "no second check at the same time"
    list(check)
    assert [reads.size for reads in fetch.responses] == [BATCH_BYTES]


def test_expires_with_the_last_read(replicas: Replicas) -> None:
    replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas)
    fetch.wait()
    fetch.run()
    replicas.pass_time(MAX_WAIT_MS)
    assert [reads.size for reads in fetch.responses] == [0]


def test_expires_with_a_new_read_after_a_change(replicas: Replicas) -> None:
    one, _ = replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas, 2 * BATCH_BYTES)
    fetch.wait()
    append(replicas, one)
    fetch.run()
    replicas.pass_time(MAX_WAIT_MS)
    assert fetch.responses == [None], "the caller reads again"


def test_cancelled_fetch_stops_its_check(replicas: Replicas) -> None:
    one, _ = replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas)
    fetch.wait()
    fetch.run()
    append(replicas, one)
    fetch.operation.cancel()
    fetch.run()
    assert fetch.responses == []


def test_lost_leadership_completes_it(replicas: Replicas) -> None:
    replicas.lead(TP), replicas.lead(TP_1)
    fetch = Fetch(replicas)
    fetch.wait()
    fetch.run()
    replicas.stop_replica(TP, delete=False)
    fetch.run()
    (reads,) = fetch.responses
    assert reads.urgent
