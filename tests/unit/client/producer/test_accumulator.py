"""The accumulator: which batches are due and which go into a request."""

import itertools

import pytest
from tests.support.client.producer_sim import SimProducer

from headrace.client.errors import IllegalStateError
from headrace.client.producer._batch import ProducerBatch
from headrace.client.producer.accumulator import NEVER
from headrace.common.ids import make_random
from headrace.common.types import TopicPartition
from headrace.records import RecordBatch, decode_rows

RECORD = b"v" * 100


def drained(producer: SimProducer, node_id: int = 1) -> list[tuple[int, int]]:
    """Drains one request. Returns the partition and the record count of each batch."""
    now = producer.clock.monotonic()
    ready = producer.accumulator.ready(now)
    batches = producer.accumulator.drain(node_id, ready.by_leader.get(node_id, []), now)
    return [(batch.tp.partition, len(batch)) for batch in batches]


def test_batch_waits_for_linger() -> None:
    producer = SimProducer(linger=0.05)
    producer.put(RECORD)
    ready = producer.accumulator.ready(producer.clock.monotonic())
    assert ready.by_leader == {}
    assert ready.next_check == pytest.approx(producer.clock.monotonic() + 0.05)
    producer.clock.advance(50)
    assert drained(producer) == [(0, 1)]


def test_full_batch_is_due_before_linger() -> None:
    producer = SimProducer(linger=1.0)
    for _ in range(4):
        producer.put(RECORD)
    assert drained(producer) == [(0, 3)]
    assert drained(producer) == [], "the open batch is not due"
    assert producer.accumulator.queued_batches() == {producer.accumulator.topics["t"].queues[0].tp: 1}


def test_drains_one_batch_per_partition() -> None:
    producer = SimProducer(idempotent=False)
    for _ in range(8):
        producer.put(RECORD)
    assert [drained(producer) for _ in range(4)] == [[(0, 3)], [(0, 3)], [(0, 2)], []]


def test_batch_grows_up_to_batch_size() -> None:
    producer = SimProducer(batch_bytes=2000, first_bytes=200, linger=1.0)
    for _ in range(10):
        producer.put(b"v" * 80)
    assert producer.accumulator.queued_batches() == {producer.accumulator.topics["t"].queues[0].tp: 1}
    assert producer.buffers.available_bytes == 1_000_000 - 1600
    while len(producer.accumulator.topics["t"].queues[0].batches) == 1:
        producer.put(b"v" * 80)
    first = producer.accumulator.topics["t"].queues[0].batches[0]
    assert first.capacity == 2000
    assert 1800 < first.size_in_bytes <= 2000


def test_closes_batch_that_cannot_grow() -> None:
    producer = SimProducer(batch_bytes=2000, first_bytes=200, linger=1.0, memory_bytes=500)
    while len(producer.accumulator.topics["t"].queues[0].batches) < 1 or producer.buffers.available_bytes > 100:
        producer.put(b"v" * 80)
    assert producer.accumulator.topics["t"].queues[0].batches[0].capacity == 400
    while (future := producer.send("t", b"v" * 80, partition=0)) is not None:
        assert not future.is_done
    assert producer.accumulator.topics["t"].queues[0].batches[0].is_closed


def test_busy_batch_gets_large_buffer_that_is_reused() -> None:
    producer = SimProducer(batch_bytes=500_000, first_bytes=16_384, linger=1.0)
    producer.buffers.large_bytes = 500_000
    queue = producer.accumulator.topics["t"].queues[0]

    def fill() -> tuple[list[int], ProducerBatch]:
        capacities: list[int] = []
        producer.put(b"v" * 1000)
        batch = queue.batches[0]
        while not batch.is_closed:
            if batch.capacity not in capacities:
                capacities.append(batch.capacity)
                assert producer.buffers.used_bytes == batch.capacity
            producer.put(b"v" * 1000)
        return capacities, batch

    capacities, batch = fill()
    assert capacities == [16_384, 32_768, 65_536, 131_072, 500_000]
    assert len(batch) > 480
    assert [record.value for record in decode_rows(RecordBatch(batch.build()).records())] == [b"v" * 1000] * len(batch)
    large = batch.buffer
    for each in (batch, queue.batches[1]):
        producer.accumulator.finished(each)
    queue.batches.clear()
    queue.open_batch = None
    assert producer.buffers.used_bytes == 0
    _, again = fill()
    assert again.buffer is large


