"""Committed offsets: commits, transactions, deletion, expiry, loading."""

import pytest
from tests.support.coordinator.groups import GROUP, GroupBench, subscription

from headrace.common.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    MessageSizeTooLargeError,
    NonEmptyGroupError,
    NotEnoughReplicasError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from headrace.common.types import TopicPartition
from headrace.coordinator.group.classic_group import GroupState
from headrace.coordinator.group.config import GroupConfig
from headrace.coordinator.group.shard import commit_error
from headrace.coordinator.result import ProducerInfo

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
PRODUCER = ProducerInfo(7, 0)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench(
        GroupConfig(initial_rebalance_delay_ms=0, max_session_timeout_ms=10 * DAY, offsets_retention_ms=DAY)
    )


def test_the_last_commit_counts_and_outlives_a_reload(bench: GroupBench) -> None:
    assert bench.committed() is None
    assert bench.commit(5) == 0
    assert bench.commit(3) == 0  # going back is allowed
    assert bench.commit(9, partition=1, metadata="note") == 0
    bench.reload()
    assert (bench.committed(), bench.committed(partition=1)) == (3, 9)
    found = bench.shard.offsets_of(GROUP).get("t", 1)
    assert found is not None
    assert found.metadata == "note"


def test_an_offset_that_is_to_stay_for_the_longest_time(bench: GroupBench) -> None:
    assert bench.commit(5, expire_after_ms=2**63 - 1) == 0
    bench.clock.advance(365 * DAY)
    bench.expire()
    assert bench.committed() == 5


def test_metadata_has_a_limit(bench: GroupBench) -> None:
    assert bench.commit(5, metadata="x" * 4096) == 0
    assert bench.commit(6, metadata="ä" * 4096) == 0
    assert bench.commit(6, metadata="ä" * 4097) == OffsetMetadataTooLargeError.code
    assert bench.commit(6, metadata="😀" * 2049) == OffsetMetadataTooLargeError.code
    assert bench.commit(7, metadata=None) == 0
    assert bench.committed() == 7


def test_a_commit_that_cannot_be_written(bench: GroupBench) -> None:
    bench.commit(5)
    bench.log.failure = NotEnoughReplicasError("too few")
    assert bench.commit(6) is NotEnoughReplicasError
    assert bench.committed() == 5
    assert commit_error(MessageSizeTooLargeError("large")) == 28
    assert commit_error(NotEnoughReplicasError("few")) == NotEnoughReplicasError.code


# ---- transactions


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_transactional_commits_count_from_the_end_of_the_transaction(
    bench: GroupBench, committed: bool, reload: bool
) -> None:
    bench.commit(5)
    assert bench.commit(9, producer=PRODUCER) == 0
    if reload:
        bench.reload()
    offsets = bench.shard.offsets_of(GROUP)
    assert bench.committed() == 5
    assert bench.shard.fetch_offset(offsets, "t", 0, True) == (None, UnstableOffsetCommitError.code)
    assert bench.shard.fetch_offset(offsets, "t", 0, False)[0].offset == 5  # type: ignore[union-attr]
    bench.end_transaction(PRODUCER, committed)
    if reload:
        bench.reload()
    assert bench.committed() == (9 if committed else 5)
    assert bench.shard.fetch_offset(bench.shard.offsets_of(GROUP), "t", 0, True)[1] == 0


@pytest.mark.parametrize("reload", [False, True])
def test_a_later_commit_is_not_undone_by_the_end_of_a_transaction(bench: GroupBench, reload: bool) -> None:
    bench.commit(9, producer=PRODUCER)
    bench.commit(11)
    bench.end_transaction(PRODUCER, True)
    if reload:
        bench.reload()
    assert bench.committed() == 11


def test_an_aborted_transaction_leaves_no_group_behind(bench: GroupBench) -> None:
    bench.commit(9, producer=PRODUCER)
    bench.end_transaction(PRODUCER, False)
    bench.expire()
    assert bench.shard.groups == {}


