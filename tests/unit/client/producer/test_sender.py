"""The sender against simulated leaders: its reaction to each kind of response, and order and completeness under
faults."""

from typing import Any

import pytest
from tests.support.client.producer_sim import SimProducer

from headrace.client.errors import KafkaTimeoutError
from headrace.client.producer._batch import FutureRecordMetadata
from headrace.common.errors import (
    CorruptRecordError,
    DuplicateSequenceNumberError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
)
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.protocol.messages.produce import BatchIndexAndErrorMessage
from headrace.records import RecordBatch


def offsets(futures: list[FutureRecordMetadata]) -> list[int]:
    return [future.get(timeout_ms=0).offset for future in futures]


def settle(producer: SimProducer, ms: int = 2000) -> None:
    """Polls and responds until all batches that can complete have completed."""
    for _ in range(ms // 50):
        producer.poll(50)
        for node_id in list(producer.cluster.waiting):
            producer.cluster.respond_to_all(node_id)


def started(**config: Any) -> SimProducer:
    """Returns a producer whose first record is acknowledged, so that several batches may be in flight."""
    producer = SimProducer(**config)
    producer.put(b"first")
    producer.poll()
    producer.cluster.respond()
    return producer


def test_sends_record_and_completes_future() -> None:
    producer = SimProducer()
    future = producer.put(b"one")
    batch = producer.accumulator.topics["t"].queues[0].batches[0]
    producer.poll()
    assert producer.cluster.in_flight() == 1
    assert not future.is_done
    producer.cluster.respond()
    assert future.get(timeout_ms=0).offset == 0
    assert producer.cluster.values() == [b"one"]
    assert producer.buffers.available_bytes == 1_000_000
    assert producer.accumulator.incomplete_count == producer.sender.in_flight_count == 0
    assert batch.data is batch.buffer is None, "the future keeps the records in memory"


@pytest.mark.parametrize("limit", [1, 5])
def test_limits_requests_in_flight(limit: int) -> None:
    producer = started(max_in_flight=limit)
    futures = [producer.put(b"v" * 300) for _ in range(12)]
    producer.poll()
    assert producer.cluster.in_flight() == limit
    while producer.cluster.in_flight():
        producer.cluster.respond()
        producer.poll()
    assert offsets(futures) == list(range(1, 13))
    assert producer.cluster.largest_in_flight == limit


def test_batches_of_one_leader_share_request() -> None:
    producer = SimProducer(partitions=4)
    futures = [producer.put(b"v", partition) for partition in range(4)]
    producer.poll()
    assert producer.cluster.in_flight() == 1
    producer.cluster.respond()
    assert offsets(futures) == [0] * 4


def test_one_request_in_flight_keeps_order_without_idempotence() -> None:
    producer = SimProducer(idempotent=False, max_in_flight=1)
    futures = [producer.put(b"%d" % number + b"v" * 300) for number in range(3)]
    producer.poll()
    assert producer.accumulator.topics["t"].queues[0].is_muted
    producer.cluster.cut()
    producer.poll(10)
    assert producer.cluster.in_flight() == 0, "the retry should wait for the backoff"
    settle(producer)
    assert offsets(futures) == [0, 1, 2]


def test_lost_response_causes_no_duplicate() -> None:
    producer = started()
    futures = [producer.put(b"%d" % number + b"v" * 300) for number in range(5)]
    producer.poll()
    producer.cluster.cut(handled=3)
    settle(producer)
    assert offsets(futures) == [1, 2, 3, 4, 5]
    assert [value[:1] for value in producer.cluster.values()[1:]] == [b"0", b"1", b"2", b"3", b"4"]
    assert {"t"} in producer.metadata.updates


@pytest.mark.parametrize("error", [NotEnoughReplicasError, NotLeaderForPartitionError, CorruptRecordError])
def test_retries_retriable_errors(error: type[KafkaError]) -> None:
    producer = started()
    failures = [error, error]
    producer.cluster.refuse = lambda tp, batch: failures.pop() if failures else None
    futures = [producer.put(b"%d" % number + b"v" * 300) for number in range(4)]
    settle(producer)
    assert offsets(futures) == [1, 2, 3, 4]
    assert producer.sender.retries >= 2
    assert producer.idempotence is not None
    assert producer.idempotence.bumps == 0


def test_fails_after_configured_retries() -> None:
    producer = SimProducer(retries=2)
    producer.cluster.refuse = lambda tp, batch: NotEnoughReplicasError
    future = producer.put(b"v")
    settle(producer)
    assert producer.cluster.sent == 3
    assert isinstance(future.exception, NotEnoughReplicasError)


@pytest.mark.parametrize("leader", [2, 0])
def test_uses_leader_named_in_response(leader: int) -> None:
    producer = SimProducer()
    producer.cluster.leaders[TopicPartition("t", 0)] = leader
    producer.cluster.hint = (leader, 9)
    future = producer.put(b"v")
    producer.poll()
    producer.cluster.respond()
    assert producer.metadata.noted_leaders == [(TopicPartition("t", 0), leader)]
    producer.accumulator.set_leaders("t", [leader])
    producer.poll()
    assert producer.cluster.in_flight(leader) == 1, "a retry at a new leader should not wait"
    producer.cluster.respond(leader)
    assert future.succeeded()


def test_batches_behind_failed_batch_continue() -> None:
    producer = started()
    bad: list[int] = []

    def refuse(tp: TopicPartition, batch: RecordBatch) -> type[KafkaError] | None:
        return InvalidRecordError if b"bad" in bytes(batch.raw) else None

    producer.cluster.refuse = refuse
    values = [b"0", b"1", b"bad", b"3", b"4"]
    futures = [producer.put(value + b"v" * 300) for value in values]
    producer.poll()
    assert producer.cluster.in_flight() == 5
    settle(producer)
    for number, future in enumerate(futures):
        if future.failed():
            bad.append(number)
    assert bad == [2]
    assert isinstance(futures[2].exception, InvalidRecordError)
    assert [value[:1] for value in producer.cluster.values()[1:]] == [b"0", b"1", b"3", b"4"]
    assert producer.idempotence is not None
    assert producer.idempotence.bumps == 1


def test_records_named_in_the_response_fail_with_their_own_errors() -> None:
    """As in Java: several named records are INVALID_RECORD, the others failed only because of them (KIP-467)."""
    producer = SimProducer()
    futures = [producer.put(b"v") for _ in range(4)]
    producer.cluster.refuse = lambda _tp, _batch: InvalidTimestampError
    producer.cluster.record_errors = [
        BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="about the record"),
        BatchIndexAndErrorMessage(batch_index=3),
    ]
    producer.poll()
    producer.cluster.respond()
    errors = [future.exception for future in futures]
    assert [type(error) for error in errors] == [KafkaError, InvalidRecordError, KafkaError, InvalidRecordError]
    assert [str(error) for error in errors[1::2]] == ["about the record", "refused"]
    assert (
        str(errors[0])
        == str(errors[2])
        == ("Failed to append record because it was part of a batch which had one or more invalid records")
    )


