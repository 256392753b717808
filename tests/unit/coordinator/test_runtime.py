"""The coordinator runtime with a shard of counters: writes, commits, loading, timers, transactions."""

import asyncio
from collections.abc import Callable

import pytest
from tests.support.coordinator.runtime import Bench

from headrace.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    UnknownError,
)
from headrace.coordinator.result import CoordinatorRecord, CoordinatorResponse, CoordinatorResult, ProducerInfo
from headrace.coordinator.shard import ShardContext
from headrace.records import BatchBuilder, Record


class Counters:
    """A shard of named counters; a record contains the new value."""

    def __init__(self, context: ShardContext):
        self.context = context
        self.values: dict[bytes, int] = {}
        self.pending: dict[ProducerInfo, dict[bytes, int]] = {}
        self.loaded = self.unloaded = 0

    def replay(self, record: Record, producer: ProducerInfo | None) -> None:
        assert record.key is not None
        if record.key == b"poison":
            raise ValueError("a bug")
        if record.value is None:
            self.values.pop(record.key, None)
        elif producer is not None:
            self.pending.setdefault(producer, {})[record.key] = int(record.value)
        else:
            self.values[record.key] = int(record.value)

    def replay_end(self, producer: ProducerInfo, committed: bool) -> None:
        changes = self.pending.pop(producer, {})
        if committed:
            self.values.update(changes)

    def on_loaded(self) -> None:
        self.loaded += 1

    def on_unloaded(self) -> None:
        self.unloaded += 1


def add(key: bytes, amount: int = 1) -> Callable[[Counters], CoordinatorResult[int]]:
    return lambda shard: CoordinatorResult(
        [CoordinatorRecord(key, b"%d" % (shard.values.get(key, 0) + amount))], shard.values.get(key, 0) + amount
    )


class Answers(list):  # type: ignore[type-arg]
    """Collects responses: the value, or the class of the error."""

    def __call__(self, response: CoordinatorResponse[int]) -> None:
        self.append(type(response.error) if response.error is not None else response.result())


@pytest.fixture
def bench() -> Bench[Counters]:
    return Bench(Counters)


@pytest.fixture
def answers() -> Answers:
    return Answers()


def test_response_follows_replay_of_records(bench: Bench[Counters], answers: Answers) -> None:
    bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.write(0, add(b"a"), answers)
    assert answers == [1, 2]
    assert bench.shard.values == {b"a": 2}
    assert bench.log.end_offset() == 2


def test_reload_restores_state(bench: Bench[Counters], answers: Answers) -> None:
    for key in (b"a", b"b", b"a"):
        bench.runtime.write(0, add(key), answers)
    before = bench.shard
    bench.reload()
    assert bench.shard is not before
    assert bench.shard.values == before.values == {b"a": 2, b"b": 1}
    assert before.unloaded == 1
    assert bench.shard.loaded == 1


def test_failed_append_changes_nothing(bench: Bench[Counters], answers: Answers) -> None:
    told: list[KafkaError | None] = []
    bench.log.failure = NotEnoughReplicasError("too few")
    bench.runtime.write(
        0, lambda _: CoordinatorResult([CoordinatorRecord(b"a", b"1")], 1, on_completion=told.append), answers
    )
    assert answers == [NotEnoughReplicasError]
    assert told == [bench.log.failure]
    assert bench.shard.values == {}


def test_undo_runs_only_if_nothing_was_written(bench: Bench[Counters], answers: Answers) -> None:
    told: list[object] = []
    result = CoordinatorResult(
        [CoordinatorRecord(b"a", b"1")], 1, on_completion=told.append, undo=lambda: told.append("undone")
    )
    bench.log.failure = NotEnoughReplicasError("too few")
    bench.runtime.write(0, lambda _: result, answers)
    assert told == ["undone", bench.log.failure]
    bench.log.failure, bench.log.replicated = None, False
    bench.runtime.write(0, lambda _: result, answers)
    late = RequestTimedOutError("too slow")
    bench.log.commit(late)
    assert told[2:] == [late]
    assert bench.shard.values == {b"a": 1}


def test_operation_error_goes_to_caller(bench: Bench[Counters], answers: Answers) -> None:
    def refuse(_: Counters) -> CoordinatorResult[int]:
        raise InvalidRequestError("no")

    def break_down(_: Counters) -> CoordinatorResult[int]:
        raise ZeroDivisionError

    bench.runtime.write(0, refuse, answers)
    bench.runtime.write(0, break_down, answers)
    assert answers == [InvalidRequestError, UnknownError]
    assert bench.log.end_offset() == 0


def test_responses_wait_for_commit(bench: Bench[Counters], answers: Answers) -> None:
    bench.log.replicated = False
    bench.runtime.write(0, add(b"a"), answers)
    assert bench.shard.values == {b"a": 1}  # the next operation sees it
    bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.read(0, lambda shard: shard.values[b"a"] * 100, answers)
    assert answers == []
    bench.log.commit()
    assert answers == [1, 2, 200]
    bench.runtime.read(0, lambda shard: shard.values[b"a"] * 100, answers)
    assert answers[-1] == 200


def test_commit_timeout_fails_the_operation(bench: Bench[Counters], answers: Answers) -> None:
    bench.log.replicated = False
    bench.runtime.write(0, add(b"a"), answers)
    bench.log.commit(RequestTimedOutError("too slow"))
    assert answers == [RequestTimedOutError]


def test_unload_fails_pending_operations(bench: Bench[Counters], answers: Answers) -> None:
    bench.log.replicated = False
    bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.unload(0)
    assert answers == [NotCoordinatorError]
    bench.log.commit()
    assert answers == [NotCoordinatorError]
    bench.runtime.write(0, add(b"a"), answers)
    assert answers == [NotCoordinatorError] * 2