def test_requests_respect_max_request_size_and_no_partition_starves() -> None:
    producer = SimProducer(partitions=5, max_request_bytes=800, idempotent=False)
    for partition in range(5):
        for _ in range(9):
            producer.put(RECORD, partition)
    seen: list[int] = []
    for _ in range(5):
        batches = drained(producer)
        assert len(batches) == 2
        seen += [partition for partition, _ in batches]
    assert set(seen[:5]) == set(range(5)), f"a partition was drained twice before another one: {seen}"


def test_batch_larger_than_max_request_size_is_sent_alone() -> None:
    producer = SimProducer(partitions=2, max_request_bytes=50)
    producer.put(RECORD, 0)
    producer.put(RECORD, 1)
    assert drained(producer) == [(0, 1)]
    assert drained(producer) == [(1, 1)]


def test_reports_topics_without_leader() -> None:
    producer = SimProducer(partitions=2)
    producer.accumulator.set_leaders("t", [-1, 1])
    producer.put(RECORD, 0)
    producer.put(RECORD, 1)
    ready = producer.accumulator.ready(producer.clock.monotonic())
    assert ready.leaderless == {"t"}
    assert drained(producer) == [(1, 1)]
    producer.accumulator.set_leaders("t", [2, 1])
    assert drained(producer) == []
    assert drained(producer, 2) == [(0, 1)]


def test_topic_gets_more_partitions() -> None:
    producer = SimProducer(partitions=1)
    producer.put(RECORD, 0)
    producer.accumulator.set_leaders("t", [1, 1, 1])
    producer.put(RECORD, 2)
    assert drained(producer) == [(0, 1), (2, 1)]


def test_retried_batch_goes_first_after_backoff() -> None:
    producer = SimProducer(idempotent=False)
    producer.put(b"first")
    now = producer.clock.monotonic()
    (batch,) = producer.accumulator.drain(1, producer.accumulator.ready(now).by_leader[1], now)
    producer.put(b"second")
    producer.accumulator.requeue(batch, now)
    assert drained(producer) == []
    assert now < producer.accumulator.ready(now).next_check <= now + 0.12
    producer.clock.advance(121)
    assert producer.accumulator.topics["t"].queues[0].batches[0] is batch
    assert drained(producer) == [(0, 1)]


@pytest.mark.parametrize("start", [0, 2**31 - 1, 2**31 - 2, 2**31 - 5])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_retried_batches_keep_their_sequence(start: int, order: tuple[int, ...]) -> None:
    """Also where sequence numbers wrap around, and before batches without a sequence number."""
    producer = SimProducer()
    assert producer.idempotence is not None
    sequences = producer.idempotence.sequences.of(TopicPartition("t", 0))
    sequences.next, sequences.last_acked = start, (start - 1) & 0x7FFFFFFF
    accumulator = producer.accumulator
    now = producer.clock.monotonic()
    sent: list[ProducerBatch] = []
    for number in range(4):
        producer.put(b"%d" % number + b"v" * 300)
        sent += accumulator.drain(1, accumulator.ready(now).by_leader[1], now)
    producer.put(b"new")
    for index in order:
        accumulator.requeue(sent[index], now)
    queued = list(accumulator.topics["t"].queues[0].batches)
    assert queued[:4] == sent
    assert [batch.base_sequence for batch in sent] == [(start + number) & 0x7FFFFFFF for number in range(4)]
    assert not queued[4].has_sequence


def test_retries_at_new_leader_without_backoff() -> None:
    producer = SimProducer(idempotent=False)
    producer.put(b"first")
    now = producer.clock.monotonic()
    (batch,) = producer.accumulator.drain(1, producer.accumulator.ready(now).by_leader[1], now)
    producer.accumulator.requeue(batch, now)
    producer.accumulator.set_leaders("t", [2])
    assert drained(producer, 2) == [(0, 1)]


def test_all_batches_are_due_when_memory_is_exhausted() -> None:
    producer = SimProducer(linger=60.0, memory_bytes=1350, partitions=3)
    for partition in range(3):
        producer.put(RECORD, partition)
    assert drained(producer) == []
    assert producer.send("t", b"v" * 300, partition=0) is None, "memory should be exhausted"
    producer.buffers.enqueue(450, lambda: None)
    assert len(drained(producer)) == 3


def test_flush_sends_and_waits_for_existing_batches_only() -> None:
    producer = SimProducer(linger=60.0)
    done: list[bool] = []
    assert producer.accumulator.flush(lambda: done.append(True)) is None
    first = producer.put(RECORD)
    assert producer.accumulator.flush(lambda: done.append(True)) is not None
    producer.poll()
    second = producer.put(RECORD)
    producer.cluster.respond()
    assert done == [True]
    assert first.succeeded()
    assert not second.is_done
    producer.poll()
    assert producer.cluster.in_flight() == 0, "batches are due early although the flush has ended"