def test_single_record_named_in_the_response_fails_with_the_error_of_the_batch() -> None:
    producer = SimProducer()
    futures = [producer.put(b"v") for _ in range(2)]
    producer.cluster.refuse = lambda _tp, _batch: InvalidTimestampError
    producer.cluster.record_errors = [BatchIndexAndErrorMessage(batch_index=1)]
    producer.poll()
    producer.cluster.respond()
    assert [type(future.exception) for future in futures] == [KafkaError, InvalidTimestampError]


def test_authorization_error_fails_at_once() -> None:
    producer = SimProducer()
    producer.cluster.refuse = lambda tp, batch: TopicAuthorizationFailedError
    future = producer.put(b"v")
    producer.poll()
    producer.cluster.respond()
    assert isinstance(future.exception, TopicAuthorizationFailedError)
    assert producer.buffers.available_bytes == 1_000_000


@pytest.mark.parametrize("written", [0, 1, 3])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_batch_after_rejected_retry_is_written(in_flight: int, written: int) -> None:
    """A batch is written but its response is lost, and the retry is rejected. The next batch must not get its sequence
    numbers: the leader would acknowledge it as a duplicate, without writing it."""
    producer = started()
    futures = [producer.put(b"%d" % number + b"v" * 300) for number in range(in_flight)]
    producer.poll()
    assert producer.cluster.in_flight() == in_flight
    producer.cluster.cut(handled=written)
    rejections = [TopicAuthorizationFailedError]
    producer.cluster.refuse = lambda tp, batch: rejections.pop() if rejections else None
    settle(producer)
    assert isinstance(futures[0].exception, TopicAuthorizationFailedError)
    later = [producer.put(b"%d" % number + b"v" * 300) for number in range(in_flight, in_flight + 3)]
    settle(producer)
    values = [value[:1] for value in producer.cluster.values()]
    for number, future in enumerate(futures + later):
        if number > 0:
            assert values[future.get(timeout_ms=0).offset] == b"%d" % number
    assert values == [b"f"] + [b"%d" % number for number in range(0 if written else 1, in_flight + 3)]


