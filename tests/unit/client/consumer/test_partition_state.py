"""The states of one partition: legal transitions, and changes of the version."""

import itertools

import pytest

from headrace.client.consumer.partition_state import (
    COMMITTED_OFFSET,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    FetchState,
    OffsetQuery,
    PartitionState,
)
from headrace.common.types import TopicPartition


def state_in(wanted):
    state = PartitionState(TopicPartition("t", 0))
    if wanted is FetchState.NONE:
        return state
    state.query_offset(COMMITTED_OFFSET)
    if wanted is FetchState.OFFSET_WAIT:
        state.query_sent()
    elif wanted in (FetchState.ACTIVE, FetchState.VALIDATE_WAIT):
        state.seek(5, 1)
        if wanted is FetchState.VALIDATE_WAIT:
            state.validate()
    elif wanted is FetchState.STOPPING:
        state.begin_stop()
    elif wanted is FetchState.STOPPED:
        state.stop()
    assert state.state is wanted
    return state


LIVING = [state for state in FetchState if state not in (FetchState.STOPPING, FetchState.STOPPED)]


@pytest.mark.parametrize("before", LIVING)
def test_seek_in_every_state_changes_version(before):
    state = state_in(before)
    version = state.version
    state.seek(42, 3)
    assert (state.state, state.version) == (FetchState.ACTIVE, version + 1)
    assert (state.position, state.fetch_offset, state.processed, state.position_epoch) == (42, 42, 42, 3)
    assert state.query is None


@pytest.mark.parametrize("before", LIVING)
def test_query_in_every_state_changes_version(before):
    state = state_in(before)
    version = state.version
    state.query_offset(LATEST_OFFSET)
    assert (state.state, state.version, state.query) == (FetchState.OFFSET_QUERY, version + 1, LATEST_OFFSET)
    assert not state.has_position


@pytest.mark.parametrize("before", FetchState)
def test_stop_in_every_state(before):
    state = state_in(before)
    state.begin_stop()
    assert state.is_stopped
    state.stop()
    version = state.version
    state.stop()
    state.begin_stop()
    assert (state.state, state.version) == (FetchState.STOPPED, version)


@pytest.mark.parametrize("before", [FetchState.STOPPING, FetchState.STOPPED])
def test_stopped_is_final(before):
    for change in (
        lambda state: state.seek(1),
        lambda state: state.query_offset(EARLIEST_OFFSET),
        lambda state: state.query_sent(),
        lambda state: state.retry_query(1.0),
        lambda state: state.validate(),
    ):
        with pytest.raises(RuntimeError, match="illegal transition from"):
            change(state_in(before))


def test_only_a_query_can_be_sent():
    for before in set(FetchState) - {FetchState.OFFSET_QUERY}:
        with pytest.raises(RuntimeError, match="illegal transition from"):
            state_in(before).query_sent()


def test_retry_keeps_version():
    state = state_in(FetchState.OFFSET_WAIT)
    version = state.version
    state.retry_query(7.5)
    assert (state.state, state.version, state.failures, state.retry_at) == (FetchState.OFFSET_QUERY, version, 1, 7.5)
    state.seek(1)
    assert (state.failures, state.retry_at) == (0, 0.0)


def test_validation_drops_buffered_records():
    state = state_in(FetchState.ACTIVE)
    state.fetched(100)
    version = state.version
    state.validate()
    assert (state.version, state.fetch_offset, state.position) == (version + 1, 5, 5)
    state.validated(9)
    assert (state.state, state.leader_epoch) == (FetchState.ACTIVE, 9)


def test_paused_partition_is_not_fetched():
    state = state_in(FetchState.ACTIVE)
    assert state.is_fetchable
    state.paused = True
    assert not state.is_fetchable


@pytest.mark.parametrize("read_committed", [False, True])
def test_end_is_reported_once_per_offset(read_committed):
    state = state_in(FetchState.ACTIVE)
    assert not state.reached_end(read_committed)  # the end is unknown
    state.high_watermark, state.last_stable_offset = (8, 6)
    end = 6 if read_committed else 8
    told = []
    for offset in (5, end, end, end + 1, end + 1):
        state.fetched(offset)
        told.append(state.reached_end(read_committed))
    assert told == [False, True, False, True, False]
    state.seek(end + 1)
    assert state.reached_end(read_committed)


def test_string_forms():
    assert [str(query) for query in (COMMITTED_OFFSET, EARLIEST_OFFSET, LATEST_OFFSET)] == [
        "committed",
        "earliest",
        "latest",
    ]
    assert str(OffsetQuery("time", 1234)) == "time 1234"
    assert str(OffsetQuery("tail", tail=3)) == "3 offsets before the end"
    assert "t-0" in repr(state_in(FetchState.ACTIVE))


def test_transitions():
    """A transition depends only on the two states."""
    for before, after in itertools.product(FetchState, repeat=2):
        outcomes = set()
        for _ in range(2):
            try:
                state_in(before)._transition(after)
            except RuntimeError:
                outcomes.add(False)
            else:
                outcomes.add(True)
        assert len(outcomes) == 1
