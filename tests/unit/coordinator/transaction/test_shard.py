"""The transaction coordinator's state machine: every state with every request, time, crashes, epochs."""

import pytest
from tests.support.coordinator.transactions import ID, PARTITIONS, TIMEOUT_MS, Coordinator, outcome_of

from headrace.common.errors import CoordinatorNotAvailableError, NotCoordinatorError
from headrace.common.types import TopicPartition
from headrace.coordinator.result import CoordinatorResponse, ProducerInfo
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.coordinator.transaction.metadata import LAST_EPOCH

ONE = frozenset((TopicPartition("t", 0),))
NEW = 2
"""The transaction version of clients with an epoch per transaction."""


def make(state: str, version: int = 0) -> tuple[Coordinator, ProducerInfo]:
    """Returns a coordinator with a transaction in this state."""
    made = Coordinator()
    if state == "unknown":
        return made, ProducerInfo(1, 0)
    producer = made.init()
    assert producer is not None
    if state != "Empty":
        made.add(producer, version=version)
    if state not in ("Empty", "Ongoing"):
        producer = made.end(producer, commit=state.endswith("Commit"), version=version)
    if state.startswith("Complete"):
        made.mark()
    assert made.state() == state
    return made, producer


OK, FENCED, STATE, BUSY = "OK", "PRODUCER_FENCED", "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS"
MAPPING = "INVALID_PRODUCER_ID_MAPPING"

TABLE = {
    # state            init, init with own epoch, add, commit, abort
    "unknown": (OK, OK, MAPPING, MAPPING, MAPPING),
    "Empty": (OK, OK, OK, STATE, STATE),
    "Ongoing": ("again", "again", OK, OK, OK),
    "PrepareCommit": (BUSY, BUSY, BUSY, BUSY, STATE),
    "PrepareAbort": (BUSY, BUSY, BUSY, STATE, BUSY),
    "CompleteCommit": (OK, OK, OK, OK, STATE),
    "CompleteAbort": (OK, OK, OK, STATE, OK),
}


@pytest.mark.parametrize("state", TABLE)
def test_every_request_in_every_state(state: str) -> None:
    def outcomes() -> list[str]:
        found = []
        for request in ("init", "bump", "add", "commit", "abort"):
            made, producer = make(state)
            if request in ("init", "bump"):
                expected = producer if request == "bump" else None
                outcome = outcome_of(made.init, expected)
                if outcome == OK and made.state() == "PrepareAbort":
                    outcome = "again"
            elif request == "add":
                outcome = outcome_of(made.add, producer, ONE)
            else:
                outcome = outcome_of(made.end, producer, request == "commit")
            found.append(outcome)
        return found

    assert tuple(outcomes()) == TABLE[state]


@pytest.mark.parametrize("state", [state for state in TABLE if state != "unknown"])
def test_wrong_epochs_and_producer_ids_are_rejected_in_every_state(state: str) -> None:
    for epoch in (-1, 1):
        made, producer = make(state)
        wrong = producer._replace(producer_epoch=producer.producer_epoch + epoch)
        assert outcome_of(made.add, wrong) == FENCED
        assert outcome_of(made.end, wrong) == FENCED
        assert outcome_of(made.verify, wrong, TopicPartition("t", 0)) == FENCED
        busy = state.startswith("Prepare")
        assert outcome_of(made.init, wrong) == (BUSY if busy else FENCED)
        other = ProducerInfo(77, producer.producer_epoch)
        assert outcome_of(made.add, other) == MAPPING
        assert outcome_of(made.end, other) == MAPPING
        assert outcome_of(made.init, other) == FENCED
        assert made.state() == state


# ---- transactions


def test_commit_and_abort() -> None:
    made = Coordinator()
    producer = made.init()
    assert producer == (1000, 0)
    for commit in (True, False, True):
        made.add(producer, ONE)
        made.add(producer, PARTITIONS)
        assert made.get().partitions == PARTITIONS
        assert made.end(producer, commit) == producer
        made.mark()
        assert made.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert made.get().partitions == frozenset()
    assert made.marked == [(1000, 0, True), (1000, 0, False), (1000, 0, True)]


