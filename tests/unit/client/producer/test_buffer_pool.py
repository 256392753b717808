"""The buffer pool: the four cases of allocation, and the order of waiters."""

import pytest

from headrace.client.producer.buffer_pool import BufferPool, MemoryWaiter
from headrace.common.ids import make_random


class Waiters:
    """Records the order in which waiters are served."""

    def __init__(self, pool: BufferPool):
        self.pool = pool
        self.served: list[str] = []

    def add(self, name: str, size: int) -> MemoryWaiter:
        return self.pool.enqueue(size, lambda: self.served.append(name))


def take(pool: BufferPool, size: int) -> bytearray:
    buffer = pool.take(size)
    assert buffer is not None
    assert len(buffer) == size
    return buffer


def test_reuses_free_buffer_of_usual_size() -> None:
    pool = BufferPool(100, 10)
    first = take(pool, 10)
    assert pool.available_bytes == 90
    pool.give_back(first, 10)
    assert pool.available_bytes == 100
    assert take(pool, 10) is first


def test_does_not_pool_other_sizes() -> None:
    pool = BufferPool(100, 10)
    first = take(pool, 30)
    pool.give_back(first, 30)
    assert take(pool, 30) is not first
    assert pool.available_bytes == 70


def test_drops_free_buffers_for_larger_allocation() -> None:
    pool = BufferPool(100, 10)
    for buffer in [take(pool, 10) for _ in range(10)]:
        pool.give_back(buffer, 10)
    take(pool, 35)  # drops four free buffers
    assert pool.available_bytes == 65
    assert len([pool.take(10) for _ in range(7)]) == 7
    assert pool.available_bytes <= 0 or pool.take(10) is None


def test_waiter_gets_memory_in_pieces() -> None:
    pool = BufferPool(100, 10)
    held = [take(pool, 10) for _ in range(10)]
    waiters = Waiters(pool)
    waiter = waiters.add("large", 25)
    assert pool.is_exhausted
    for buffer in held[:2]:
        pool.give_back(buffer, 10)
    assert waiters.served == []
    assert waiter.granted_bytes == 20
    pool.give_back(held[2], 10)
    assert waiters.served == ["large"]
    assert waiter.buffer is not None
    assert len(waiter.buffer) == 25
    assert pool.available_bytes == 5
    assert not pool.is_exhausted


def test_waiters_are_served_in_order() -> None:
    pool = BufferPool(100, 10)
    held = [take(pool, 10) for _ in range(10)]
    waiters = Waiters(pool)
    waiters.add("large", 50)
    waiters.add("small", 10)
    pool.give_back(held.pop(), 10)
    assert pool.take(1) is None, "a later caller took memory before the waiters"
    assert not pool.take_over(1)
    assert waiters.served == []
    for _ in range(4):
        pool.give_back(held.pop(), 10)
    assert waiters.served == ["large"]
    pool.give_back(held.pop(), 10)
    assert waiters.served == ["large", "small"]


def test_waiter_for_usual_size_gets_returned_buffer() -> None:
    pool = BufferPool(20, 10)
    first, _ = take(pool, 10), take(pool, 10)
    waiters = Waiters(pool)
    waiter = waiters.add("usual", 10)
    pool.give_back(first, 10)
    assert waiter.buffer is first


def test_grants_free_memory_at_once() -> None:
    waiters = Waiters(BufferPool(100, 10))
    assert waiters.add("now", 60).buffer is not None
    assert waiters.served == ["now"]


def test_leaving_waiter_passes_memory_to_next() -> None:
    pool = BufferPool(20, 10)
    first, second = take(pool, 10), take(pool, 10)
    waiters = Waiters(pool)
    impatient = waiters.add("impatient", 20)
    waiters.add("next", 10)
    pool.give_back(first, 10)
    pool.leave(impatient)
    assert waiters.served == ["next"]
    pool.give_back(second, 10)
    assert pool.available_bytes == 10


def test_leaving_after_grant_returns_buffer() -> None:
    pool = BufferPool(20, 10)
    waiter = pool.enqueue(20, lambda: None)
    assert pool.available_bytes == 0
    pool.leave(waiter)
    assert waiter.buffer is None
    assert pool.available_bytes == 20


def test_counts_memory_without_buffer() -> None:
    pool = BufferPool(20, 10)
    assert pool.take_over(15)
    assert not pool.take_over(6)
    waiters = Waiters(pool)
    waiter = pool.enqueue(10, lambda: waiters.served.append("counted"), wants_buffer=False)
    pool.give_back(None, 15)
    assert waiters.served == ["counted"]
    assert waiter.buffer is None
    assert pool.available_bytes == 10


@pytest.mark.parametrize("size", [4, 10])
def test_does_not_reuse_buffer_with_views(size: int) -> None:
    pool = BufferPool(100, 10)
    buffer = take(pool, 10)
    del buffer[size:]
    with memoryview(buffer):
        pool.give_back(buffer, 10)
        assert pool.available_bytes == 100
        assert take(pool, 10) is not buffer


