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


def test_last_commit_survives_reload(bench: GroupBench) -> None:
    assert bench.committed() is None
    assert bench.commit(5) == 0
    assert bench.commit(3) == 0  # a lower offset is allowed
    assert bench.commit(9, partition=1, metadata="note") == 0
    bench.reload()
    assert (bench.committed(), bench.committed(partition=1)) == (3, 9)
    found = bench.shard.offsets_of(GROUP).get("t", 1)
    assert found is not None
    assert found.metadata == "note"


def test_commit_with_maximum_retention(bench: GroupBench) -> None:
    assert bench.commit(5, expire_after_ms=2**63 - 1) == 0
    bench.clock.advance(365 * DAY)
    bench.expire()
    assert bench.committed() == 5


def test_metadata_size_limit(bench: GroupBench) -> None:
    assert bench.commit(5, metadata="x" * 4096) == 0
    assert bench.commit(6, metadata="ä" * 4096) == 0
    assert bench.commit(6, metadata="ä" * 4097) == OffsetMetadataTooLargeError.code
    assert bench.commit(6, metadata="😀" * 2049) == OffsetMetadataTooLargeError.code
    assert bench.commit(7, metadata=None) == 0
    assert bench.committed() == 7


def test_unwritten_commit_fails(bench: GroupBench) -> None:
    bench.commit(5)
    bench.log.failure = NotEnoughReplicasError("too few")
    assert bench.commit(6) is NotEnoughReplicasError
    assert bench.committed() == 5
    assert commit_error(MessageSizeTooLargeError("large")) == 28
    assert commit_error(NotEnoughReplicasError("few")) == NotEnoughReplicasError.code


@pytest.mark.parametrize("generation", [0, 1])
def test_former_member_cannot_commit_to_empty_group(bench: GroupBench, generation: int) -> None:
    bench.commit(5)
    assert bench.commit(6, "old", generation) is UnknownMemberIdError
    assert bench.committed() == 5


# ---- transactions


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_transactional_commit_takes_effect_at_transaction_end(bench: GroupBench, committed: bool, reload: bool) -> None:
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
def test_transaction_end_does_not_overwrite_later_commit(bench: GroupBench, reload: bool) -> None:
    bench.commit(9, producer=PRODUCER)
    bench.commit(11)
    bench.end_transaction(PRODUCER, True)
    if reload:
        bench.reload()
    assert bench.committed() == 11


def test_aborted_transaction_leaves_no_offsets(bench: GroupBench) -> None:
    bench.commit(9, producer=PRODUCER)
    bench.end_transaction(PRODUCER, False)
    bench.expire()
    assert bench.shard.groups == {}


def test_transactional_commit_checks_member(bench: GroupBench) -> None:
    (member,) = bench.stable()
    assert bench.commit(1, member, 1, producer=PRODUCER) == 0
    assert bench.commit(1, "nobody", 1, producer=PRODUCER) is UnknownMemberIdError
    assert bench.commit(1, producer=PRODUCER) == 0  # a producer without a member id


# ---- deleting


def test_delete_group_deletes_offsets(bench: GroupBench) -> None:
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


def test_deletes_offsets_of_empty_group(bench: GroupBench) -> None:
    assert delete_offsets(bench, "t") is GroupIdNotFoundError
    bench.commit(5)
    bench.commit(6, topic="u")
    assert delete_offsets(bench, "t", "never") == [0, 0]
    bench.reload()
    assert (bench.committed("t"), bench.committed("u")) == (None, 6)


def test_keeps_offsets_of_subscribed_topics(bench: GroupBench) -> None:
    (member,) = bench.stable(protocols=[("range", subscription("t"))])
    for topic in ("t", "u"):
        bench.commit(5, member, 1, topic=topic)
    assert delete_offsets(bench, "t", "u") == [GroupSubscribedToTopicError.code, 0]
    assert (bench.committed("t"), bench.committed("u")) == (5, None)


def test_rejects_offset_deletion_for_other_protocol_types(bench: GroupBench) -> None:
    bench.stable(protocol_type="connect")
    assert delete_offsets(bench, "t") is NonEmptyGroupError


def test_deletes_offsets_of_deleted_topics(bench: GroupBench) -> None:
    for topic in ("t", "u"):
        bench.commit(5, topic=topic)
    bench.ask(lambda shard: shard.delete_offsets_of_topics({"t"}))
    bench.reload()
    assert (bench.committed("t"), bench.committed("u")) == (None, 5)