def test_flush_waits_for_parts_of_split_batch() -> None:
    producer = SimProducer(batch_bytes=1000, linger=60.0)
    for _ in range(4):
        producer.put(RECORD)
    done: list[bool] = []
    producer.accumulator.flush(lambda: done.append(True))
    now = producer.clock.monotonic()
    (batch,) = producer.accumulator.drain(1, producer.accumulator.ready(now).by_leader[1], now)
    parts = batch.split(300)
    assert producer.idempotence is not None
    producer.idempotence.replace_batch(batch, parts)
    producer.accumulator.replace(batch, parts)
    assert producer.buffers.available_bytes == 1_000_000
    for part in parts:
        assert done == []
        part.complete(0, -1)
        producer.accumulator.finished(part)
    assert done == [True]


def test_append_after_close_raises() -> None:
    producer = SimProducer(linger=60.0)
    producer.put(RECORD)
    producer.accumulator.close(IllegalStateError("closed"))
    assert drained(producer) == [(0, 1)]
    with pytest.raises(IllegalStateError):
        producer.put(RECORD)
    assert producer.buffers.available_bytes == 1_000_000 - 450


def test_append_wakes_sender_only_if_next_check_is_too_late() -> None:
    producer = SimProducer(linger=0.05)
    producer.put(RECORD)
    assert producer.wakes == 1
    producer.poll()
    assert producer.accumulator.next_check < NEVER
    before = producer.wakes
    producer.accumulator.set_leaders("u", [1])
    producer.send("u", RECORD)
    assert producer.wakes == before, "the sender was woken although its timer fires in time"


def test_append_that_fills_batch_wakes_sender_before_linger() -> None:
    producer = SimProducer(linger=60.0)
    producer.put(RECORD)
    producer.poll()
    before = producer.wakes
    for _ in range(2):
        producer.put(RECORD)
    assert producer.wakes == before, "the batch is not full yet"
    producer.put(RECORD)
    assert producer.wakes == before + 1
    assert drained(producer) == [(0, 3)]


def test_sticky_partition_changes_with_each_batch() -> None:
    producer = SimProducer(partitions=4, linger=60.0, random=make_random(3))
    counts = [0, 0, 0, 0]
    for _ in range(200):
        producer.send("t", RECORD)
    for tp, count in producer.accumulator.queued_batches().items():
        counts[tp.partition] = count
    assert all(counts), counts
    full = [batch for queue in producer.accumulator.topics["t"].queues for batch in queue.batches if batch.is_closed]
    assert all(len(batch) == len(full[0]) for batch in full), "a partition was left before its batch was full"


def test_sticky_partitioner_prefers_short_queues() -> None:
    producer = SimProducer(partitions=2, linger=60.0, random=make_random(3), memory_bytes=100_000_000)
    for _ in range(400):
        producer.put(RECORD, 0)
    before = len(producer.accumulator.topics["t"].queues[0].batches)
    for _ in range(200):
        producer.clock.advance(20)
        producer.send("t", RECORD)
    after = len(producer.accumulator.topics["t"].queues[0].batches) - before
    assert after * 4 < len(producer.accumulator.topics["t"].queues[1].batches)


def test_sticky_partitioner_avoids_slow_leaders() -> None:
    producer = SimProducer(partitions=3, linger=60.0)
    producer.accumulator.set_leaders("t", [1, 2, 3])
    producer.accumulator.slow_leaders = frozenset({2})
    for _ in range(100):
        producer.clock.advance(20)
        producer.send("t", RECORD)
    assert len(producer.accumulator.topics["t"].queues[1].batches) <= 1


def test_removes_expired_batches() -> None:
    producer = SimProducer(delivery_timeout=1.0, linger=60.0)
    future = producer.put(RECORD)
    producer.clock.advance(999)
    assert producer.accumulator.expire(producer.clock.monotonic()) == []
    producer.clock.advance(1)
    (batch,) = producer.accumulator.expire(producer.clock.monotonic())
    assert batch.is_closed
    assert producer.accumulator.queued_batches() == {}
    assert not future.is_done


def test_forgets_topic_only_without_incomplete_batches() -> None:
    producer = SimProducer()
    producer.put(RECORD)
    producer.accumulator.forget_topic("t")
    producer.poll()
    producer.accumulator.forget_topic("t")
    assert "t" in producer.accumulator.topics
    producer.cluster.respond()
    producer.accumulator.forget_topic("t")
    assert "t" not in producer.accumulator.topics
    assert producer.send("t", RECORD) is None, "append should need new metadata"