def test_rejects_more_than_total_memory() -> None:
    with pytest.raises(ValueError, match="Cannot allocate 11 bytes"):
        BufferPool(10, 5).enqueue(11, lambda: None)


class TestLargeBuffers:
    def test_exchanges_small_buffer_for_large_one(self) -> None:
        pool = BufferPool(100, 10, 40)
        take(pool, 10)
        large = pool.exchange(10)
        assert large is not None
        assert len(large) == 40
        assert (pool.available_bytes, pool.used_bytes) == (60, 40)

    def test_reuses_large_buffer(self) -> None:
        pool = BufferPool(100, 10, 40)
        take(pool, 10)
        large = pool.exchange(10)
        assert large is not None
        del large[25:]  # as `finish_batch` shortens it
        pool.give_back(large, 40)
        assert (pool.available_bytes, pool.used_bytes) == (100, 0)
        take(pool, 10)
        assert pool.exchange(10) is large
        assert len(large) == 40
        assert pool.available_bytes == 60

    def test_exchange_fails_without_memory_or_with_waiters(self) -> None:
        pool = BufferPool(50, 10, 40)
        for _ in range(2):
            take(pool, 10)
        assert pool.exchange(10) is not None
        assert pool.exchange(10) is None
        assert pool.available_bytes == 0
        pool = BufferPool(100, 10, 40)
        take(pool, 90)
        pool.enqueue(20, lambda: None)
        assert pool.exchange(90) is None
        assert pool.available_bytes == 0

    def test_drops_free_large_buffers(self) -> None:
        pool = BufferPool(100, 10, 40)
        take(pool, 10)
        large = pool.exchange(10)
        pool.give_back(large, 40)
        assert len(take(pool, 90)) == 90
        assert pool.available_bytes == 10
        assert pool.take_over(10)
        assert pool.exchange(10) is None

    def test_waiters_get_memory_of_large_buffers(self) -> None:
        pool = BufferPool(50, 10, 40)
        take(pool, 10)
        large = pool.exchange(10)
        waiters = Waiters(pool)
        waiters.add("first", 30)
        pool.give_back(large, 40)
        assert waiters.served == ["first"]
        assert pool.available_bytes == 20


def test_memory_is_conserved_in_random_operations() -> None:
    for seed in range(20):
        random = make_random(seed)
        pool = BufferPool(1000, 64, 200)
        held: list[tuple[bytearray | None, int]] = []
        waiting: list[MemoryWaiter] = []
        for _ in range(300):
            for waiter in [waiter for waiter in waiting if waiter.is_served]:
                waiting.remove(waiter)
                held.append((waiter.buffer, waiter.size))
            step = random.randrange(5)
            size = random.choice([64, 64, 64, random.randrange(1, 400)])
            if step == 0:
                buffer = pool.take(size)
                if buffer is not None:
                    held.append((buffer, size))
            elif step == 1 and len(waiting) < 5:
                waiting.append(pool.enqueue(size, lambda: None, wants_buffer=random.random() < 0.7))
            elif step == 2 and held:
                pool.give_back(*held.pop(random.randrange(len(held))))
            elif step == 3 and waiting:
                pool.leave(waiting.pop(random.randrange(len(waiting))))
            elif step == 4 and held and held[-1][1] < 200:
                large = pool.exchange(held[-1][1])
                if large is not None:
                    held[-1] = large, 200
            used = sum(size for _, size in held)
            partly = sum(waiter.size if waiter.is_served else waiter.granted_bytes for waiter in waiting)
            assert pool.available_bytes + used + partly == 1000, f"seed {seed}"
            assert not waiting or waiting[0].is_served or pool.available_bytes < waiting[0].size, f"seed {seed}"


def test_keeps_few_spare_buffers() -> None:
    pool = BufferPool(memory_bytes=1000, usual_bytes=100)
    pool.keep(bytearray(1000))
    assert pool.spare == []
    for _ in range(10):
        pool.keep(bytearray(300_000))
    assert [len(buffer) for buffer in pool.spare] == [300_000] * 4


def test_wakes_when_less_memory_is_used() -> None:
    pool = BufferPool(100, 10)
    woken: list[str] = []
    assert pool.when_used_below(0, lambda: woken.append("unused"))
    assert pool.take_over(60)
    assert pool.when_used_below(60, lambda: woken.append("unused"))
    assert not pool.when_used_below(30, lambda: woken.append("30"))
    assert not pool.when_used_below(10, lambda: woken.append("10"))
    pool.give_back(None, 20)
    assert woken == []
    pool.give_back(None, 20)
    assert woken == ["30"]
    pool.give_back(None, 20)
    assert woken == ["30", "10"]
