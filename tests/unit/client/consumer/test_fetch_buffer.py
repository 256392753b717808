"""The fetch buffer: turns of partitions, stale fetches, and the signal that the buffer is drained."""

from headrace.client.consumer.fetch_buffer import CompletedFetch, FetchBuffer
from headrace.client.consumer.partition_state import COMMITTED_OFFSET, PartitionState
from headrace.common.types import TopicPartition
from headrace.records import FetchedRecords, encode_rows


def state_of(index):
    state = PartitionState(TopicPartition("t", index))
    state.query_offset(COMMITTED_OFFSET)
    state.seek(0)
    return state


def entry_of(state, count=1):
    raw = bytes(encode_rows([(None, b"v", 1, None)] * count))
    return CompletedFetch(state, FetchedRecords("t", state.tp.partition, raw, 0))


def test_partitions_take_turns():
    buffer = FetchBuffer()
    first, second = state_of(0), state_of(1)
    entries = [entry_of(first), entry_of(first), entry_of(second)]
    for entry in entries:
        buffer.put(entry)
    order = []
    while (entry := buffer.next()) is not None:
        order.append(entries.index(entry))
        buffer.done(entry)
    assert order == [0, 2, 1]
    assert buffer.size_in_bytes == 0


def test_fetch_stays_until_done():
    buffer = FetchBuffer()
    entry = entry_of(state_of(0))
    buffer.put(entry)
    assert buffer.next() is entry
    assert buffer.next() is entry
    buffer.done(entry)
    buffer.done(entry)
    assert buffer.next() is None


def test_drops_stale_fetches():
    buffer = FetchBuffer()
    state = state_of(0)
    buffer.put(entry_of(state))
    buffer.put(entry_of(state))
    assert buffer.has(state.tp)
    state.seek(3)
    assert not buffer.has(state.tp)
    assert buffer.buffered_bytes(state.tp) == 0
    fresh = entry_of(state)
    buffer.put(fresh)
    assert buffer.next() is fresh
    assert buffer.size_in_bytes == fresh.size


def test_skips_paused_and_inactive_partitions():
    buffer = FetchBuffer()
    first, second = state_of(0), state_of(1)
    buffer.put(entry_of(first))
    buffer.put(entry_of(second))
    first.paused = True
    assert buffer.next().state is second
    second.paused = True
    assert buffer.next() is None
    first.paused = False
    assert buffer.next().state is first
    first.begin_stop()
    assert buffer.next() is None


def test_drop_stale_frees_memory():
    buffer = FetchBuffer()
    first, second = state_of(0), state_of(1)
    for state in (first, first, second):
        buffer.put(entry_of(state, count=100))
    first.stop()
    buffer.drop_stale()
    assert buffer.size_in_bytes == buffer.buffered_bytes(second.tp) > 0
    assert buffer.next().state is second
    buffer.clear()
    assert (buffer.next(), buffer.size_in_bytes) == (None, 0)


class Told:
    """Counts the calls of `on_drained` of a buffer with one partition per argument."""

    def __init__(self, *counts):
        self.calls = 0
        self.buffer = FetchBuffer()
        self.buffer.on_drained = self._took
        for index, count in enumerate(counts):
            state = state_of(index)
            for _ in range(count):
                entry = entry_of(state)
                self.size = entry.size
                self.buffer.put(entry)

    def _took(self):
        self.calls += 1

    def take(self):
        self.buffer.done(self.buffer.next())
        return self.calls


def test_on_drained_runs_once_after_enough_bytes():
    told = Told(3, 3, 3)
    assert told.take() == 0
    told.buffer.notify_when_drained(2 * told.size)
    assert [told.take() for _ in range(4)] == [0, 1, 1, 1]


def test_on_drained_runs_when_a_partition_runs_low():
    told = Told(2, 9)
    told.buffer.notify_when_drained(100 * told.size)
    assert told.take() == 1
    told = Told(9, 3)
    told.buffer.notify_when_drained(100 * told.size)
    assert [told.take() for _ in range(4)] == [0, 0, 0, 1]


def test_on_drained_runs_when_buffer_is_empty():
    told = Told(1)
    told.buffer.notify_when_drained(0)
    assert told.take() == 1


def test_has_error():
    buffer = FetchBuffer()
    state = state_of(0)
    buffer.put(CompletedFetch(state, error=ValueError("x")))
    assert buffer.has_error(state.tp)
    state.seek(1)
    assert not buffer.has_error(state.tp)
    assert not buffer.has_error(TopicPartition("u", 0))