def test_a_transactional_commit_of_a_member_is_checked(bench: GroupBench) -> None:
    (member,) = bench.stable()
    assert bench.commit(1, member, 1, producer=PRODUCER) == 0
    assert bench.commit(1, "nobody", 1, producer=PRODUCER) is UnknownMemberIdError
    assert bench.commit(1, producer=PRODUCER) == 0  # a producer that does not say for whom


# ---- deleting


def test_a_deleted_group_is_gone_with_its_offsets(bench: GroupBench) -> None:
    bench.commit(5)
    bench.commit(6, partition=1, producer=PRODUCER)
    assert bench.ask(lambda shard: shard.delete_group(GROUP)) is None
    for _ in range(2):
        assert GROUP not in bench.shard.groups
        assert bench.committed() is None
        assert not bench.shard.offsets_of(GROUP)
        bench.reload()
    assert bench.ask(lambda shard: shard.delete_group(GROUP)) is GroupIdNotFoundError


def delete_offsets(bench: GroupBench, *topics: str) -> object:
    partitions = [TopicPartition(topic, 0) for topic in topics]
    reply = bench.ask(lambda shard: shard.delete_offsets(GROUP, partitions))
    return [reply[tp] for tp in partitions] if isinstance(reply, dict) else reply


def test_offsets_of_an_empty_group_can_be_deleted(bench: GroupBench) -> None:
    assert delete_offsets(bench, "t") is GroupIdNotFoundError
    bench.commit(5)
    bench.commit(6, topic="u")
    assert delete_offsets(bench, "t", "never") == [0, 0]
    bench.reload()
    assert (bench.committed("t"), bench.committed("u")) == (None, 6)


def test_offsets_of_topics_that_are_read_stay(bench: GroupBench) -> None:
    (member,) = bench.stable(protocols=[("range", subscription("t"))])
    for topic in ("t", "u"):
        bench.commit(5, member, 1, topic=topic)
    assert delete_offsets(bench, "t", "u") == [GroupSubscribedToTopicError.code, 0]
    assert (bench.committed("t"), bench.committed("u")) == (5, None)


def test_a_group_that_is_not_of_consumers_keeps_its_offsets(bench: GroupBench) -> None:
    bench.stable(protocol_type="connect")
    assert delete_offsets(bench, "t") is NonEmptyGroupError


def test_offsets_of_deleted_topics_go(bench: GroupBench) -> None:
    for topic in ("t", "u"):
        bench.commit(5, topic=topic)
    bench.ask(lambda shard: shard.delete_offsets_of_topics({"t"}))
    bench.reload()
    assert (bench.committed("t"), bench.committed("u")) == (None, 5)


def test_many_offsets_of_deleted_topics_go_in_steps(bench: GroupBench) -> None:
    for number in range(1_500):
        bench.commit(5, partition=number)
    assert bench.ask(lambda shard: shard.delete_offsets_of_topics({"t"})) is False
    assert bench.ask(lambda shard: shard.delete_offsets_of_topics({"t"})) is True
    assert not bench.shard.offsets_of(GROUP)


# ---- expiry


def test_without_members_retention_counts_from_the_commit(bench: GroupBench) -> None:
    bench.commit(5)
    bench.pass_time(DAY - 1)
    bench.commit(6, partition=1)
    bench.expire()
    assert bench.committed() == 5
    bench.pass_time(1)
    bench.expire()
    assert (bench.committed(), bench.committed(partition=1)) == (None, 6)
    bench.pass_time(DAY)
    bench.expire()
    assert bench.shard.groups == {}


def test_with_members_retention_counts_from_when_the_last_left(bench: GroupBench) -> None:
    (member,) = bench.stable(session_ms=5 * DAY)
    bench.commit(5, member, 1)
    bench.pass_time(2 * DAY)
    bench.expire()
    assert bench.committed() == 5
    bench.leave(member)
    bench.pass_time(DAY - 1)
    bench.reload()
    bench.expire()
    assert bench.committed() == 5
    bench.pass_time(1)
    bench.expire()
    assert bench.committed() is None
    assert bench.shard.groups == {}
    bench.reload()
    assert bench.shard.groups == {}


