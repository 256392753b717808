"""The subscription, the assignment and the progress of a consumer."""

import re

import pytest

from headrace.client.consumer.partition_state import EARLIEST_OFFSET, NO_EPOCH, FetchState
from headrace.client.consumer.subscription_state import ConsumerRebalanceListener, SubscriptionMode, SubscriptionState
from headrace.client.errors import IllegalStateError
from headrace.client.types import OffsetAndMetadata
from headrace.common.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def subscription():
    return SubscriptionState()


class TestSubscription:
    def test_subscribes_to_topics(self, subscription):
        listener = ConsumerRebalanceListener()
        subscription.subscribe(["t", "u"], listener=listener)
        assert (subscription.mode, subscription.topics) == (SubscriptionMode.TOPICS, {"t", "u"})
        assert subscription.is_subscribed
        assert subscription.listener is listener
        subscription.subscribe(["v"])
        assert subscription.topics == {"v"}

    @pytest.mark.parametrize("pattern", ["t.*", re.compile("t.*")])
    def test_subscribes_to_pattern(self, subscription, pattern):
        subscription.subscribe(pattern=pattern)
        assert subscription.mode is SubscriptionMode.PATTERN
        assert subscription.topics == frozenset()
        assert subscription.match(["t", "tea", "not"])
        assert subscription.topics == {"t", "tea"}
        assert not subscription.match(["tea", "t", "other"])
        assert subscription.match(["t"])

    def test_match_without_pattern_does_nothing(self, subscription):
        subscription.subscribe(["t"])
        assert not subscription.match(["u"])

    def test_topics_and_pattern_are_exclusive(self, subscription):
        with pytest.raises(IllegalStateError, match="mutually exclusive"):
            subscription.subscribe(["t"], pattern="t")
        with pytest.raises(ValueError, match="needs topics or a pattern"):
            subscription.subscribe()

    def test_rejects_incomplete_listener(self, subscription):
        class Half:
            def on_partitions_assigned(self, assigned):
                pass

        for listener in (Half(), print):
            with pytest.raises(TypeError, match="a rebalance listener needs a method"):
                subscription.subscribe(["t"], listener=listener)
        assert not subscription.is_subscribed

    @pytest.mark.parametrize("topics", ["t", [b"t"], [1]])
    def test_rejects_topics_of_other_types(self, subscription, topics):
        with pytest.raises(TypeError, match="str"):
            subscription.subscribe(topics)

    def test_modes_are_exclusive(self, subscription):
        subscription.subscribe(["t"])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            subscription.assign([T0])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            subscription.subscribe(pattern="t")
        subscription.unsubscribe()
        subscription.assign([T0])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            subscription.subscribe(["t"])
        subscription.unsubscribe()
        assert (subscription.mode, subscription.assigned) == (SubscriptionMode.NONE, frozenset())


