"""A follower as its leader sees it: when it has caught up."""

import pytest

from headrace.broker.replication.remote_replica import NEVER_MS, UNKNOWN_OFFSET, RemoteReplica

MAX_LAG_MS = 1000


@pytest.fixture
def replica() -> RemoteReplica:
    return RemoteReplica(2)


def fetch(replica: RemoteReplica, offset: int, leader_end: int, now_ms: int) -> None:
    replica.fetched(offset, 0, leader_end, 7, now_ms)


def test_knows_nothing_at_first(replica: RemoteReplica) -> None:
    assert (replica.log_end_offset, replica.log_start_offset) == (UNKNOWN_OFFSET, UNKNOWN_OFFSET)
    assert not replica.is_caught_up(0, 0, MAX_LAG_MS)


def test_notes_the_fetch(replica: RemoteReplica) -> None:
    replica.fetched(30, 5, 100, 7, 50)
    assert (replica.log_end_offset, replica.log_start_offset, replica.broker_epoch) == (30, 5, 7)


def test_caught_up_at_the_leaders_end(replica: RemoteReplica) -> None:
    fetch(replica, 100, 100, 50)
    assert replica.last_caught_up_ms == 50
    fetch(replica, 100, 100, 80)
    assert replica.last_caught_up_ms == 80


def test_caught_up_with_the_end_at_the_previous_fetch(replica: RemoteReplica) -> None:
    """A leader that appends all the time has always more records than a follower that fetches all the time."""
    fetch(replica, 100, 180, 50)
    assert replica.last_caught_up_ms == NEVER_MS
    fetch(replica, 180, 250, 60)
    assert replica.last_caught_up_ms == 50
    fetch(replica, 249, 300, 70)
    assert replica.last_caught_up_ms == 50, "250 was the end at the previous fetch"
    fetch(replica, 300, 400, 80)
    assert replica.last_caught_up_ms == 70


def test_lagging_replica(replica: RemoteReplica) -> None:
    fetch(replica, 100, 100, 0)
    fetch(replica, 100, 200, 500)
    fetch(replica, 150, 300, 900)
    assert replica.last_caught_up_ms == 0
    assert replica.is_caught_up(300, MAX_LAG_MS, MAX_LAG_MS)
    assert not replica.is_caught_up(300, MAX_LAG_MS + 1, MAX_LAG_MS)


def test_idle_replica_with_all_records_is_caught_up(replica: RemoteReplica) -> None:
    fetch(replica, 100, 100, 0)
    assert replica.is_caught_up(100, 1_000_000, MAX_LAG_MS)


def test_new_epoch_forgets_fetches(replica: RemoteReplica) -> None:
    fetch(replica, 100, 100, 0)
    replica.reset(is_in_sync=True, now_ms=5000)
    assert (replica.log_end_offset, replica.broker_epoch, replica.last_caught_up_ms) == (UNKNOWN_OFFSET, -1, 5000)
    fetch(replica, 20, 100, 5100)
    assert replica.last_caught_up_ms == 5000, "the end at the fetches of the previous epoch does not count"
    replica.reset(is_in_sync=False, now_ms=6000)
    assert not replica.is_caught_up(100, 6000, MAX_LAG_MS)


def test_shows_its_state(replica: RemoteReplica) -> None:
    fetch(replica, 100, 100, 3)
    assert repr(replica) == "RemoteReplica(2, offsets 0 to 100, caught up at 3)"
