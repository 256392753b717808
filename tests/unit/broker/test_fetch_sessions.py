"""Fetch sessions: epochs, changes, rotation and eviction."""

import pytest

from headrace.broker.fetch_sessions import MIN_EVICTION_MS, FetchedPartition, FetchSession, FetchSessionCache
from headrace.common.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from headrace.common.ids import Uuid, make_random
from headrace.testing.clock import ManualClock

NO_ID = Uuid(int=0)
AN_ID = Uuid(int=7)


def fetched(partition: int, offset: int = 0, topic: str | None = "t", topic_id: Uuid = NO_ID) -> FetchedPartition:
    return FetchedPartition(topic, topic_id, partition, offset, 1000)


def make_cache(slots: int = 2) -> tuple[FetchSessionCache, ManualClock]:
    clock = ManualClock()
    return FetchSessionCache(slots, clock, make_random(1)), clock


def create(cache: FetchSessionCache, partitions: int = 1, privileged: bool = False) -> FetchSession | None:
    session = cache.create(partitions, privileged, uses_topic_ids=False)
    if session is not None:
        cache.change(session, [fetched(index) for index in range(partitions)], ())
    return session


def must_create(cache: FetchSessionCache, partitions: int = 1, privileged: bool = False) -> FetchSession:
    session = create(cache, partitions, privileged)
    assert session is not None
    return session


def test_refuses_epochs_out_of_order() -> None:
    cache, _ = make_cache()
    session = must_create(cache)
    assert session.id > 0
    assert cache.use(session.id, 1, uses_topic_ids=False) is session
    with pytest.raises(InvalidFetchSessionEpochError, match="expects epoch 2, the request has epoch 1"):
        cache.use(session.id, 1, uses_topic_ids=False)
    with pytest.raises(InvalidFetchSessionEpochError):
        cache.use(session.id, 3, uses_topic_ids=False)
    cache.use(session.id, 2, uses_topic_ids=False)


def test_epoch_wraps_to_1() -> None:
    cache, _ = make_cache()
    session = must_create(cache)
    session.epoch = 2**31 - 1
    cache.use(session.id, 2**31 - 1, uses_topic_ids=False)
    assert session.epoch == 1


def test_unknown_session() -> None:
    cache, _ = make_cache()
    session = must_create(cache)
    cache.remove(session.id)
    with pytest.raises(FetchSessionIdNotFoundError, match=str(session.id)):
        cache.use(session.id, 1, uses_topic_ids=False)


def test_refuses_a_change_between_names_and_ids() -> None:
    cache, _ = make_cache()
    session = must_create(cache)
    with pytest.raises(FetchSessionTopicIdError):
        cache.use(session.id, 1, uses_topic_ids=True)


def test_request_adds_updates_and_forgets_partitions() -> None:
    cache, _ = make_cache()
    session = must_create(cache, 2)
    session.change([fetched(0, offset=5), fetched(9)], [("t", 1), ("t", 77)])
    assert [(one.partition, one.fetch_offset) for one in session.partitions.values()] == [(0, 5), (9, 0)]


def test_distinguishes_partitions_by_id_and_by_name() -> None:
    by_name, by_id = fetched(0), fetched(0, topic=None, topic_id=AN_ID)
    assert by_name.key == ("t", 0)
    assert by_id.key == (AN_ID, 0)


def test_update_keeps_the_sent_offsets() -> None:
    one = fetched(0)
    one.sent_high_watermark = 12
    one.update(fetched(0, offset=3))
    assert (one.fetch_offset, one.sent_high_watermark) == (3, 12)


def test_partition_with_data_moves_to_the_end() -> None:
    session = must_create(make_cache()[0], 4)
    served = [session.partitions[("t", 0)], session.partitions[("t", 2)]]
    session.rotate(served)
    assert [one.partition for one in session.partitions.values()] == [1, 3, 0, 2]


def test_rotation_does_not_restore_forgotten_partitions() -> None:
    session = FetchSession(1, privileged=False, uses_topic_ids=False, now_ms=0)
    session.change([fetched(0), fetched(1)], [])
    served = list(session.partitions.values())
    session.change([], [("t", 0)])
    session.rotate(served)
    assert list(session.partitions) == [("t", 1)]


def test_creates_no_sessions_without_slots() -> None:
    assert create(make_cache(slots=0)[0]) is None


def test_full_cache_creates_no_session() -> None:
    cache, _ = make_cache(slots=2)
    must_create(cache, 1)
    must_create(cache, 1)
    assert create(cache, 100) is None
    assert (len(cache), cache.evictions) == (2, 0)


def test_evicts_the_least_recently_used_session() -> None:
    cache, clock = make_cache(slots=2)
    old, used = must_create(cache, 50), must_create(cache, 50)
    clock.advance(MIN_EVICTION_MS + 1)
    cache.use(used.id, 1, uses_topic_ids=False)
    assert create(cache, 1) is not None
    with pytest.raises(FetchSessionIdNotFoundError):
        cache.use(old.id, 1, uses_topic_ids=False)
    assert cache.evictions == 1


def test_larger_session_evicts_an_old_smaller_one() -> None:
    cache, clock = make_cache(slots=2)
    small, large = must_create(cache, 1), must_create(cache, 10)
    clock.advance(MIN_EVICTION_MS + 1)
    for session in (small, large):
        cache.use(session.id, 1, uses_topic_ids=False)
    assert create(cache, 1) is None
    assert create(cache, 2) is not None
    with pytest.raises(FetchSessionIdNotFoundError):
        cache.use(small.id, 2, uses_topic_ids=False)
    cache.use(large.id, 2, uses_topic_ids=False)


def test_follower_evicts_a_consumer_at_once() -> None:
    cache, _ = make_cache(slots=1)
    must_create(cache, 100)
    assert create(cache, 1, privileged=True) is not None
    assert create(cache, 100) is None


def test_counts_sessions_partitions_and_evictions() -> None:
    cache, _ = make_cache(slots=3)
    must_create(cache, 2)
    must_create(cache, 5)
    assert (len(cache), cache.partitions) == (2, 7)


def test_too_many_partitions_evict_the_largest_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.broker.fetch_sessions.MAX_PARTITIONS", 10)
    cache = FetchSessionCache(5, ManualClock(), make_random(1))
    small, large = create(cache, 4), create(cache, 6)
    assert cache.partitions == 10
    cache.change(small, [fetched(4)], ())
    assert (len(cache), cache.partitions) == (1, 5)
    with pytest.raises(FetchSessionIdNotFoundError):
        cache.use(large.id, 1, uses_topic_ids=False)
    cache.change(large, [fetched(7)], ())
    assert cache.partitions == 5, "an evicted session does not count"
    assert create(cache, 11) is None
    cache.remove(small.id)
    assert cache.partitions == 0