def test_rejected_batch_at_leader_without_state_hides_no_record() -> None:
    """A leader that forgot the producer accepts any first sequence number: here that of the batch behind a rejected
    one."""
    producer = started()
    producer.cluster.logs.clear()
    producer.cluster.refuse = lambda tp, batch: InvalidRecordError if b"bad" in bytes(batch.raw) else None
    futures = [producer.put(value + b"v" * 300) for value in (b"bad", b"1")]
    settle(producer)
    futures.append(producer.put(b"2" + b"v" * 300))
    settle(producer)
    assert [future.failed() for future in futures] == [True, False, False]
    assert [value[:1] for value in producer.cluster.values()] == [b"1", b"2"]


def test_expired_retry_needs_epoch_bump() -> None:
    producer = started(delivery_timeout=1.0)
    lost = producer.put(b"lost" + b"v" * 300)
    producer.poll()
    producer.cluster.cut(handled=1)
    producer.accumulator.set_leaders("t", [-1])
    producer.poll(1000)
    assert isinstance(lost.exception, KafkaTimeoutError)
    producer.accumulator.set_leaders("t", [1])
    later = producer.put(b"late" + b"v" * 300)
    settle(producer, 500)
    assert later.get(timeout_ms=0).offset == 2
    assert [value[:4] for value in producer.cluster.values()] == [b"firs", b"lost", b"late"]


@pytest.mark.parametrize("written", [False, True])
def test_split_of_batch_that_may_be_written_duplicates_nothing(written: bool) -> None:
    """The response to a batch is lost. Before the retry, the topic's limit is lowered, so that the batch is split."""
    producer = started(batch_bytes=4000)
    futures = [producer.put(b"%d" % number + b"v" * 300) for number in range(6)]
    producer.poll()
    producer.cluster.cut(handled=1 if written else 0)
    producer.cluster.refuse = lambda tp, batch: MessageSizeTooLargeError if batch.size_in_bytes > 800 else None
    settle(producer)
    futures.append(producer.put(b"6" + b"v" * 300))
    settle(producer)
    assert [value[:1] for value in producer.cluster.values()] == [b"f", b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [future.failed() for future in futures] == [written] * 6 + [False]
    assert futures[6].get(timeout_ms=0).offset == 7


def test_parts_behind_too_large_record_are_retried() -> None:
    """The parts of a retried batch are no longer doubtful when the leader has accepted one of them."""
    producer = started(batch_bytes=4000)
    futures = [producer.put(value) for value in (b"small", b"v" * 600, b"small")]
    producer.poll()
    producer.cluster.cut()
    producer.cluster.refuse = lambda tp, batch: MessageSizeTooLargeError if batch.size_in_bytes > 500 else None
    settle(producer)
    assert [future.failed() for future in futures] == [False, True, False]
    assert producer.cluster.values() == [b"first", b"small", b"small"]


def test_duplicate_sequence_counts_as_written() -> None:
    producer = SimProducer()
    producer.cluster.refuse = lambda tp, batch: DuplicateSequenceNumberError
    future = producer.put(b"v")
    producer.poll()
    producer.cluster.respond()
    assert future.get(timeout_ms=0).offset == -1


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumberError, UnknownProducerIdError])
def test_lost_sequence_restarts_in_new_epoch(error: type[KafkaError]) -> None:
    producer = SimProducer()
    producer.put(b"first")
    settle(producer)
    producer.cluster.logs.clear()  # as if all replicas had lost the partition
    producer.cluster.refuse = lambda tp, batch: error if batch.producer_epoch == 0 else None
    futures = [producer.put(b"%d" % number + b"v" * 300) for number in range(3)]
    settle(producer)
    assert offsets(futures) == [0, 1, 2]
    assert [value[:1] for value in producer.cluster.values()] == [b"0", b"1", b"2"]
    assert producer.idempotence is not None
    assert producer.idempotence.bumps >= 1