def test_new_producer_fences_old_one() -> None:
    made, old = make("CompleteCommit")
    new = made.init()
    assert new == (old.producer_id, old.producer_epoch + 1)
    assert outcome_of(made.add, old) == FENCED
    assert outcome_of(made.init, old) == FENCED
    assert outcome_of(made.add, new) == OK


def test_new_producer_aborts_open_transaction() -> None:
    made, old = make("Ongoing")
    assert made.init() is None
    assert outcome_of(made.end, old) == FENCED
    assert outcome_of(made.init) == BUSY
    made.mark()
    assert made.marked == [(1000, 1, False)]
    assert made.init() == (1000, 2)


def test_retried_epoch_bump_returns_same_epoch() -> None:
    made, producer = make("CompleteAbort")
    bumped = made.init(producer)
    assert bumped == (1000, 1)
    assert made.init(producer) == bumped  # a retry: the response was lost
    assert made.init(bumped) == (1000, 2)
    assert outcome_of(made.init, producer) == FENCED
    made.init()
    assert outcome_of(made.init, bumped) == FENCED


def test_epoch_bump_aborts_ongoing_transaction() -> None:
    made, producer = make("Ongoing")
    assert made.init(producer) is None
    made.mark()
    assert made.init(producer) == (1000, 1)