def test_deletes_many_offsets_of_deleted_topics_in_steps(bench: GroupBench) -> None:
    for number in range(1_500):
        bench.commit(5, partition=number)
    assert bench.ask(lambda shard: shard.delete_offsets_of_topics({"t"})) is False
    assert bench.ask(lambda shard: shard.delete_offsets_of_topics({"t"})) is True
    assert not bench.shard.offsets_of(GROUP)


# ---- expiry


def test_retention_without_members_starts_at_commit(bench: GroupBench) -> None:
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


def test_retention_with_members_starts_when_group_becomes_empty(bench: GroupBench) -> None:
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


def test_unsubscribed_topic_of_stable_group_expires(bench: GroupBench) -> None:
    (member,) = bench.stable(session_ms=5 * DAY, protocols=[("range", subscription("t"))])
    for topic in ("t", "u"):
        bench.commit(5, member, 1, topic=topic)
    bench.pass_time(DAY)
    bench.expire()
    assert (bench.committed("t"), bench.committed("u")) == (5, None)
    assert bench.state is GroupState.STABLE


@pytest.mark.parametrize("metadata", [b"", b"\0\0\0\0\0\1\0\5ab", b"\0\0\0\0\0\1\0\2\xff\xfe"])
def test_unreadable_subscription_keeps_offsets(bench: GroupBench, metadata: bytes) -> None:
    (member,) = bench.stable(session_ms=5 * DAY, protocols=[("range", metadata)])
    bench.commit(5, member, 1)
    bench.pass_time(DAY)
    bench.expire()
    assert bench.committed() == 5


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_nothing_expires_during_rebalance(bench: GroupBench, state: GroupState) -> None:
    bench.stable(session_ms=5 * DAY, rebalance_ms=5 * DAY)
    bench.commit(5, bench.group.leader_id or "", 1)
    bench.group.state = state
    bench.clock.advance(2 * DAY)
    bench.expire()
    assert bench.committed() == 5


def test_client_retention_overrides_broker_retention(bench: GroupBench) -> None:
    bench.commit(5, expire_after_ms=MINUTE)
    bench.reload()
    bench.pass_time(MINUTE - 1)
    bench.expire()
    assert bench.committed() == 5
    bench.pass_time(1)
    bench.expire()
    assert bench.committed() is None


def test_pending_transactional_offsets_do_not_expire(bench: GroupBench) -> None:
    bench.commit(5)
    bench.commit(6, producer=PRODUCER)
    bench.pass_time(DAY)
    bench.expire()
    assert bench.committed() == 5
    bench.end_transaction(PRODUCER, True)
    assert bench.committed() == 6


def test_expiry_runs_periodically() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for _ in range(3):
        bench.commit(5)
        bench.pass_time(MINUTE - 1)
        assert bench.committed() == 5
        bench.pass_time(10_001)
        assert bench.committed() is None


def test_many_groups_expire_in_steps() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for number in range(3_000):
        bench.commit(5, group_id=f"g{number}")
    before = len(bench.log.batches)
    bench.pass_time(MINUTE + 10_000)
    assert bench.shard.groups == {}
    assert len(bench.log.batches) - before >= 3


def test_many_offsets_of_one_group_expire_in_steps() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for number in range(2_500):
        bench.commit(5, partition=number)
    bench.pass_time(MINUTE + 10_000)
    assert bench.shard.groups == {}
    assert max(batch.count for batch in bench.log.batches) <= 1_001


def test_failed_expiry_is_retried() -> None:
    bench = GroupBench(GroupConfig(offsets_retention_ms=MINUTE, offsets_retention_check_interval_ms=10_000))
    for number in range(1_500):
        bench.commit(5, group_id=f"g{number}")
    bench.log.failure = NotEnoughReplicasError("too few")
    bench.pass_time(MINUTE + 5_000)
    assert bench.timer.next_due_ms() > 1_000  # no busy loop
    bench.log.failure = None
    bench.pass_time(10_000)
    assert bench.shard.groups == {}


def test_group_with_only_an_assigned_member_id_expires(bench: GroupBench) -> None:
    bench.join(version=4)
    bench.expire()
    assert GROUP in bench.shard.groups
    bench.pass_time(10_000)
    bench.expire()
    assert bench.shard.groups == {}
    assert bench.log.end_offset() == 0