class TestAssignment:
    def test_kept_partitions_keep_positions(self, subscription):
        subscription.assign([T0, T1])
        subscription.seek(T0, 7)
        gone = subscription.state(T1)
        subscription.assign([T0, U0])
        assert subscription.assigned == {T0, U0}
        assert subscription.topics == {"t", "u"}
        assert subscription.state(T0).position == 7
        assert gone.state is FetchState.STOPPED
        assert subscription.state(U0).state is FetchState.OFFSET_QUERY
        with pytest.raises(IllegalStateError, match="No current assignment for partition t-1"):
            subscription.state(T1)

    def test_assignment_from_group(self, subscription):
        subscription.subscribe(["t"])
        subscription.assign_from_group([T0, T1])
        subscription.seek(T0, 7)
        subscription.seek(T1, 8)
        before = subscription.state(T1)
        subscription.start_revoking([T1])
        assert before.state is FetchState.STOPPING
        # The position can still be committed.
        assert subscription.positions()[T1] == OffsetAndMetadata(8, "", -1)
        subscription.assign_from_group([T0])
        subscription.assign_from_group([T0, T1])
        assert subscription.state(T1) is not before
        assert subscription.state(T0).position == 7
        assert subscription.positions() == {T0: OffsetAndMetadata(7, "", -1)}

    def test_stopped_partition_restarts_if_reassigned(self, subscription):
        subscription.subscribe(["t"])
        subscription.assign_from_group([T0])
        subscription.seek(T0, 7)
        subscription.start_revoking([T0])
        subscription.assign_from_group([T0])
        assert subscription.state(T0).state is FetchState.OFFSET_QUERY

    def test_late_assignment_is_ignored(self, subscription):
        subscription.subscribe(["t"])
        subscription.unsubscribe()
        subscription.assign_from_group([T0])
        assert subscription.assigned == frozenset()

    def test_pause_and_resume(self, subscription):
        subscription.assign([T0, T1])
        subscription.pause([T0])
        assert subscription.paused() == {T0}
        with pytest.raises(IllegalStateError):
            subscription.pause([T1, U0])
        assert subscription.paused() == {T0}
        subscription.resume([T0])
        assert subscription.paused() == set()

    def test_seek_during_revocation_is_ignored(self, subscription):
        subscription.subscribe(["t"])
        subscription.assign_from_group([T0])
        subscription.seek(T0, 5)
        subscription.start_revoking([T0])
        subscription.seek(T0, 9)
        subscription.query_offsets([T0], EARLIEST_OFFSET)
        assert subscription.positions() == {T0: OffsetAndMetadata(5, "", -1)}


class TestProgress:
    def test_next_poll_marks_records_as_processed(self, subscription):
        subscription.assign([T0, T1])
        subscription.seek(T0, 0)
        state = subscription.state(T0)
        subscription.consumed(state, 10, 2)
        assert subscription.positions() == {T0: OffsetAndMetadata(10, "", 2)}
        assert subscription.auto_commit_offsets() == {T0: OffsetAndMetadata(0, "", -1)}
        subscription.mark_processed()
        assert subscription.auto_commit_offsets() == {T0: OffsetAndMetadata(10, "", 2)}

    def test_iteration_marks_records_as_processed(self, subscription):
        subscription.assign([T0])
        subscription.seek(T0, 0)
        state = subscription.state(T0)
        subscription.start_iteration(state, state.version, 0)
        for offset in range(1, 4):
            assert state.advance(state.version, offset)
            assert subscription.auto_commit_offsets()[T0].offset == offset - 1
        assert not state.advance(state.version - 1, 9)
        state.paused = True
        assert not state.advance(state.version, 9)
        subscription.mark_processed()
        assert subscription.auto_commit_offsets()[T0].offset == 3

    def test_iteration_over_stale_records_keeps_position_epoch(self, subscription):
        subscription.assign([T0])
        subscription.seek(T0, 0)
        state = subscription.state(T0)
        stale = state.version
        subscription.seek(T0, 387)
        subscription.start_iteration(state, stale, 0)
        assert (state.position, state.position_epoch) == (387, NO_EPOCH)

    def test_seek_changes_committable_offset(self, subscription):
        subscription.assign([T0])
        subscription.seek(T0, 0)
        subscription.consumed(subscription.state(T0), 10, 2)
        subscription.seek(T0, 4)
        assert subscription.auto_commit_offsets()[T0].offset == 4
        subscription.mark_processed()
        assert subscription.auto_commit_offsets()[T0].offset == 4

    def test_revoked_partition_is_not_committed(self, subscription):
        subscription.assign([T0])
        subscription.seek(T0, 0)
        subscription.consumed(subscription.state(T0), 10, 2)
        subscription.assign([])
        subscription.mark_processed()
        assert subscription.auto_commit_offsets() == {}

    def test_disable_auto_commit(self, subscription):
        subscription.assign([T0])
        subscription.seek(T0, 3)
        subscription.disable_auto_commit()
        assert subscription.auto_commit_offsets() == {}


def test_listener_treats_lost_as_revoked_by_default():
    class Listener(ConsumerRebalanceListener):
        def __init__(self):
            self.revoked = []

        def on_partitions_revoked(self, revoked):
            self.revoked.append(revoked)

    listener = Listener()
    listener.on_partitions_lost([T0])
    assert listener.on_partitions_assigned([T0]) is None
    assert listener.revoked == [[T0]]