def test_a_topic_that_is_not_read_any_more_expires_from_a_stable_group(bench: GroupBench) -> None:
    (member,) = bench.stable(session_ms=5 * DAY, protocols=[("range", subscription("t"))])
    for topic in ("t", "u"):
        bench.commit(5, member, 1, topic=topic)
    bench.pass_time(DAY)
    bench.expire()
    assert (bench.committed("t"), bench.committed("u")) == (5, None)
    assert bench.state is GroupState.STABLE


@pytest.mark.parametrize("metadata", [b"", b"\0\0\0\0\0\1\0\5ab", b"\0\0\0\0\0\1\0\2\xff\xfe"])
def test_what_cannot_be_read_as_a_subscription_keeps_all(bench: GroupBench, metadata: bytes) -> None:
    (member,) = bench.stable(session_ms=5 * DAY, protocols=[("range", metadata)])
    bench.commit(5, member, 1)
    bench.pass_time(DAY)
    bench.expire()
    assert bench.committed() == 5


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_nothing_expires_during_a_rebalance(bench: GroupBench, state: GroupState) -> None:
    bench.stable(session_ms=5 * DAY, rebalance_ms=5 * DAY)
    bench.commit(5, bench.group.leader_id or "", 1)
    bench.group.state = state
    bench.clock.advance(2 * DAY)
    bench.expire()
    assert bench.committed() == 5


def test_a_time_that_the_client_gave_counts_instead(bench: GroupBench) -> None:
    bench.commit(5, expire_after_ms=MINUTE)
    bench.reload()
    bench.pass_time(MINUTE - 1)
    bench.expire()
    assert bench.committed() == 5
    bench.pass_time(1)
    bench.expire()
    assert bench.committed() is None


def test_what_waits_for_a_transaction_does_not_expire(bench: GroupBench) -> None:
    bench.commit(5)
    bench.commit(6, producer=PRODUCER)
    bench.pass_time(DAY)
    bench.expire()
    assert bench.committed() == 5
    bench.end_transaction(PRODUCER, True)
    assert bench.committed() == 6


def test_it_is_looked_for_old_offsets_again_and_again() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for _ in range(3):
        bench.commit(5)
        bench.pass_time(MINUTE - 1)
        assert bench.committed() == 5
        bench.pass_time(10_001)
        assert bench.committed() is None


def test_thousands_expire_in_several_steps() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for number in range(3_000):
        bench.commit(5, group_id=f"g{number}")
    before = len(bench.log.batches)
    bench.pass_time(MINUTE + 10_000)
    assert bench.shard.groups == {}
    assert len(bench.log.batches) - before >= 3


def test_many_offsets_of_one_group_expire_in_several_steps() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for number in range(2_500):
        bench.commit(5, partition=number)
    bench.pass_time(MINUTE + 10_000)
    assert bench.shard.groups == {}
    assert max(batch.count for batch in bench.log.batches) <= 1_001


def test_what_cannot_be_taken_back_now_is_tried_again_at_the_next_check() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for number in range(1_500):
        bench.commit(5, group_id=f"g{number}")
    bench.log.failure = NotEnoughReplicasError("too few")
    bench.pass_time(MINUTE + 5_000)
    assert bench.timer.next_due_ms() > 1_000  # not at once, again and again
    bench.log.failure = None
    bench.pass_time(10_000)
    assert bench.shard.groups == {}


def test_a_group_that_only_handed_out_an_id_is_forgotten(bench: GroupBench) -> None:
    bench.join(version=4)
    bench.expire()
    assert GROUP in bench.shard.groups
    bench.pass_time(10_000)
    bench.expire()
    assert bench.shard.groups == {}
    assert bench.log.end_offset() == 0