def test_splits_too_large_batch_until_it_fits() -> None:
    producer = SimProducer(batch_bytes=4000)
    producer.cluster.refuse = lambda tp, batch: MessageSizeTooLargeError if batch.size_in_bytes > 500 else None
    futures = [producer.put(b"%02d" % number + b"v" * 100) for number in range(30)]
    settle(producer)
    assert offsets(futures) == list(range(30))
    assert [value[:2] for value in producer.cluster.values()] == [b"%02d" % number for number in range(30)]
    assert producer.buffers.available_bytes == 1_000_000
    assert producer.accumulator.incomplete_count == 0


def test_too_large_record_fails() -> None:
    producer = SimProducer(batch_bytes=4000)
    producer.cluster.refuse = lambda tp, batch: MessageSizeTooLargeError if batch.size_in_bytes > 500 else None
    futures = [producer.put(b"small"), producer.put(b"v" * 600), producer.put(b"small")]
    settle(producer)
    assert [future.failed() for future in futures] == [False, True, False]
    assert isinstance(futures[1].exception, MessageSizeTooLargeError)
    assert producer.cluster.values() == [b"small", b"small"]


def test_unsent_batch_expires() -> None:
    producer = SimProducer(delivery_timeout=1.0)
    producer.accumulator.set_leaders("t", [-1])
    future = producer.put(b"v")
    at = producer.poll()
    assert producer.clock.monotonic() < at <= producer.clock.monotonic() + 1.0
    producer.poll(999)
    assert not future.is_done
    producer.poll(1)
    assert isinstance(future.exception, KafkaTimeoutError)
    assert producer.buffers.available_bytes == 1_000_000
    producer.accumulator.set_leaders("t", [1])
    later = producer.put(b"later")
    settle(producer)
    assert later.succeeded()
    assert producer.idempotence is not None
    assert producer.idempotence.bumps == 0, "a batch that was never sent needs no epoch bump"


def test_batch_in_flight_expires_and_releases_memory_with_response() -> None:
    producer = SimProducer(delivery_timeout=1.0)
    future = producer.put(b"lost")
    producer.poll()
    reply = producer.cluster.handle()
    producer.poll(500)
    later = producer.put(b"later")
    producer.poll(500)
    assert isinstance(future.exception, KafkaTimeoutError)
    assert producer.buffers.available_bytes == 1_000_000 - 2 * 450
    producer.cluster.waiting[1].popleft().on_response(reply, None)
    settle(producer, 500)
    assert producer.buffers.available_bytes == 1_000_000
    assert later.succeeded()
    assert producer.cluster.values() == [b"lost", b"later"]
    assert producer.idempotence is not None
    assert producer.idempotence.bumps == 1, "the first batch may or may not have been written"


def test_acks_0_completes_without_response() -> None:
    producer = SimProducer(idempotent=False, acks=0)
    future = producer.put(b"v")
    producer.poll()
    producer.cluster.waiting[1].popleft().on_response(None, None)
    assert future.get(timeout_ms=0).offset == -1


def test_retries_partition_missing_in_response() -> None:
    producer = SimProducer(partitions=2)
    futures = [producer.put(b"a", 0), producer.put(b"b", 1)]
    producer.poll()
    reply = producer.cluster.handle()
    del reply.responses[0].partition_responses[0]
    producer.cluster.waiting[1].popleft().on_response(reply, None)
    assert [future.is_done for future in futures] == [False, True]
    settle(producer)
    assert futures[0].get(timeout_ms=0).offset == 0


def test_detects_slow_leaders() -> None:
    producer = SimProducer(partitions=2, availability_timeout=0.5)
    producer.accumulator.set_leaders("t", [1, 2])
    producer.cluster.connect = lambda node_id: producer.cluster.ready.add(1)  # type: ignore[method-assign]
    producer.put(b"v", 1)
    producer.poll()
    assert producer.accumulator.slow_leaders == frozenset()
    producer.poll(600)
    assert producer.accumulator.slow_leaders == {2}
    producer.cluster.ready.add(2)
    producer.poll(10)
    assert producer.accumulator.slow_leaders == frozenset()


def test_detects_leader_that_does_not_respond() -> None:
    producer = started(availability_timeout=0.5, max_in_flight=1)
    futures = [producer.put(b"v" * 300) for _ in range(2)]
    producer.poll()
    producer.poll(400)
    assert producer.accumulator.slow_leaders == frozenset()
    producer.poll(200)
    assert producer.accumulator.slow_leaders == {1}
    settle(producer)
    assert offsets(futures) == [1, 2]
    assert producer.accumulator.slow_leaders == frozenset()