def test_verify() -> None:
    made, producer = make("Ongoing")
    assert made.verify(producer, TopicPartition("t", 1))
    assert not made.verify(producer, TopicPartition("t", 2))
    made.end(producer)
    assert outcome_of(made.verify, producer, TopicPartition("t", 1)) == BUSY
    made.mark()
    assert not made.verify(producer, TopicPartition("t", 1))


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_rejects_invalid_timeouts(timeout_ms: int) -> None:
    assert outcome_of(Coordinator().init, None, timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"


def test_rejects_empty_transactional_id() -> None:
    made, producer = make("Ongoing")
    assert outcome_of(made.init, name="") == "INVALID_REQUEST"
    assert outcome_of(made.add, producer, name="") == "INVALID_REQUEST"
    assert outcome_of(made.end, producer, name="") == "INVALID_REQUEST"
    assert outcome_of(made.verify, producer, TopicPartition("t", 0), name="") == "INVALID_REQUEST"


# ---- one epoch per transaction (KIP-890)


def test_each_transaction_end_bumps_epoch() -> None:
    made = Coordinator()
    producer = made.init()
    for commit in (True, False):
        made.add(producer, version=NEW)
        after = made.end(producer, commit, NEW)
        assert after == (1000, producer.producer_epoch + 1)
        assert outcome_of(made.end, producer, commit, NEW) == BUSY  # a retry
        assert outcome_of(made.end, producer, not commit, NEW) == STATE
        made.mark()
        assert made.marked[-1] == (1000, after.producer_epoch, commit)
        assert made.end(producer, commit, NEW) == after
        assert outcome_of(made.end, producer, not commit, NEW) == STATE
        assert outcome_of(made.add, producer, version=NEW) == FENCED
        producer = after


def test_retried_end_returns_bumped_epoch() -> None:
    made, producer = make("Ongoing", NEW)
    after = made.end(producer, True, NEW)
    made.mark()
    assert made.init(producer) == after
    assert outcome_of(made.init, producer._replace(producer_epoch=7)) == FENCED
    made.init()
    assert outcome_of(made.init, producer) == FENCED


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_aborts_transaction_without_partitions(state: str) -> None:
    made, producer = make(state, NEW)
    after = made.end(producer, False, NEW)
    assert after.producer_epoch == producer.producer_epoch + 1
    made.mark()
    assert made.state() == "CompleteAbort"
    assert outcome_of(made.end, after, True, NEW) == STATE


def exhausted(version: int) -> tuple[Coordinator, ProducerInfo]:
    """Returns a producer with the last usable epoch."""
    made = Coordinator()
    producer = made.init()
    while producer.producer_epoch < LAST_EPOCH - 1:
        producer = made.init()
    if version:
        made.add(producer, version=version)
    return made, producer


def test_exhausted_epochs_allocate_new_producer_id() -> None:
    made, producer = exhausted(0)
    after = made.init(producer)
    assert after == (1001, 0)
    assert made.init(producer) == after  # a retry
    assert outcome_of(made.add, producer) == MAPPING
    made.crash()
    assert made.get().previous_producer_id == 1000
    assert outcome_of(made.init, producer) == FENCED


def test_last_epoch_is_reserved_for_fencing() -> None:
    made, producer = exhausted(0)
    made.add(producer)
    assert made.init(producer) is None
    made.mark()
    assert made.marked == [(1000, LAST_EPOCH, False)]
    after = made.init(producer)
    assert after == (1001, 0)
    assert made.init(after) == (1001, 1)


def test_epochs_exhausted_at_transaction_end() -> None:
    made, producer = exhausted(NEW)
    after = made.end(producer, True, NEW)
    assert after == (1001, 0)
    made.crash()
    made.mark()
    assert made.marked == [(1000, LAST_EPOCH, True)]
    assert (made.get().producer_id, made.get().producer_epoch) == after
    assert made.end(producer, True, NEW) == after
    assert outcome_of(made.add, after, version=NEW) == OK


@pytest.mark.parametrize("late", [True, False])
def test_producer_aborted_by_others_gets_no_new_epoch(late: bool) -> None:
    made, producer = make("Ongoing", NEW)
    if late:
        made.bench.pass_time(TIMEOUT_MS + 10_000)
    else:
        assert made.init() is None
    for _ in range(2):
        for commit in (True, False):
            assert outcome_of(made.end, producer, commit, NEW) == FENCED
        made.mark()
    assert made.state() == "CompleteAbort"


# ---- time


def test_aborts_timed_out_transaction() -> None:
    made, producer = make("Ongoing")
    made.bench.pass_time(TIMEOUT_MS)
    assert made.state() == "Ongoing"
    made.bench.pass_time(10_000)
    assert made.state() == "PrepareAbort"
    made.mark()
    assert made.marked == [(1000, 1, False)]
    assert outcome_of(made.end, producer) == FENCED
    assert outcome_of(made.init, producer) == FENCED
    assert made.init() == (1000, 2)


def test_transaction_timeout_continues_after_crash() -> None:
    made, producer = make("CompleteCommit")
    made.bench.pass_time(TIMEOUT_MS)
    made.add(producer)
    made.bench.pass_time(TIMEOUT_MS - 1000)
    made.crash()
    assert made.state() == "Ongoing"
    made.bench.pass_time(11_001)
    assert made.state() == "PrepareAbort"


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"])
def test_unused_transactional_ids_expire(state: str) -> None:
    made = Coordinator(TransactionConfig(max_timeout_ms=10**9, id_expiration_ms=10**7))
    producer = made.init(timeout_ms=10**9)
    if state != "Empty":
        made.add(producer)
    if state not in ("Empty", "Ongoing"):
        made.end(producer, state != "PrepareAbort")
    if state.startswith("Complete"):
        made.mark()
    made.bench.pass_time(10**7 - 1)
    assert made.state() == state
    made.bench.pass_time(3_600_001)
    forgotten = state in ("Empty", "CompleteCommit")
    assert made.state() == (None if forgotten else state)
    made.crash()
    assert made.state() == (None if forgotten else state)


def test_aborts_many_timed_out_transactions_in_steps() -> None:
    made = Coordinator()
    names = [f"id-{number}" for number in range(1200)]
    for name in names:
        made.add(made.init(name=name), name=name)
    made.bench.pass_time(TIMEOUT_MS + 10_010)
    assert {made.state(name) for name in names} == {"PrepareAbort"}
    assert len(made.to_mark) == 1200
    assert max(batch.count for batch in made.bench.log.batches) <= 500


# ---- crashes


@pytest.mark.parametrize("commit", [True, False])
def test_crash_between_any_two_steps(commit: bool) -> None:
    made = Coordinator()
    producer = made.init()
    made.crash()
    made.add(producer)
    made.crash()
    assert made.get().partitions == PARTITIONS
    made.end(producer, commit)
    assert len(made.to_mark) == 1
    made.crash()
    assert [each.state.is_prepared for each in made.to_mark] == [True]
    made.mark()
    made.crash()
    assert made.to_mark == []
    assert made.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert made.end(producer, commit) == producer
    made.add(producer)


def test_markers_wait_for_commit_of_decision() -> None:
    made, producer = make("Ongoing")
    made.bench.log.replicated = False
    replies: list[object] = []
    made.bench.runtime.write(0, lambda shard: shard.end(ID, producer, True, 0, lambda: 1), replies.append)
    assert (made.state(), made.to_mark, replies) == ("PrepareCommit", [], [])
    made.bench.log.commit()
    assert len(made.to_mark) == len(replies) == 1


def test_decision_with_late_commit_is_kept() -> None:
    made, producer = make("Ongoing")
    made.bench.log.replicated = False
    replies: list[object] = []
    made.bench.runtime.write(0, lambda shard: shard.end(ID, producer, True, 0, lambda: 1), replies.append)
    made.bench.log.commit(CoordinatorNotAvailableError("too late"))
    assert made.to_mark == []
    made.bench.pass_time(1000)
    made.bench.log.commit()
    assert len(made.to_mark) == 1


def test_unwritten_decision_has_no_effect() -> None:
    made, producer = make("Ongoing")
    made.bench.log.failure = CoordinatorNotAvailableError("no disk")
    assert outcome_of(made.end, producer) == "COORDINATOR_NOT_AVAILABLE"
    assert made.state() == "Ongoing"
    made.bench.log.failure = None
    made.bench.pass_time(1000)
    assert made.to_mark == []
    made.end(producer, commit=False)
    made.mark()
    assert made.marked == [(1000, 0, False)]


def test_late_markers_complete_nothing_else() -> None:
    made, producer = make("PrepareCommit")
    (stale,) = made.to_mark
    made.mark()
    made.add(producer)
    made.end(producer, False)
    made.to_mark.insert(0, stale)
    made.mark()
    assert made.state() == "CompleteAbort"


def test_a_new_leader_sends_markers_when_the_decision_is_committed() -> None:
    """Its log may have the decision above the high watermark: the next leader may not have it, and abort."""
    coordinator = Coordinator()
    producer = coordinator.init()
    assert producer is not None
    coordinator.add(producer)
    log = coordinator.bench.log
    log.replicated = False
    answers: list[CoordinatorResponse[ProducerInfo]] = []
    coordinator.bench.runtime.write(0, lambda shard: shard.end(ID, producer, True, 0, lambda: 1), answers.append)
    coordinator.crash()
    assert coordinator.state() == "PrepareCommit"
    assert coordinator.to_mark == []
    log.commit(CoordinatorNotAvailableError("too slow"))
    assert coordinator.to_mark == []
    coordinator.bench.pass_time(1_000)
    assert coordinator.to_mark == []
    log.commit()
    assert [prepared.transactional_id for prepared in coordinator.to_mark] == [ID]
    assert [type(answer.error) for answer in answers] == [NotCoordinatorError]


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_cannot_end_before_the_markers_of_the_previous_one(state: str, commit: bool) -> None:
    """Found by the simulation: slow markers made the end of the next transaction fail for good."""
    coordinator, producer = make(state, NEW)
    assert outcome_of(coordinator.end, producer, commit, NEW) == BUSY
    coordinator.mark()
    assert outcome_of(coordinator.end, producer, False, NEW) == OK
