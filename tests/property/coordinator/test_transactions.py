"""A transaction coordinator with random producers, crashes and clocks.

Invariants: no two producers have the same id and epoch; a fenced producer never succeeds; the markers agree with the
response to EndTxn and never change; a crash changes nothing. `HEADRACE_MODEL_EXAMPLES` sets the number of histories.
"""

import os
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.coordinator.transactions import Coordinator

from headrace.common.errors import ConcurrentTransactionsError, KafkaError, ProducerFencedError
from headrace.common.types import TopicPartition
from headrace.coordinator.result import ProducerInfo

NAMES = ("a", "b")
PRODUCERS = st.integers(0, 20)
"""Selects one of the producers, counted from the newest."""


@dataclass(eq=False)
class Producer:
    """A client. With `version` 2 each transaction has its own epoch."""

    name: str
    version: int
    identity: ProducerInfo
    fenced: bool = False
    told: bool | None = None
    """True if the response said that its last transaction was committed."""


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.producers: list[Producer] = []
        self.owners: dict[ProducerInfo, Producer] = {}
        self.decided: dict[ProducerInfo, bool] = {}
        """The expected markers, by the records of their transactions."""

    def pick(self, number: int) -> Producer | None:
        return self.producers[-1 - number % len(self.producers)] if self.producers else None

    def give(self, producer: Producer, identity: ProducerInfo) -> None:
        owner = self.owners.setdefault(identity, producer)
        assert owner is producer, f"{identity} belongs to another producer"
        producer.identity = identity

    @rule(name=st.sampled_from(NAMES), version=st.sampled_from([0, 2]))
    def start_producer(self, name: str, version: int) -> None:
        """A new producer with an existing transactional id; it fences earlier producers."""
        try:
            given = self.coordinator.init(name=name)
        except ConcurrentTransactionsError:
            return
        self.fence(name)  # even if their transaction is only being aborted
        if given is not None:
            producer = Producer(name, version, given)
            self.producers.append(producer)
            self.give(producer, given)

    def fence(self, name: str) -> None:
        for producer in self.producers:
            if producer.name == name:
                producer.fenced = True

    @rule(number=PRODUCERS)
    def bump(self, number: int) -> None:
        """A producer requests a newer epoch."""
        producer = self.pick(number)
        if producer is None:
            return
        try:
            given = self.coordinator.init(producer.identity, name=producer.name)
        except (ConcurrentTransactionsError, ProducerFencedError):
            return
        assert not producer.fenced
        if given is not None:
            self.give(producer, given)

    @rule(number=PRODUCERS, partition=st.integers(0, 3))
    def add(self, number: int, partition: int) -> None:
        producer = self.pick(number)
        if producer is None:
            return
        tp = TopicPartition("t", partition)
        try:
            self.coordinator.add(producer.identity, frozenset((tp,)), producer.version, producer.name)
        except KafkaError:
            return
        assert not producer.fenced
        assert self.coordinator.verify(producer.identity, tp, producer.name)
        producer.told = None

    @rule(number=PRODUCERS, commit=st.booleans(), lost=st.booleans())
    def end(self, number: int, commit: bool, lost: bool) -> None:
        """With `lost`, the producer does not get the response."""
        producer = self.pick(number)
        if producer is None:
            return
        before = self.coordinator.get(producer.name)
        try:
            after = self.coordinator.end(producer.identity, commit, producer.version, producer.name)
        except KafkaError:
            return
        assert not producer.fenced
        known = self.coordinator.get(producer.name)
        assert before is not None
        assert known is not None
        if known != before:
            marker = ProducerInfo(known.producer_id, known.producer_epoch)
            self.decided[marker] = commit
            producer.told = None
        assert producer.told in (None, commit), "a transaction ended in two ways"
        if not lost:
            producer.told = commit
            self.give(producer, after)

    @rule()
    def mark(self) -> None:
        """Writes the pending markers."""
        for prepared in self.coordinator.to_mark:
            identity = ProducerInfo(prepared.producer_id, prepared.producer_epoch)
            decision = self.decided.pop(identity, None)
            committed = prepared.state.label == "PrepareCommit"
            assert decision is committed or (decision is None and not committed)
        self.coordinator.mark()

    @rule()
    def crash(self) -> None:
        before = dict(self.coordinator.bench.shard.transactions)
        waiting = {each.transactional_id for each in self.coordinator.to_mark}
        self.coordinator.crash()
        assert self.coordinator.bench.shard.transactions == before
        assert {each.transactional_id for each in self.coordinator.to_mark} == waiting

    @rule(ms=st.sampled_from([1, 5_000, 30_000, 80_000]))
    def wait(self, ms: int) -> None:
        """Advances the clock: some transactions time out and their producers are fenced."""
        before = dict(self.coordinator.bench.shard.transactions)
        self.coordinator.bench.pass_time(ms)
        for name, known in self.coordinator.bench.shard.transactions.items():
            if before[name] != known:
                assert known.state.label == "PrepareAbort"
                self.fence(name)

    @invariant()
    def every_prepared_transaction_has_pending_markers(self) -> None:
        prepared = {
            each.transactional_id
            for each in self.coordinator.bench.shard.transactions.values()
            if each.state.is_prepared
        }
        assert prepared == {each.transactional_id for each in self.coordinator.to_mark}


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "100")), stateful_step_count=50, deadline=None
)