def test_load_in_slices_reports_load_in_progress(answers: Answers) -> None:
    bench = Bench(Counters, load_bytes=1)
    for _ in range(5):
        bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.unload(0)
    bench.runtime.load(0, 9, bench.log)
    assert bench.runtime.is_loading()
    while bench.steps:
        answers.clear()
        bench.runtime.write(0, add(b"a"), answers)
        assert answers == [CoordinatorLoadInProgressError]
        bench.steps.step()
    assert bench.shard.values == {b"a": 5}
    assert not bench.runtime.is_loading()
    assert bench.runtime.leader_epoch(0) == 9


def test_partitions_load_one_after_the_other(answers: Answers) -> None:
    """After a failover a broker loads many partitions; each step of the loop loads one slice."""
    bench = Bench(Counters, load_bytes=1)
    for _ in range(3):
        bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.unload(0)
    for partition in (0, 1, 2):
        bench.runtime.load(partition, 9, bench.log)
    bench.runtime.unload(1)
    steps = 0
    while bench.steps:
        assert len(bench.steps) == 1
        bench.steps.step()
        steps += 1
    assert steps == 2 + 1 + 3, "the first slice was loaded at once, and partition 1 was dropped"
    assert [bench.runtime.shard(partition).values for partition in (0, 2)] == [{b"a": 3}] * 2


def test_unload_during_load(bench: Bench[Counters], answers: Answers) -> None:
    bench = Bench(Counters, load_bytes=1)
    for _ in range(3):
        bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.unload(0)
    bench.runtime.load(0, 5, bench.log)
    bench.runtime.unload(0, 4)  # an older leader epoch
    assert 0 in bench.runtime
    bench.runtime.unload(0, 5)
    bench.steps.run()
    assert 0 not in bench.runtime
    with pytest.raises(NotCoordinatorError):
        bench.runtime.shard(0)


def test_leader_epoch_of_the_same_leader_does_not_reload(bench: Bench[Counters]) -> None:
    before = bench.shard
    for epoch in (bench.epoch, bench.epoch - 1, bench.epoch + 1):
        bench.runtime.load(0, epoch, bench.log)
        assert bench.shard is before
    bench.runtime.unload(0, bench.epoch)
    assert bench.shard is before, "this epoch is over"
    bench.runtime.unload(0, bench.epoch + 1)
    assert 0 not in bench.runtime


def test_new_leader_epoch_loads_a_failed_partition_again(bench: Bench[Counters]) -> None:
    bench.log.append(_batch(b"poison"))
    bench.reload()
    with pytest.raises(CoordinatorNotAvailableError):
        bench.runtime.shard(0)
    bench.log.batches.pop()
    bench.runtime.load(0, bench.epoch + 1, bench.log)
    bench.steps.run()
    assert bench.runtime.shard(0) is not None


def test_failed_load(bench: Bench[Counters]) -> None:
    bench.log.append(_batch(b"poison"))
    bench.reload()
    with pytest.raises(CoordinatorNotAvailableError):
        bench.runtime.shard(0)


def test_failed_replay_after_append_reloads_from_log(bench: Bench[Counters], answers: Answers) -> None:
    bench.runtime.write(0, add(b"a"), answers)
    bench.runtime.write(0, lambda _: CoordinatorResult([CoordinatorRecord(b"poison", b"1")], 1), answers)
    assert answers == [1, UnknownError]


def test_timers_run_operations_and_are_cancelled_on_unload(bench: Bench[Counters]) -> None:
    shard = bench.shard
    shard.context.schedule("tick", 100, lambda: CoordinatorResult([CoordinatorRecord(b"ticks", b"1")], None))
    shard.context.schedule("tick", 200, lambda: CoordinatorResult([CoordinatorRecord(b"ticks", b"2")], None))
    bench.pass_time(199)
    assert shard.values == {}
    bench.pass_time(1)
    assert shard.values == {b"ticks": 2}
    assert shard.context.scheduled() == set()
    shard.context.schedule("tick", 100, lambda: CoordinatorResult([CoordinatorRecord(b"ticks", b"3")], None))
    bench.reload()
    bench.pass_time(1000)
    assert bench.shard.values == {b"ticks": 2}


@pytest.mark.parametrize("committed", [True, False])
def test_transactional_records_take_effect_with_their_marker(
    bench: Bench[Counters], answers: Answers, committed: bool
) -> None:
    producer = ProducerInfo(7, 0)
    bench.runtime.write(0, lambda _: CoordinatorResult([CoordinatorRecord(b"a", b"5")], 0, producer=producer), answers)
    assert bench.shard.values == {}
    bench.reload()
    assert bench.shard.pending == {producer: {b"a": 5}}
    bench.runtime.end_transaction(0, producer, committed, 3, answers)
    assert answers == [0, None]
    expected = {b"a": 5} if committed else {}
    assert bench.shard.values == expected
    bench.reload()
    assert bench.shard.values == expected
    assert bench.shard.pending == {}


def test_call_awaits_response(bench: Bench[Counters]) -> None:
    async def main() -> None:
        assert await bench.runtime.call(0, add(b"a")) == 1
        bench.log.failure = NotEnoughReplicasError("too few")
        with pytest.raises(NotEnoughReplicasError):
            await bench.runtime.call(0, add(b"a"))

    asyncio.run(main())


def test_close_unloads_all_shards(bench: Bench[Counters]) -> None:
    shard = bench.shard
    bench.runtime.close()
    assert shard.unloaded == 1
    assert bench.runtime.partitions() == []


def _batch(key: bytes) -> bytearray:
    builder = BatchBuilder()
    builder.append(key, b"1", 0)
    return builder.build()