@pytest.mark.parametrize("seed", range(60))
def test_random_faults_keep_every_record_once_and_in_order(seed: int) -> None:
    """Injects lost requests and responses, retriable errors and leader changes. In the end all futures are
    acknowledged, each partition has its records in order, and each future has the right offset."""
    random = make_random(seed)
    producer = SimProducer(
        partitions=3,
        batch_bytes=random.choice([200, 450, 2000]),
        linger=random.choice([0.0, 0.02]),
        max_in_flight=random.choice([1, 2, 5]),
        random=random,
    )
    cluster = producer.cluster
    sent: dict[int, list[tuple[bytes, FutureRecordMetadata]]] = {0: [], 1: [], 2: []}
    calm = False

    def refuse(tp: TopicPartition, batch: RecordBatch) -> type[KafkaError] | None:
        if calm or random.random() > 0.15:
            return MessageSizeTooLargeError if batch.size_in_bytes > 1000 and batch.count > 1 else None
        return random.choice([NotEnoughReplicasError, NotLeaderForPartitionError, CorruptRecordError])

    cluster.refuse = refuse
    for step in range(400):
        for _ in range(random.randrange(4)):
            partition = random.randrange(3)
            value = b"%d-%d-" % (partition, len(sent[partition])) + b"x" * random.randrange(60)
            sent[partition].append((value, producer.put(value, partition)))
        event = random.random()
        node_id = random.choice([1, 2])
        if event < 0.5 and cluster.in_flight(node_id):
            cluster.respond(node_id)
        elif event < 0.58:
            cluster.cut(node_id, handled=random.randrange(4))
        elif event < 0.63:
            leaders = [random.choice([1, 2]) for _ in range(3)]
            for partition, leader in enumerate(leaders):
                cluster.leaders[TopicPartition("t", partition)] = leader
            if random.random() < 0.7:
                producer.accumulator.set_leaders("t", leaders)
        elif event < 0.66:
            producer.accumulator.set_leaders("t", [cluster.leaders.get(TopicPartition("t", n), 1) for n in range(3)])
        producer.poll(random.choice([0, 1, 10, 100]))
        assert step < 400
    calm = True
    producer.accumulator.set_leaders("t", [cluster.leaders.get(TopicPartition("t", n), 1) for n in range(3)])
    settle(producer, 10_000)
    assert producer.idempotence is not None
    for partition, records in sent.items():
        log = cluster.values("t", partition)
        assert log == [value for value, _ in records], f"seed {seed}"
        assert [future.get(timeout_ms=0).offset for _, future in records] == list(range(len(records))), f"seed {seed}"
    assert producer.buffers.available_bytes == 1_000_000
    assert producer.idempotence.bumps == 0


@pytest.mark.parametrize("seed", range(30))
def test_futures_are_correct_after_delivery_timeouts_and_rejections(seed: int) -> None:
    """With a short delivery timeout and non-retriable errors, no acknowledged record is missing, duplicated or out of
    order."""
    random = make_random(seed)
    producer = SimProducer(batch_bytes=250, delivery_timeout=1.0, random=random)
    cluster = producer.cluster
    cluster.refuse = lambda tp, batch: TopicAuthorizationFailedError if random.random() < 0.05 else None
    if seed % 2:
        assert producer.idempotence is not None
        producer.idempotence.sequences.of(TopicPartition("t", 0)).next = 2**31 - 20  # the sequence numbers wrap around
    sent: list[tuple[bytes, FutureRecordMetadata]] = []
    for _ in range(300):
        if random.random() < 0.7:
            value = b"%d" % len(sent)
            sent.append((value, producer.put(value)))
        event = random.random()
        if event < 0.35 and cluster.in_flight():
            cluster.respond()
        elif event < 0.45:
            cluster.cut(handled=random.randrange(6))
        elif event < 0.50:
            producer.accumulator.set_leaders("t", [random.choice([1, -1])])
        producer.poll(random.choice([0, 10, 50, 200]))
    producer.accumulator.set_leaders("t", [1])
    cluster.refuse = lambda tp, batch: None
    settle(producer, 5000)
    log = cluster.values()
    assert all(future.is_done for _, future in sent)
    for value, future in sent:
        if future.succeeded():
            offset = future.get(timeout_ms=0).offset
            assert log[offset] == value, f"seed {seed}"
            assert log.count(value) == 1, f"seed {seed}: {value!r} is duplicated"
    assert log == sorted(log, key=int), f"seed {seed}: out of order"
    assert len(set(log)) == len(log), f"seed {seed}: duplicates"
    assert producer.buffers.available_bytes == 1_000_000
